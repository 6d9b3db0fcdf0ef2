"""Which tokens of prompts are equal: content as runs, not as words.

A run (source, start, length) is length tokens at consecutive offsets of a source. Two positions
hold the same token, in the same context, if source and offset are equal; nothing else is ever
compared. What a source is, is a matter of numbers:

    0          token ids: the offset is the id, so a run is a stretch of ids that grow by one
    1, 2, …    what a format names: a file's hashed blocks, a document, a system prompt
    -1, -2, …  what nobody shares: a request's own prompt text, and its output

Runs that continue each other are merged, so that equal content has one form, and matching costs
time for every run and not for every token.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

IntColumn = NDArray[np.int64]

TOKEN_IDS = 0

Run = tuple[int, int, int]
"""source, first offset in it, number of tokens"""
RunColumns = tuple[IntColumn, IntColumn, IntColumn, IntColumn]

Rows = TypeVar("Rows", int, IntColumn)  # one request, or a column of them


def own_prompt(request: Rows) -> Rows:
    """The source of what only this request's prompt contains."""
    return -2 * request - 1


def own_output(request: Rows) -> Rows:
    """The source of this request's output, where no other is named: offset 0 is its first token."""
    return -2 * request - 2


@dataclass(frozen=True, eq=False)
class Runs:
    """A list of runs for each request.

    Runs first_run[i] to first_run[i + 1] are those of request i: first_run has one cell more than
    there are requests; source, start and length have one a run.
    """

    first_run: IntColumn
    source: IntColumn
    start: IntColumn
    length: IntColumn

    def __len__(self) -> int:
        return len(self.first_run) - 1

    def runs(self, request: int) -> list[Run]:
        """The runs of a request, in order."""
        return [(source, start, length) for source, start, length in self.cells(request).tolist()]

    def cells(self, request: int) -> IntColumn:
        """The runs of a request as an array of shape (runs, 3)."""
        mine = slice(self.first_run[request], self.first_run[request + 1])
        return np.stack([self.source[mine], self.start[mine], self.length[mine]], axis=1)

    def num_tokens(self) -> IntColumn:
        """How many tokens the runs of each request are."""
        total = np.concatenate([[0], np.cumsum(self.length)])
        return np.diff(total[self.first_run])

    def run_columns(self) -> RunColumns:
        """first_run, source, start, length."""
        return self.first_run, self.source, self.start, self.length

    def taken(self, rows: IntColumn) -> RunColumns:
        """The columns of some requests, in the order of their indices."""
        counts = np.diff(self.first_run)[rows]
        first_run = np.concatenate([[0], np.cumsum(counts)])
        shift = np.repeat(self.first_run[:-1][rows] - first_run[:-1], counts)
        picked = np.arange(first_run[-1]) + shift
        return first_run, self.source[picked], self.start[picked], self.length[picked]


@dataclass(frozen=True, eq=False)
class Content(Runs):
    """The prompts of a trace as runs, and what their outputs are.

    An output is what outputs says of it, from its first token on; the rest of it is of the
    request's output_source, where offset k is the output's token k. A later prompt that contains
    the output has the same runs.
    """

    output_source: IntColumn
    outputs: Runs | None = None

    def prompt_tokens(self) -> IntColumn:
        """The length of each prompt."""
        return self.num_tokens()

    def output_runs(self, request: int, num_tokens: int) -> list[Run]:
        """The first num_tokens tokens of an output, however many it has."""
        known = [] if self.outputs is None else self.outputs.runs(request)
        rest = (int(self.output_source[request]), sum(run[2] for run in known), num_tokens)
        return list(first_tokens([*known, rest], num_tokens))

    def take(self, rows: IntColumn) -> Content:
        """The content of some requests, in the order of their indices."""
        outputs = None if self.outputs is None else Runs(*self.outputs.taken(rows))
        return Content(*self.taken(rows), self.output_source[rows], outputs)

    def filled(self) -> Content:
        """With one token of its own in every prompt that has none."""
        counts = np.diff(self.first_run)
        empty = np.flatnonzero(counts == 0)
        lowest = min(self.source.min(initial=0), self.output_source.min(initial=0))
        places = self.first_run[empty]
        return Content(
            np.concatenate([[0], np.cumsum(np.maximum(counts, 1))]),
            np.insert(self.source, places, lowest - 1 - np.arange(len(empty))),
            np.insert(self.start, places, 0),
            np.insert(self.length, places, 1),
            self.output_source,
            self.outputs,
        )

    def columns(self) -> tuple[IntColumn, ...]:
        """All arrays, for a hash or a file."""
        outputs = () if self.outputs is None else self.outputs.run_columns()
        return *self.run_columns(), self.output_source, *outputs


class ContentBuilder:
    """Collects the runs of one prompt after the other."""

    def __init__(self) -> None:
        self._cells: list[IntColumn] = []  # shape (runs, 3) a prompt
        self._output_sources: list[int] = []
        self._sources: dict[Hashable, int] = {}

    def __len__(self) -> int:
        return len(self._cells)

    def source(self, name: Hashable) -> int:
        """The number of a named source; the same for the same name."""
        return self._sources.setdefault(name, len(self._sources) + 1)

    def add(self, runs: Sequence[Run], prompt_tokens: int, output_source: int | None = None) -> int:
        """Take a prompt; return its index.

        What the runs leave of prompt_tokens at the end is the request's own. Raises ValueError,
        with the end of a sentence about the row, if they are longer.
        """
        return self.add_cells(np.array(runs, np.int64).reshape(-1, 3), prompt_tokens, output_source)

    def add_blocks(
        self, ids: Sequence[int], block_size: int, prompt_tokens: int, name: Hashable
    ) -> int:
        """Take a prompt that is a list of blocks of block_size tokens; return its index.

        Equal ids of one name are equal blocks. The last block may be partial: the first tokens
        of it. What the blocks do not cover is the request's own.
        """
        blocks = np.array(ids, np.int64)
        cells = np.empty((len(blocks), 3), np.int64)
        cells[:, 0] = self.source(name)
        cells[:, 1] = blocks * block_size
        cells[:, 2] = block_size
        beyond = len(blocks) * block_size - prompt_tokens
        if len(blocks) and 0 < beyond < block_size:
            cells[-1, 2] -= beyond
        return self.add_cells(cells, prompt_tokens)

    def add_cells(
        self, cells: IntColumn, prompt_tokens: int, output_source: int | None = None
    ) -> int:
        """`add` for runs as an array of shape (runs, 3)."""
        request = len(self._cells)
        covered = int(cells[:, 2].sum())
        if covered > prompt_tokens:
            raise ValueError(
                f"has content for {covered} tokens, its prompt has {prompt_tokens}; "
                "accepted: at most the prompt"
            )
        if covered < prompt_tokens:
            rest = [[own_prompt(request), covered, prompt_tokens - covered]]
            cells = np.concatenate([cells, np.array(rest, np.int64)])
        self._cells.append(merged(cells))
        self._output_sources.append(own_output(request) if output_source is None else output_source)
        return request

    def build(self) -> Content:
        """Everything taken so far."""
        runs = as_runs(self._cells)
        return Content(*runs.run_columns(), np.array(self._output_sources, np.int64))


def as_runs(cells: Sequence[IntColumn]) -> Runs:
    """Runs from an array of shape (runs, 3) for each request."""
    counts = [len(mine) for mine in cells]
    first_run = np.concatenate([[0], np.cumsum(counts, dtype=np.int64)])
    columns = np.concatenate([np.empty((0, 3), np.int64), *cells]).T
    return Runs(first_run, *(np.ascontiguousarray(column) for column in columns))


def first_tokens(runs: Iterable[Run], num_tokens: int) -> Iterator[Run]:
    """The first num_tokens tokens of runs."""
    for source, start, length in runs:
        if num_tokens <= 0:
            return
        yield source, start, min(length, num_tokens)
        num_tokens -= length


def merged(cells: IntColumn) -> IntColumn:
    """Runs, shape (runs, 3), with those that continue each other made one, and none empty."""
    cells = cells[cells[:, 2] > 0]
    if len(cells) < 2:
        return cells
    source, start, length = cells.T
    breaks = np.ones(len(cells), np.bool_)
    breaks[1:] = (source[1:] != source[:-1]) | (start[1:] != start[:-1] + length[:-1])
    firsts = np.flatnonzero(breaks)
    total = np.add.reduceat(length, firsts)
    return np.stack([source[firsts], start[firsts], total], axis=1)


def token_runs(token_ids: IntColumn) -> IntColumn:
    """Real token ids as runs, shape (runs, 3)."""
    ones = np.ones_like(token_ids)
    return merged(np.stack([ones * TOKEN_IDS, token_ids, ones], axis=1))
