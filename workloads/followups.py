"""Outputs that the next turn shows: content of prompts, from links between turns.

A follow-up's prompt is the prompt of the turn before, its output, and what was said then. So where
a file says which turn a request follows, the follow-up's tokens behind the earlier prompt are the
earlier output, and equal content stays equal wherever the file's ids say so: in siblings, in later
turns that send the history again.

Ids of blocks hide a little of that. The last block of the earlier prompt is partial and has an id
of its own; in the follow-up the same tokens begin a block that the output fills, with another id.
The link says that they are the same tokens, and so they get one name here. That never makes two
different whole blocks equal: prompts share the blocks that their ids say, and at most part of one
more.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from workloads.content import Content, Run, as_runs, first_tokens, merged
from workloads.rows import Rows

SHORT = "follow-ups too short for the turn before and its output: taken as new prompts"
OTHER = "follow-ups that begin unlike the turn before: taken as new prompts"

Token = tuple[int, int]
"""source, offset"""


def link_outputs(rows: Rows, block_size: int) -> None:
    """Let the content of outputs be what the rows that follow show of them.

    Blocks of block_size tokens have ids; a partial one at the end of a prompt has its own. Where
    several rows follow one, the first of them in the file shows its output.
    """
    assert rows.content is not None
    links = _Links(rows, block_size)
    followed: dict[int, int] = {}
    for child in np.flatnonzero(rows.fields["parent"] >= 0).tolist():
        if links.take(child):
            followed.setdefault(links.parents[child], child)
    prompts = links.names.renamed(rows.content)
    outputs = [np.empty((0, 3), np.int64)] * len(rows)
    for parent, child in followed.items():
        known = prompts.runs(child)
        prompt, output = links.prompts[parent], links.outputs[parent]
        shown = list(first_tokens(after(known, prompt), output))
        outputs[parent] = np.array(shown, np.int64).reshape(-1, 3)
    rows.content = replace(prompts, outputs=as_runs(outputs))
    rows.has_output_identity = True
    rows.notes.update(links.notes)


class _Links:
    """The links between the rows, taken one by one."""

    def __init__(self, rows: Rows, block_size: int) -> None:
        assert rows.content is not None
        self.names = _Names()
        self.notes: Counter[str] = Counter()
        self.parents = rows.fields["parent"].tolist()
        self.prompts = rows.fields["prompt_tokens"].tolist()
        self.outputs = rows.fields["output_tokens"].tolist()
        self._content = rows.content
        self._block_size = block_size

    def take(self, child: int) -> bool:
        """Whether this row's prompt begins with its parent's prompt and output."""
        parent = self.parents[child]
        prompt = self.prompts[parent]
        if self.prompts[child] < prompt + self.outputs[parent]:
            self.notes[SHORT] += 1
            return False
        earlier, later = self._content.runs(parent), self._content.runs(child)
        whole = prompt - prompt % self._block_size
        if not begin_alike(earlier, later, whole):
            self.notes[OTHER] += 1
            return False
        if whole < prompt:
            ends = tokens(after(earlier, whole), prompt - whole)
            for one, other in zip(ends, tokens(after(later, whole), prompt - whole), strict=True):
                self.names.unite(one, other)
        return True


class _Names:
    """Which tokens are equal although their sources or offsets differ: a forest of sets."""

    def __init__(self) -> None:
        self._above: dict[Token, Token] = {}

    def name(self, token: Token) -> Token:
        """The one name of a token and all that are equal to it."""
        above = self._above.get(token, token)
        while above != token:
            self._above[token] = self._above.get(above, above)
            token, above = above, self._above[token]
        return token

    def unite(self, one: Token, other: Token) -> None:
        """Make two tokens equal; the first one's name stays."""
        kept, gone = self.name(one), self.name(other)
        if kept != gone:
            self._above[gone] = kept

    def renamed(self, content: Content) -> Content:
        """Content with one name for equal tokens."""
        offsets: dict[int, list[int]] = {}
        for source, offset in sorted(self._above):
            offsets.setdefault(source, []).append(offset)
        cells = [
            merged(np.array([*self._renamed(content.runs(i), offsets)], np.int64).reshape(-1, 3))
            for i in range(len(content))
        ]
        return Content(*as_runs(cells).run_columns(), content.output_source)

    def _renamed(self, runs: Iterable[Run], offsets: Mapping[int, Sequence[int]]) -> Iterator[Run]:
        for source, first, length in runs:
            inside = offsets.get(source, [])
            start, end = first, first + length
            for offset in inside[bisect_left(inside, start) : bisect_left(inside, end)]:
                yield source, start, offset - start
                yield *self.name((source, offset)), 1
                start = offset + 1
            yield source, start, end - start


def begin_alike(one: Iterable[Run], other: Iterable[Run], num_tokens: int) -> bool:
    """Whether the first num_tokens tokens of two prompts are equal."""
    return [*first_tokens(one, num_tokens)] == [*first_tokens(other, num_tokens)]


def after(runs: Iterable[Run], num_tokens: int) -> Iterator[Run]:
    """The runs without their first num_tokens tokens."""
    for source, start, length in runs:
        skipped = min(length, num_tokens)
        num_tokens -= skipped
        if skipped < length:
            yield source, start + skipped, length - skipped


def tokens(runs: Iterable[Run], num_tokens: int) -> list[Token]:
    """The first num_tokens tokens of runs, one by one."""
    first = first_tokens(runs, num_tokens)
    return [(source, start + k) for source, start, length in first for k in range(length)]
