"""A pool that sequences enter, grow in and leave one by one: an allocator, driven by hand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from sim.allocators.base import Admission, Allocator
from sim.allocators.terms import KVUsage
from sim.library.plain import made_part
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


class Pool:
    """num_slots slots under one allocator, for sequences of at most max_model_len tokens.

    allocator is an object, or what an experiment would say: {"kind": "paged", "block_size": 16}.
    A sequence is known by its row. An output says when a request stops; its last token is never
    written. held lists the rows that hold memory, in order of entry. Raises ConfigError if there
    is no such allocator, ValueError if it cannot use the pool.

    >>> import sim
    >>> pool = sim.Pool({"kind": "paged", "block_size": 16}, num_slots=1024)
    >>> row = pool.enter(prompt=47, output=20)
    >>> pool.block_table(row)
    [0, 1, 2]
    >>> pool.write(row, 2)
    True
    >>> pool.block_table(row), pool.usage().free
    ([0, 1, 2, 3], 960)
    """

    def __init__(
        self,
        allocator: Allocator | Mapping[str, Any],
        num_slots: int,
        max_model_len: int = 2048,
    ) -> None:
        self.allocator: Allocator = made_part("allocator", allocator)
        self.sequences = SequenceTable()
        self.max_model_len = max_model_len
        self.allocator.bind(num_slots, self.sequences, max_model_len)
        self.held: list[int] = []
        self.num_admitted = 0

    @property
    def rows(self) -> IntArray:
        """The sequence table as it is now (columns: see sim.parts)."""
        return self.sequences.rows

    @property
    def num_blocks(self) -> int:
        """Blocks of the pool, 0 for memory without blocks."""
        return self.allocator.num_blocks or 0

    def know(self, prompts: Sequence[Sequence[Run]], outputs: Sequence[int]) -> None:
        """Say what the prompts of all requests to come consist of, in their order.

        A prompt is a list of runs (source, start, length): tokens are equal where source and
        place in it are (see workloads.content).
        """
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

    def write(self, row: int, count: int = 1) -> bool:
        """Write count generated tokens; whether there was memory for them."""
        self.sequences.rows[row, NUM_TOKENS] += count
        if self.allocator.append(np.array([row]), np.array([count])) == 1:
            return True
        self.sequences.rows[row, NUM_TOKENS] -= count
        return False

    def fork(self, row: int, copies: int = 1) -> list[int]:
        """Begin sequences with all tokens of a row, as samples of one prompt do: their rows.

        What is shared is up to the allocator. Raises ValueError if memory runs out, or the
        allocator knows no forks.
        """
        if self.allocator.forks == "no":
            raise ValueError(f"{self.allocator.kind} cannot fork")
        children = self.fork_each([row] * copies, [])
        if not children:
            raise ValueError(f"{copies} copies of row {row} do not fit")
        return children

    def fork_each(self, parents: Sequence[int], ending: Sequence[int]) -> list[int]:
        """Sequences that begin as copies of the parents; then the ending rows give up theirs.

        All are of one request. None, and nothing is changed, if memory runs out.
        """
        children = [self.sequences.fork(parent) for parent in parents]
        groups = (np.array(rows, np.int64) for rows in (parents, children, ending))
        if not self.allocator.fork(*groups):
            for child in children:
                self.sequences.close(child)
            return []
        self.held += children
        self._close(ending)
        return children

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

    def usage(self) -> KVUsage:
        """Where the slots are: six numbers that add to the pool."""
        return self.allocator.usage()

    def num_tokens(self, row: int) -> int:
        """Tokens that the row has written."""
        return self.sequences.rows.item(row, NUM_COMPUTED)

    def num_slots(self, row: int) -> int:
        """Slots that the row holds."""
        return int(self.allocator.held_ranges(row)[:, 1].sum())

    def waste(self, row: int) -> int:
        """Slots that the row holds and has not written."""
        return self.num_slots(row) - self.num_tokens(row)

    def block_table(self, row: int) -> list[int]:
        """The physical blocks of a row, in logical order; of contiguous memory the first slot."""
        ranges = self.allocator.held_ranges(row)
        if self.allocator.num_blocks is None:
            return [int(start) for start, _ in ranges.tolist()]
        return [start // size for start, size in ranges.tolist()]

    def table(self) -> pd.DataFrame:
        """Who holds what: a row for each piece of memory of each sequence.

        Columns: row, index in the block table, block, first_slot, num_slots, num_written,
        ref_count (how many sequences hold it).
        """
        found = []
        for row in self.held:
            left, blocks = self.num_tokens(row), self.block_table(row)
            for index, (start, size) in enumerate(self.allocator.held_ranges(row).tolist()):
                written = max(0, min(size, left - index * size))
                found.append((row, index, blocks[index], start, size, written))
        columns = ["row", "index", "block", "first_slot", "num_slots", "num_written"]
        table = pd.DataFrame(found, columns=columns)
        table["ref_count"] = table.groupby("first_slot")["row"].transform("size")
        return table

    def check(self) -> None:
        """Recount everything. Raises ConservationError."""
        self.allocator.check(np.array(self.held, np.int64))
