"""Content cut into blocks of any size, each with a number that stands for it and all before it.

Two blocks have the same key if, and only if, they hold the same tokens behind the same tokens, in
the same namespace: keys are interned exactly, and no hash decides. The size of a block has nothing
to do with that of a trace's own hashed blocks: it may be smaller, larger, or not divide it.

Whole blocks of one run that are new together get consecutive keys: a stretch. Only its beginning
is looked up by content, so that the time is a step for every stretch, and not for every block.
"""

from __future__ import annotations

import itertools
from bisect import bisect_right
from collections.abc import Hashable, Iterable, Iterator

from workloads.content import Run


class BlockKeys:
    """Interns blocks of block_size tokens. Keys are numbers from 0 on."""

    def __init__(self, block_size: int) -> None:
        self.block_size = block_size
        self._numbers: dict[Hashable, int] = {}  # of single blocks, and of stretches' first
        self._count = 0
        # stretches in the order of their keys: first key, source and start of its tokens, blocks
        self._firsts: list[int] = []
        self._stretches: list[tuple[int, int, int]] = []

    def __len__(self) -> int:
        return self._count

    def root(self, namespace: int = 0) -> int:
        """What the first blocks of a namespace stand behind."""
        return self._intern(("namespace", namespace))

    def extend(self, parent: int, runs: Iterable[Run]) -> list[int]:
        """Keys of the full blocks of content that begins behind the block parent, in order.

        Tokens at the end that fill no block have no key.
        """
        return list(itertools.chain.from_iterable(self.stretches(parent, runs)))

    def stretches(self, parent: int, runs: Iterable[Run]) -> Iterator[range]:
        """The same keys, in pieces that count up."""
        size, intern = self.block_size, self._intern
        parts: list[int] = []  # of a block that more than one run fills: source, start, length
        missing = size  # tokens of the block that is being filled
        for source, first, count in runs:
            start, length = first, count
            if parts and length >= missing:
                parts += (source, start, missing)
                start, length = start + missing, length - missing
                parent = intern((parent, *parts))
                yield range(parent, parent + 1)
                parts, missing = [], size
            while not parts and length >= size:
                found = self._stretch(parent, source, start, length // size)
                yield found
                parent = found[-1]
                start, length = start + len(found) * size, length - len(found) * size
            if length:
                parts += (source, start, length)
                missing -= length

    def _intern(self, block: Hashable) -> int:
        number = self._numbers.setdefault(block, self._count)
        self._count += number == self._count
        return number

    def _stretch(self, parent: int, source: int, start: int, count: int) -> range:
        """Keys of one or more, at most count, whole blocks of a run behind the block parent."""
        number = self._numbers.get((parent, source, start))
        if number is None:
            number = parent + 1
            place = bisect_right(self._firsts, parent) - 1
            known = self._left_of(place, number, source, start)
            if known == 0:
                return self._new_stretch(parent, source, start, count)
        else:
            place = bisect_right(self._firsts, number) - 1
            known = self._left_of(place, number, source, start)
        return range(number, number + min(count, known))

    def _left_of(self, place: int, number: int, source: int, start: int) -> int:
        """How many blocks a stretch has from key number on, if that begins with those tokens."""
        if place < 0:
            return 0
        first, (own_source, own_start, count) = self._firsts[place], self._stretches[place]
        offset = number - first
        is_inside = offset < count and own_source == source
        return count - offset if is_inside and own_start + offset * self.block_size == start else 0

    def _new_stretch(self, parent: int, source: int, start: int, count: int) -> range:
        first = self._count
        self._numbers[parent, source, start] = first
        self._firsts.append(first)
        self._stretches.append((source, start, count))
        self._count += count
        return range(first, first + count)
