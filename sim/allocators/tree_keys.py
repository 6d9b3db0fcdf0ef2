"""Content as the radix tree sees it: runs, compared and cut at any token.

A step of Python for every run is dear where content is token ids, whose runs are a token long; so
long stretches of equal runs are compared as lists, and ends say where a token is.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Hashable, Sequence
from itertools import accumulate
from operator import itemgetter
from typing import NamedTuple

from workloads.content import Run

FEW = 4  # runs that are compared one by one

_length = itemgetter(2)


class Key(NamedTuple):
    """The first length tokens of runs, which may go on. Two namespaces share nothing.

    ends[i] is the number of tokens up to the end of run i.
    """

    runs: list[Run]
    ends: list[int]
    length: int
    namespace: int = 0

    @classmethod
    def of(cls, runs: list[Run], length: int, namespace: int = 0) -> Key:
        return cls(runs, ends_of(runs), length, namespace)


def ends_of(runs: Sequence[Run]) -> list[int]:
    """The number of tokens up to the end of each run."""
    return list(accumulate(map(_length, runs)))


def first_block(runs: Sequence[Run], index: int, used: int, size: int) -> Hashable:
    """A name of the block behind used tokens of runs[index], the same if all its tokens are."""
    source, start, length = runs[index]
    if length - used >= size:
        return source, start + used
    parts: list[int] = []
    missing = size
    while missing:
        source, start, length = runs[index]
        count = min(length - used, missing)
        parts += (source, start + used, count)
        missing -= count
        index, used = index + 1, 0
    return tuple(parts)


def common(known: list[Run], key: Key, index: int, used: int) -> tuple[int, int, int]:
    """How far known and what follows behind used tokens of run number index are equal.

    Returns the tokens, and the run and its used tokens behind them. Both are in the one form of
    their content, so that runs of different lengths end what is equal.
    """
    runs = key.runs
    i = matched = 0
    has_jumped = False
    while i < len(known) and index < len(runs):
        if used == 0 and len(known) - i > FEW and not has_jumped:
            has_jumped = True
            same = _equal_runs(known, i, runs, index)
            if same:
                matched += key.ends[index + same - 1] - (key.ends[index - 1] if index else 0)
                i, index = i + same, index + same
                continue
        source, start, length = known[i]
        its_source, its_start, its_length = runs[index]
        if its_source != source or its_start + used != start:
            break
        left = its_length - used
        if left > length:
            matched, used = matched + length, used + length
        else:
            matched, index, used = matched + left, index + 1, 0
            if left < length:
                break
        i += 1
    return matched, index, used


def _equal_runs(known: list[Run], i: int, runs: list[Run], index: int) -> int:
    """How many runs from known[i] and runs[index] on are the same; halves what is not all equal."""
    most = min(len(known) - i, len(runs) - index)
    if known[i : i + most] == runs[index : index + most]:
        return most
    same, more = 0, most
    while more - same > 1:
        middle = (same + more) // 2
        if known[i + same : i + middle] == runs[index + same : index + middle]:
            same = middle
        else:
            more = middle
    return same


def cut(runs: list[Run], ends: list[int], begin: int, end: int) -> list[Run]:
    """Tokens begin to end of runs, at least one."""
    first, last = bisect_right(ends, begin), bisect_right(ends, end - 1)
    parts = runs[first : last + 1]
    source, start, length = parts[-1]
    parts[-1] = source, start, length - (ends[last] - end)
    source, start, length = parts[0]
    before = begin - (ends[first - 1] if first else 0)
    parts[0] = source, start + before, length - before
    return parts
