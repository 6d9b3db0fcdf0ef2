"""A pool that sequences enter, grow in and leave one by one: an allocator, driven by hand."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from sim.allocators.base import Admission, Allocator
from sim.allocators.terms import KVUsage
from sim.config.yaml_nodes import ConfigError
from sim.library.plain import listed, made_part, sizes_of, whole
from sim.library.pool_rows import PoolRows, runs_of
from sim.sequence import (
    FINAL_TOKENS,
    NUM_COMPUTED,
    NUM_TOKENS,
    REQUEST,
    IntArray,
    Limits,
    SequenceTable,
    new_requests,
)
from workloads.content import ContentBuilder, Run
from workloads.sequences import SequenceContent
from workloads.trace import MAX_TOKENS

MAX_COPIES = 1 << 16  # of one row at a time


class Pool:
    """num_slots slots under one allocator, for sequences of at most max_model_len tokens.

    allocator is an object, or what an experiment would say: {"kind": "paged", "block_size": 16}.
    An object serves one pool: given to another, it has forgotten the first. A sequence is known
    by its row, from `enter` or `open` until it leaves. An output says when a request stops; its
    last token is never written. held lists the rows that hold memory, in order of entry. Raises
    ConfigError if there is no such allocator or a size is none, ValueError if the allocator cannot
    use the pool. Every method raises ValueError for a row that is not in the pool and a number
    that cannot be, and has then changed nothing.

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
        problems: list[str] = []
        num_slots, self.max_model_len = sizes_of(num_slots, max_model_len, problems.append)
        if problems:
            raise ConfigError(problems)
        self.allocator: Allocator = made_part("allocator", allocator)
        self.sequences = SequenceTable()
        self.allocator.bind(num_slots, self.sequences, self.max_model_len)
        self._rows = PoolRows()
        self.held: list[int] = self._rows.held
        self.num_admitted = 0
        self._known: IntArray | None = None
        self._asked: IntArray = self._requests([1], [1], [1])  # requests of `open`, and room
        self._num_opened = 0

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

        A prompt is a list of runs (source, start, length), from source 0 on: tokens are equal where
        source and place in it are (see workloads.content). Raises ValueError unless the pool is
        unused, each prompt has a token, and there are as many outputs.
        """
        if self._num_opened or self._known is not None:
            raise ValueError("know: the pool has been used; accepted: once, before the first row")
        builder, lengths = ContentBuilder(), []
        for number, runs in enumerate(listed("prompts", prompts, "lists of runs")):
            checked = runs_of(f"prompts.{number}", runs)
            lengths.append(sum(length for _, _, length in checked))
            self._check_prompt(f"prompts.{number}", lengths[-1])
            builder.add(checked, lengths[-1])
        stops = listed("outputs", outputs, "a whole number for each prompt")
        if len(stops) != len(lengths) or not lengths:
            raise ValueError(f"outputs: must be as many as prompts, {len(lengths)}, and at least 1")
        stops = [whole("outputs", output, 1, MAX_TOKENS) for output in stops]
        self.allocator.bind_content(SequenceContent(builder.build()))
        self._known = self._requests(lengths, stops, stops)

    def _check_prompt(self, key: str, prompt: Any) -> int:
        """A length that leaves room for one token of output. Raises ValueError."""
        if self.max_model_len < 2:
            raise ValueError(f"{key}: max_model_len is 1, so there is no room for an output")
        return whole(key, prompt, 1, self.max_model_len - 1)

    def _requests(
        self, prompts: Sequence[int], outputs: Sequence[int], max_tokens: Sequence[int]
    ) -> IntArray:
        """Rows for requests that all come at once."""
        columns = [np.array(column, np.int64) for column in (prompts, outputs, max_tokens)]
        limits = Limits(self.max_model_len, columns[2])
        return new_requests(np.zeros_like(columns[0]), columns[0], columns[1], limits)

    def open(self, prompt: int, output: int, max_tokens: int | None = None) -> int:
        """A row for a request that holds nothing yet; nobody else has its tokens.

        prompt and output are tokens, max_tokens what the allocator expects of the output: all of
        it, if that is left out. Where max_model_len is shorter, it ends there. Raises ValueError.
        """
        if self._known is not None:
            raise ValueError("open: the pool knows all its requests; accepted: open_known")
        most = output if max_tokens is None else max_tokens
        lengths = [self._check_prompt("prompt", prompt), whole("output", output, 1, MAX_TOKENS)]
        lengths.append(whole("max_tokens", most, 1, MAX_TOKENS))
        number = self._num_opened  # each has one of its own, by which allocators tell content
        if number == len(self._asked):
            self._asked = np.concatenate([self._asked, np.zeros_like(self._asked)])
        self._asked[number] = self._requests(*([length] for length in lengths))[0]
        return self._opened_row(self._asked, number)

    def open_known(self, request: int) -> int:
        """A row for a request of `know` that holds nothing yet. Raises ValueError."""
        if self._known is None:
            raise ValueError("open_known: no request is known; accepted: after know")
        return self._opened_row(self._known, whole("request", request, 0, len(self._known) - 1))

    def _opened_row(self, requests: IntArray, request: int) -> int:
        row = self.sequences.open(requests, request)
        self._rows.opened.add(row)
        self._num_opened += 1
        return row

    def enter(self, prompt: int, output: int = 1, max_tokens: int | None = None) -> int | None:
        """Admit a request with its whole prompt: its row, or None if there is no memory.

        Raises ValueError as `open`.
        """
        row = self.open(prompt, output, max_tokens)
        return row if self._admit_or_close(row) else None

    def enter_known(self, request: int) -> int:
        """Admit a request of `know`: its row. Raises ValueError if there is no memory."""
        row = self.open_known(request)
        if not self._admit_or_close(row):
            raise ValueError(f"request {request} does not fit")
        return row

    def _admit_or_close(self, row: int) -> bool:
        """Admit a row that has just been opened; without memory it is gone again."""
        try:
            return self.admit(row) is Admission.OK
        finally:
            if row in self._rows.opened:
                self._close([row])

    def admit(self, row: int) -> Admission:
        """Admit a row that was opened, and write its prompt, if that fits. Raises ValueError."""
        row = self._rows.waiting(row)
        lacks = self.rows.item(row, NUM_TOKENS) - self.allocator.lookup(row)
        answer = self.allocator.admit(row, lacks)
        if answer is Admission.OK:
            self._rows.admitted(row)
            self.num_admitted += 1
        return answer

    def write(self, row: int, count: int = 1) -> bool:
        """Write count generated tokens, 0 or more; whether there was memory for them.

        Raises ValueError behind the output's last token but one.
        """
        return self._written([self._rows.holding(row)], count)

    def write_each(self, rows: Sequence[int]) -> bool:
        """Let each row write a token; whether all could. Raises ValueError as `write`.

        The first that could not, and those behind it, have written nothing.
        """
        return self._written(self._rows.each(rows), 1)

    def _written(self, rows: list[int], count: int) -> bool:
        """Let rows write tokens, in order until memory runs out; whether all could."""
        for row in rows:
            room = self.rows.item(row, FINAL_TOKENS) - 1 - self.rows.item(row, NUM_COMPUTED)
            if whole("count", count, 0, MAX_TOKENS) > room:
                left = "the last token of an output is never written"
                raise ValueError(f"row {row} has {room} tokens to write, not {count}: {left}")
        array, served = np.array(rows, np.int64), 0
        self.rows[array, NUM_TOKENS] += count
        try:
            served = self.allocator.append(array, np.full(len(rows), count, np.int64))
        finally:
            self.rows[array[served:], NUM_TOKENS] -= count
        return served == len(rows)

    def fork(self, row: int, copies: int = 1) -> list[int]:
        """Begin sequences with all tokens of a row, as samples of one prompt do: their rows.

        What is shared is up to the allocator. Raises ValueError if memory runs out, or the
        allocator knows no forks.
        """
        self._check_forks()
        copies = whole("copies", copies, 1, MAX_COPIES)
        children = self.fork_each([self._rows.holding(row)] * copies, [])
        if not children:
            raise ValueError(f"{copies} copies of row {row} do not fit")
        return children

    def fork_each(self, parents: Sequence[int], ending: Sequence[int]) -> list[int]:
        """Sequences that begin as copies of the parents; then the ending rows give up theirs.

        None, and nothing is changed, if memory runs out. Raises ValueError unless all rows are of
        one request and have as many tokens, or if the allocator knows no forks.
        """
        self._check_forks()
        parents = [self._rows.holding(row) for row in listed("parents", parents, "a list of rows")]
        ending = self._rows.each(ending)
        alike = self.rows[[*parents, *ending]][:, [REQUEST, NUM_COMPUTED]]
        if len(np.unique(alike, axis=0)) > 1:
            raise ValueError(f"rows {[*parents, *ending]} are not of one request and one length")
        children = [self.sequences.fork(parent) for parent in parents]
        groups = (np.array(rows, np.int64) for rows in (parents, children, ending))
        has_room = False
        try:
            has_room = self.allocator.fork(*groups)
        finally:
            if not has_room:
                self._close(children)
        if not has_room:
            return []
        self.held += children
        self._close(ending)
        return children

    def _check_forks(self) -> None:
        if self.allocator.forks == "no":
            raise ValueError(f"{self.allocator.kind} cannot fork")

    def leave(self, *rows: int) -> None:
        """Requests end, and their memory is free; rows that hold nothing are given up.

        Raises ValueError.
        """
        leaving = self._rows.each(rows, must_hold=False)
        holding = [row for row in leaving if row not in self._rows.opened]
        if holding:
            self.allocator.free(np.array(holding, np.int64))
        self._close(leaving)

    def _close(self, rows: Iterable[int]) -> None:
        for row in rows:
            self.sequences.close(row)
            self._rows.closed(row)

    def usage(self) -> KVUsage:
        """Where the slots are: six numbers that add to the pool."""
        return self.allocator.usage()

    def num_tokens(self, row: int) -> int:
        """Tokens that the row has written."""
        return self.rows.item(self._rows.known(row), NUM_COMPUTED)

    def num_slots(self, row: int) -> int:
        """Slots that the row holds."""
        return int(self.allocator.held_ranges(self._rows.known(row))[:, 1].sum())

    def waste(self, row: int) -> int:
        """Slots that the row holds and has not written."""
        return self.num_slots(row) - self.num_tokens(row)

    def block_table(self, row: int) -> list[int]:
        """The physical blocks of a row, in logical order; of contiguous memory the first slot."""
        pieces = self._pieces(self._rows.known(row))
        if self.allocator.num_blocks is None:
            return [start for start, _ in pieces]
        return [start // size for start, size in pieces]

    def _pieces(self, row: int) -> list[tuple[int, int]]:
        """(first slot, slots) of each block of a row, or of each range of contiguous memory."""
        ranges: list[list[int]] = self.allocator.held_ranges(row).tolist()
        if self.allocator.num_blocks is None:
            return [(start, count) for start, count in ranges]
        found = []
        for start, count in ranges:  # neighbouring blocks may be one range
            size: int = getattr(self.allocator, "block_size", count)
            found += [(place, size) for place in range(start, start + count, size)]
        return found

    def table(self) -> pd.DataFrame:
        """Who holds what: a row for each piece of memory of each sequence.

        Columns: row, index in the block table, block, first_slot, num_slots, num_written,
        ref_count (how many sequences hold it).
        """
        found = []
        for row in self.held:
            left, blocks = self.num_tokens(row), self.block_table(row)
            for index, (start, size) in enumerate(self._pieces(row)):
                written = max(0, min(size, left))
                left -= size
                found.append((row, index, blocks[index], start, size, written))
        columns = ["row", "index", "block", "first_slot", "num_slots", "num_written"]
        table = pd.DataFrame(found, columns=columns)
        table["ref_count"] = table.groupby("first_slot")["row"].transform("size")
        return table

    def check(self) -> None:
        """Recount everything. Raises ConservationError."""
        self.allocator.check(np.array(self.held, np.int64))
