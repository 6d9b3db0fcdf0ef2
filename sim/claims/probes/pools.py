"""A pool that sequences enter, grow in and leave one by one: how probes drive real allocators."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from sim.allocators import ALLOCATORS, Admission, Allocator
from sim.sequence import (
    NUM_COMPUTED,
    NUM_TOKENS,
    IntArray,
    Limits,
    SequenceTable,
    new_requests,
)
from workloads.content import ContentBuilder, Run
from workloads.sequences import SequenceContent


def made(kind: str, **knobs: Any) -> Allocator:
    """An allocator of a kind, not bound yet. Raises KeyError, TypeError or ValueError."""
    return ALLOCATORS[kind](**knobs)


def made_of(config: Mapping[str, Any]) -> Allocator:
    """An allocator as YAML writes it, {kind: …}."""
    knobs = dict(config)
    return made(knobs.pop("kind"), **knobs)


class Pool:
    """num_slots slots under one allocator, for sequences of at most max_model_len tokens.

    requests are (prompt, output, max_tokens); an output says when a request stops, and its last
    token is never written. held lists the rows that hold memory, in order of entry.
    """

    def __init__(self, allocator: Allocator, num_slots: int, max_model_len: int) -> None:
        self.allocator = allocator
        self.sequences = SequenceTable()
        self.max_model_len = max_model_len
        allocator.bind(num_slots, self.sequences, max_model_len)
        self.held: list[int] = []
        self.num_admitted = 0

    @property
    def rows(self) -> IntArray:
        """The sequence table as it is now."""
        return self.sequences.rows

    @property
    def num_blocks(self) -> int:
        """Blocks of the pool, 0 for memory without blocks."""
        return self.allocator.num_blocks or 0

    def know(self, prompts: Sequence[Sequence[Run]], outputs: Sequence[int]) -> None:
        """Say what the prompts of all requests to come consist of, in their order."""
        builder = ContentBuilder()
        for runs in prompts:
            builder.add(runs, sum(length for _, _, length in runs))
        self.allocator.bind_content(SequenceContent(builder.build()))
        lengths = [sum(length for _, _, length in runs) for runs in prompts]
        self._known = self._requests(lengths, outputs, outputs)

    def _requests(
        self, prompts: Sequence[int], outputs: Sequence[int], max_tokens: Sequence[int]
    ) -> IntArray:
        """Rows for requests that all come at once."""
        columns = [np.array(column, np.int64) for column in (prompts, outputs, max_tokens)]
        limits = Limits(self.max_model_len, columns[2])
        return new_requests(np.zeros_like(columns[0]), columns[0], columns[1], limits)

    def open(self, prompt: int, output: int, max_tokens: int | None = None) -> int:
        """A row for a request that holds nothing yet."""
        most = output if max_tokens is None else max_tokens
        return self.sequences.open(self._requests([prompt], [output], [most]), 0)

    def open_known(self, request: int) -> int:
        """A row for a request of `know` that holds nothing yet."""
        return self.sequences.open(self._known, request)

    def enter(self, prompt: int, output: int = 1, max_tokens: int | None = None) -> int | None:
        """Admit a request with its whole prompt: its row, or None if there is no memory."""
        row = self.open(prompt, output, max_tokens)
        if self.admit(row) is Admission.OK:
            return row
        self.sequences.close(row)
        return None

    def enter_known(self, request: int) -> int:
        """Admit a request of `know`: its row. Raises ValueError if there is no memory."""
        row = self.open_known(request)
        if self.admit(row) is not Admission.OK:
            raise ValueError(f"request {request} does not fit")
        return row

    def admit(self, row: int) -> Admission:
        """Admit a row and write its prompt, if that fits."""
        lacks = self.rows.item(row, NUM_TOKENS) - self.allocator.lookup(row)
        answer = self.allocator.admit(row, lacks)
        if answer is Admission.OK:
            self.held.append(row)
            self.num_admitted += 1
        return answer

    def fork(self, parents: Sequence[int], ending: Sequence[int]) -> list[int]:
        """Sequences that begin as copies of the parents; then the ending rows give up theirs."""
        children = [self.sequences.fork(parent) for parent in parents]
        self.allocator.fork(*(np.array(rows, np.int64) for rows in (parents, children, ending)))
        self.held += children
        self._close(ending)
        return children

    def write(self, row: int, count: int) -> bool:
        """Write count generated tokens; whether there was memory for them."""
        self.sequences.rows[row, NUM_TOKENS] += count
        if self.allocator.append(np.array([row]), np.array([count])) == 1:
            return True
        self.sequences.rows[row, NUM_TOKENS] -= count
        return False

    def write_each(self, rows: Sequence[int]) -> bool:
        """Let each row write a token; whether all could."""
        self.rows[list(rows), NUM_TOKENS] += 1
        ones = np.ones(len(rows), np.int64)
        return self.allocator.append(np.array(rows, np.int64), ones) == len(rows)

    def leave(self, *rows: int) -> None:
        """Requests end, and their memory is free."""
        self.allocator.free(np.array(rows, np.int64))
        self._close(rows)

    def _close(self, rows: Sequence[int]) -> None:
        for row in rows:
            self.sequences.close(row)
            self.held.remove(row)

    def table(self, row: int, block_size: int) -> list[int]:
        """The blocks that a row holds, in order."""
        ranges = self.allocator.held_ranges(row)
        return [int(start) // block_size for start, _ in ranges.tolist()]

    def num_tokens(self, row: int) -> int:
        """Tokens that the row has written."""
        return self.sequences.rows.item(row, NUM_COMPUTED)

    def num_slots(self, row: int) -> int:
        """Slots that the row holds."""
        return int(self.allocator.held_ranges(row)[:, 1].sum())

    def waste(self, row: int) -> int:
        """Slots that the row holds and has not written."""
        return self.num_slots(row) - self.num_tokens(row)

    def check(self) -> None:
        """Recount everything. Raises ConservationError."""
        self.allocator.check(np.array(self.held, np.int64))


def histories(seeds: int, steps: int) -> Iterator[tuple[random.Random, int]]:
    """(random numbers, steps to take) of several random histories."""
    for seed in range(seeds):
        yield random.Random(seed), steps
