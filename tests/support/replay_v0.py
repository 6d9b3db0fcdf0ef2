"""A recorded case of vLLM v0 gone through again, step by step, and the first thing that differs.

Which tokens were sampled is replayed; what becomes of them is up to the simulator.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from recorded import Case, Clock, Record
from sim.allocators import Allocator
from sim.allocators.paged_cow import PagedCow
from sim.allocators.shared_blocks import COPIED, SWAPPED_IN, SWAPPED_OUT
from sim.beam_search import BeamSearch, Candidate, Step
from sim.branching import Branches
from sim.config.plugin_keys import build_part
from sim.schedulers import Scheduler
from sim.schedulers.swapping import SwapSpaceError
from sim.schedulers.vllm_v0 import VllmV0
from sim.sequence import (
    NUM_COMPUTED,
    NUM_TOKENS,
    REQUEST,
    IntArray,
    Limits,
    SequenceTable,
    new_requests,
)

EOS = 2


class Difference(NamedTuple):
    step: int
    field: str
    recorded: Any
    ours: Any

    def __str__(self) -> str:
        return f"step {self.step}, {self.field}: recorded {self.recorded}, ours {self.ours}"


DEFAULTS = {"watermark": 0.01, "max_num_batched_tokens": 2560, "max_num_seqs": 64}
DEFAULTS |= {"max_model_len": 2048, "max_paddings": 2560, "sliding_window": None}


def parts_of(case: Case) -> tuple[Allocator, Scheduler]:
    """The allocator and the scheduler that an experiment with the case's settings builds."""
    config = DEFAULTS | case.config
    allocator = {
        "kind": "paged_cow",
        "block_size": config["block_size"],
        "num_cpu_blocks": config["num_cpu_blocks"],
        "watermark": config["watermark"],
        "sliding_window": config["sliding_window"],
    }
    same = ("max_num_seqs", "max_num_batched_tokens", "max_paddings")
    scheduler = {"kind": "vllm_v0"} | {name: config[name] for name in same}
    return build_part("allocator", allocator, Path()), build_part("scheduler", scheduler, Path())


def longest_of(case: Case) -> int:
    """The engine stops a sequence that is longer than max_model_len: it may be one token longer."""
    longest: int = (DEFAULTS | case.config)["max_model_len"] + 1
    return longest


def num_outputs(case: Case, request: Record) -> int:
    """How many tokens a request of one sequence generates, or a group at most."""
    if request.get("n", 1) > 1:
        return int(request["output_len"])
    tokens = [
        token for step in case.steps for _, token, _ in step["samples"].get(request["id"], [])
    ]
    return tokens.index(EOS) + 1 if EOS in tokens else int(request["output_len"])


def requests_of(case: Case, step_ns: int = 1) -> IntArray:
    columns = [
        np.array([request["arrival_step"] * step_ns for request in case.requests]),
        np.array([request["prompt_len"] for request in case.requests]),
        np.array([num_outputs(case, request) for request in case.requests]),
    ]
    return new_requests(*columns, Limits(longest_of(case), columns[2]))


class Recording(Branches):
    """What the engine sampled, and which of its sequence ids are which of ours."""

    def __init__(self, case: Case) -> None:
        self.case = case
        self._samples: dict[str, list[list[tuple[int, int, float]]]] = {}  # not replayed yet
        for record in reversed(case.steps):
            for name, samples in record["samples"].items():
                self._samples.setdefault(name, []).append(samples)
        self.running: dict[int, list[int]] = {}  # ids of a request's sequences, in their order
        self.scores: dict[int, float] = {}
        self.lengths: dict[int, int] = {}
        self._searches: dict[int, BeamSearch] = {}
        self._next_id = 0

    def arrive(self, request: int) -> None:
        given = self.case.requests[request]
        self.running[request] = [self._new(0.0, given["prompt_len"])]
        if self.is_search(request):
            early = bool(given.get("early_stopping"))
            self._searches[request] = BeamSearch(self.width(request), early)

    def _new(self, score: float, length: int) -> int:
        self._next_id += 1
        self.scores[self._next_id - 1], self.lengths[self._next_id - 1] = score, length
        return self._next_id - 1

    def width(self, request: int) -> int:
        return int(self.case.requests[request].get("n", 1))

    def is_search(self, request: int) -> bool:
        return bool(self.case.requests[request].get("beam")) and self.width(request) > 1

    def asks_always(self, request: int) -> bool:
        return True

    def step(self, request: int, is_prompt: bool, is_last: bool) -> Step:
        samples = self._samples[self.case.requests[request]["id"]].pop()
        places = range(len(self.running[request]))
        candidates = [self._candidates(request, place, samples) for place in places]
        if self.is_search(request):
            step, going = self._searches[request].select(candidates)
            self.running[request] = [candidate.name for candidate in going]
            return step
        forked = [child for mine in candidates for child in mine[:-1] if not child.is_finished]
        stays = [mine[-1] for mine in candidates if mine]
        self.running[request] = [c.name for c in (*stays, *forked) if not c.is_finished]
        return Step(
            dropped=[place for place, mine in enumerate(candidates) if not mine],
            forked=[child.parent for child in forked],
            ended=[candidate.parent for candidate in stays if candidate.is_finished],
        )

    def _candidates(
        self, request: int, place: int, samples: list[tuple[int, int, float]]
    ) -> list[Candidate]:
        """What was sampled for one sequence; the last of it continues the sequence itself."""
        parent, given = self.running[request][place], self.case.requests[request]
        before, length = self.scores[parent], self.lengths[parent] + 1
        is_full = length - given["prompt_len"] >= given["output_len"]
        is_full |= length >= longest_of(self.case)
        mine = [sample for sample in samples if sample[0] == parent]
        found = []
        for number, (_, token, logprob) in enumerate(mine):
            score = before + logprob
            name = parent if number == len(mine) - 1 else self._new(score, length)
            self.scores[name], self.lengths[name] = score, length
            ranked = score / (length - (token == EOS))
            found.append(Candidate(place, ranked, token == EOS or is_full, name))
        return found


class Replay:
    """A case on its way: ids are the engine's, rows and request numbers ours."""

    def __init__(self, case: Case, allocator: PagedCow, scheduler: VllmV0) -> None:
        self.case, self.allocator, self.scheduler = case, allocator, scheduler
        self.ids = [request["id"] for request in case.requests]
        self.numbers = {name: i for i, name in enumerate(self.ids)}
        self.requests = requests_of(case)
        config, self.sequences = DEFAULTS | case.config, SequenceTable()
        num_slots = config["num_gpu_blocks"] * config["block_size"]
        allocator.bind(num_slots, self.sequences, longest_of(case))
        allocator.record_events(1 << 12)
        allocator.release_order = set  # the engine goes through a set of blocks
        self.recording = Recording(case)
        scheduler.bind_branches(self.recording)
        scheduler.bind(self.requests, self.sequences, allocator)
        self.refused: set[str] = set()
        self.clock = Clock(case.requests)

    def first_difference(self) -> Difference | None:
        for record in self.case.steps:
            found = self._difference_in(record)
            if found is not None:
                return found
        return None

    def _difference_in(self, record: Record) -> Difference | None:
        step, scheduler = record["step"], self.scheduler
        now = self.clock.at(step)
        for name in now["arrived"]:
            self._arrive(self.numbers[name], step)
        for names in (scheduler.admitted, scheduler.preempted, scheduler.returned):
            names.clear()
        try:
            is_computing = scheduler.step(step)
        except SwapSpaceError:
            ours = "RuntimeError" if record["error"] else "SwapSpaceError"
            return None if record["error"] else Difference(step, "error", None, ours)
        ours = now | (self._scheduled(step) if is_computing else self._nothing())
        if is_computing:
            scheduler.complete(np.array([step, step + 1]), 1)
        ours["after_update"] = self._state()
        self.refused |= {self.ids[request] for request in scheduler.reasons}
        for name in record.get("ignored", []):
            if name not in self.refused:
                return Difference(step, "ignored", name, sorted(self.refused))
        return self._compare(record, ours)

    def _arrive(self, request: int, step: int) -> None:
        self.recording.arrive(request)
        if self.scheduler.never_fits(self.requests)[request]:
            self.scheduler.reject(request, self.scheduler.refusal(request), step)
            self.refused.add(self.ids[request])
        else:
            self.scheduler.add(request)

    def _compare(self, record: Record, ours: Record) -> Difference | None:
        for field, mine in ours.items():
            theirs = record[field]
            if not field.startswith("after_"):
                if theirs != mine:
                    return Difference(record["step"], field, theirs, mine)
                continue
            for name, value in theirs.items():
                wanted = self._known(name, value) if isinstance(value, list) else value
                if wanted != mine[name]:
                    return Difference(record["step"], f"{field}.{name}", wanted, mine[name])
        return None

    def _known(self, name: str, value: list[Any]) -> list[Any]:
        """A recorded queue without the requests that were refused on arrival, and without ends."""
        if name not in {"waiting", "running", "swapped"}:
            return value
        found = []
        for request, sequences in value:
            if request not in self.refused:
                going = {k: v for k, v in sequences.items() if not v[0].startswith("FINISHED")}
                found.append([request, going])
        return found

    def _nothing(self) -> Record:
        events = self._events()
        return {"scheduled": [], "num_batched_tokens": 0, **events, "after_schedule": self._state()}

    def _scheduled(self, step: int) -> Record:
        scheduler, rows = self.scheduler, self.sequences.rows
        running = scheduler.running[: scheduler.num_running]
        counts = scheduler.counts.tolist()
        computing = [row for row, count in zip(running.tolist(), counts, strict=True) if count]
        served: dict[int, list[int]] = {}
        for row in computing:
            served.setdefault(rows.item(row, REQUEST), []).append(row)
        is_prompt = bool(scheduler.admitted)
        return {
            "prompt_run": is_prompt,
            "num_batched_tokens": len(computing) * max(counts),
            "scheduled": [
                [self.ids[request], list(self._names(request, mine))]
                for request, mine in served.items()
            ],
            **self._events(),
            "after_schedule": self._state(),
        }

    def _names(self, request: int, mine: list[int]) -> list[int]:
        group = self.scheduler._groups.get(request)
        rows = mine if group is None else group.rows
        ids = dict(zip(rows, self.recording.running[request], strict=True))
        return [ids[row] for row in mine]

    def _events(self) -> Record:
        found: Record = {"swap_in": [], "swap_out": [], "copy": {}}
        first_host = self.allocator.num_blocks
        for kind, block, new in self.allocator.events().tolist():
            if kind == COPIED:
                found["copy"].setdefault(block, []).append(new)
            elif kind == SWAPPED_OUT:
                found["swap_out"].append([block, new - first_host])
            elif kind == SWAPPED_IN:
                found["swap_in"].append([block - first_host, new])
        found["copy"] = [[block, new] for block, new in found["copy"].items()]
        return found

    def _state(self) -> Record:
        scheduler, allocator = self.scheduler, self.allocator
        running = scheduler.running[: scheduler.num_running].tolist()
        queues: dict[str, dict[int, list[int]]] = {"running": {}, "waiting": {}}
        for row in running:
            queues["running"].setdefault(self._request(row), []).append(row)
        for request in scheduler.waiting():
            group = scheduler._groups.get(request)
            rows = [scheduler._rows.get(request, -1)] if group is None else group.rows
            queues["waiting"][request] = rows
        queues["swapped"] = scheduler.swapped()
        counts = allocator.ref_counts()
        first_host = allocator.num_blocks
        return {
            **{name: self._queue(name, queue) for name, queue in queues.items()},
            "free_gpu": len(allocator.free_list()),
            "free_cpu": len(allocator.host_free_list()),
            "block_tables": self._tables([*queues["running"].items(), *queues["swapped"].items()]),
            "ref_counts": {
                self._block_name(block): counts.item(block)
                for block in np.flatnonzero(counts).tolist()
            },
            "gpu_free_list": allocator.free_list()[::-1].tolist(),
            "cpu_free_list": (allocator.host_free_list()[::-1] - first_host).tolist(),
        }

    def _request(self, row: int) -> int:
        return self.sequences.rows.item(row, REQUEST)

    def _queue(self, name: str, queue: dict[int, list[int]]) -> list[Any]:
        found = []
        for request, rows in queue.items():
            ids = self.recording.running[request]
            lengths = [
                self.sequences.rows.item(row, NUM_TOKENS)
                if row >= 0
                else self.case.requests[request]["prompt_len"]
                for row in rows
            ]
            entries = zip(ids, lengths, strict=True)
            status = name.upper()
            found.append([self.ids[request], {str(i): [status, n] for i, n in entries}])
        return found

    def _block_name(self, block: int) -> str:
        first_host = self.allocator.num_blocks
        return str(block) if block < first_host else f"c{block - first_host}"

    def _tables(self, queues: list[tuple[int, list[int]]]) -> dict[str, list[str]]:
        tables, size = {}, self.allocator.block_size
        for request, rows in queues:
            for name, row in zip(self.recording.running[request], rows, strict=True):
                table = self.allocator.block_table(row).tolist()
                names = [self._block_name(block) for block in table]
                num_blocks = -(-self.sequences.rows.item(row, NUM_COMPUTED) // size)
                tables[str(name)] = [names[i % len(names)] for i in range(num_blocks)]
        return tables
