"""Recorded requests over SGLang's radix cache, gone through again on the allocator of a run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from recorded import Record
from recorded_tree import Difference, Namespaces, TreeCase, first_difference, runs_of, slots_of
from replay_tree import state_of
from sim.allocators.radix import Radix
from sim.allocators.tree import RadixTree
from sim.config.plugin_keys import build_part
from sim.sequence import NUM_COMPUTED, NUM_TOKENS, IntArray, Limits, SequenceTable, new_requests
from workloads.content import Run
from workloads.sequences import SequenceContent


def allocator_of(case: TreeCase) -> Any:
    """The allocator that an experiment with the case's settings builds."""
    config = case.config
    part = {
        "kind": "radix",
        "block_size": config["page_size"],
        "eviction_policy": config.get("eviction_policy", "lru"),
    }
    return build_part("allocator", part, Path())


class RecordedTokens(SequenceContent):
    """The tokens of a case's requests: prompts, and outputs as they were sampled."""

    def __init__(self, case: TreeCase) -> None:
        super().__init__()
        self.names: list[str] = []
        self.prompts: list[list[int]] = []
        self.outputs: list[list[int]] = []
        for op in case.ops:
            if op["op"] == "start" and op["tokens"]:
                assert op["rid"] not in self.names
                self.names.append(op["rid"])
                self.prompts.append(op["tokens"])
                self.outputs.append([])
            for name, token in op.get("reqs", ()) if op["op"] == "decode" else ():
                self.outputs[self.names.index(name)].append(token)

    def runs(self, request: int, prompt_tokens: int, num_tokens: int) -> list[Run]:
        return runs_of((self.prompts[request] + self.outputs[request])[:num_tokens])

    def requests(self) -> IntArray:
        """Rows of requests that are one token longer than what was recorded of them."""
        prompts, outputs = (
            np.array([len(tokens) for tokens in lists], np.int64)
            for lists in (self.prompts, self.outputs)
        )
        limits = Limits(1 << 20, outputs + 1)
        return new_requests(np.zeros(len(prompts), np.int64), prompts, outputs + 1, limits)


class RequestReplay:
    """The engine's steps, called in the recorded order."""

    def __init__(self, case: TreeCase, allocator: Radix, is_checked: bool = True) -> None:
        self.case, self.allocator, self.sequences = case, allocator, SequenceTable()
        self.is_checked = is_checked
        self.content = RecordedTokens(case)
        self.requests = self.content.requests()
        allocator.bind(case.config["pool_tokens"], self.sequences, 1 << 20)
        allocator.bind_content(self.content)
        self.gone: list[IntArray] = []
        self._watch(allocator.tree)
        self.rows: dict[str, int] = {}
        self.is_extended: set[str] = set()
        self.names = Namespaces()

    def _watch(self, tree: RadixTree) -> None:
        """Note what is evicted."""
        evict = tree.evict

        def noted(num_tokens: int) -> list[IntArray]:
            found = evict(num_tokens)
            self.gone += found
            return found

        tree.evict = noted

    def first_difference(self) -> Difference | None:
        for index, (op, record) in enumerate(zip(self.case.ops, self.case.records, strict=True)):
            ours = getattr(self, "_" + op["op"])(op)
            allocator, size = self.allocator, self.allocator.block_size
            gone = [slots_of(blocks, size) for blocks in self.gone]
            self.gone.clear()
            ours |= {"i": index, "op": op["op"], "evicted": gone, "state": self._state()}
            found = first_difference(record, ours, index, op["op"])
            if found is not None:
                return found
            if self.is_checked:
                allocator.check(np.array(list(self.rows.values()), np.int64))
        return None

    def _state(self) -> Record:
        allocator = self.allocator
        return {
            **state_of(allocator.tree, self.names, shows_priority=False),
            "available": allocator.available_size,
            "free_pages": allocator.free_blocks().tolist(),
            "rows": {name: self._slots(name) for name in self.rows if name in self.is_extended},
            "protected_len": {
                name: allocator.protected_len(row) for name, row in self.rows.items()
            },
        }

    def _slots(self, name: str, begin: int = 0) -> list[int]:
        row = self.rows[name]
        table = self.allocator.block_table(row)
        computed = self.sequences.rows.item(row, NUM_COMPUTED)
        return slots_of(table, self.allocator.block_size)[begin:computed]

    def _start(self, op: Record) -> Record:
        name = op["rid"]
        if name not in self.rows:
            number = self.content.names.index(name)
            self.rows[name] = self.sequences.open(self.requests, number)
        row = self.rows[name]
        hit = self.allocator.match(row)
        self.allocator.hold(row)
        num_tokens = self.sequences.rows.item(row, NUM_TOKENS)
        return {"hit": hit, "num_tokens": num_tokens, "indices": self._slots(name)}

    def _extend(self, op: Record) -> Record:
        names = [name for name, _ in op["reqs"]]
        rows = np.array([self.rows[name] for name in names])
        before = self.sequences.rows[rows, NUM_COMPUTED]
        counts = self.sequences.rows[rows, NUM_TOKENS] - before
        limits = [1 << 20 if limit is None else limit for _, limit in op["reqs"]]
        assert self.allocator.extend(rows, np.minimum(counts, limits)) == len(rows)
        self.is_extended |= set(names)
        first = before.tolist()
        new = [[name, self._slots(name, i)] for name, i in zip(names, first, strict=True)]
        state = self._state()
        self.allocator.checkpoint(rows, self.sequences.rows[rows, NUM_COMPUTED])
        return {"new_slots": new, "before_checkpoint": state}

    def _decode(self, op: Record) -> Record:
        rows = np.array([self.rows[name] for name, _ in op["reqs"]])
        before = self.sequences.rows[rows, NUM_COMPUTED].tolist()
        self.sequences.rows[rows, NUM_TOKENS] += 1
        assert self.allocator.append(rows, np.ones(len(rows), np.int64)) == len(rows)
        names = [name for name, _ in op["reqs"]]
        new = [self._slots(name, i)[0] for name, i in zip(names, before, strict=True)]
        return {"new_slots": new}

    def _finish(self, op: Record) -> Record:
        row = self.rows.pop(op["rid"])
        self.is_extended.discard(op["rid"])
        self.allocator.finish([row])
        self.sequences.close(row)
        return {}

    def _retract(self, op: Record) -> Record:
        self.allocator.release([self.rows[op["rid"]]])
        self.is_extended.discard(op["rid"])
        self.allocator.evict(op["evict"] - self.allocator.available_size)
        return {}

    def _evict(self, op: Record) -> Record:
        return {"num_evicted": self.allocator.evict(op["n"])}
