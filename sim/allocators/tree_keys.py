"""Content as the radix tree sees it: runs, compared and cut at any token."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import NamedTuple

from workloads.content import Run


class Key(NamedTuple):
    """The first length tokens of runs, which may go on; keys of two namespaces share nothing."""

    runs: Sequence[Run]
    length: int
    namespace: int = 0


def first_block(runs: Sequence[Run], index: int, used: int, size: int) -> Hashable:
    """What stands for the block that begins behind used tokens of a run: equal if, and only if,
    all its tokens are."""
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


def common(
    known: Sequence[Run], runs: Sequence[Run], index: int, used: int
) -> tuple[int, int, int]:
    """How far known and what follows behind used tokens of runs[index] are equal.

    Returns the tokens, and the index and the used tokens behind them. Both are in the one form of
    their content, so that runs of different lengths end what is equal.
    """
    matched = 0
    for source, start, length in known:
        if index == len(runs):
            break
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
    return matched, index, used


def cut(runs: Sequence[Run], begin: int, end: int) -> list[Run]:
    """Tokens begin to end of runs."""
    parts = []
    for source, start, length in runs:
        if begin < length:
            first = max(begin, 0)
            parts.append((source, start + first, min(length, end) - first))
        begin, end = begin - length, end - length
        if end <= 0:
            break
    return parts
