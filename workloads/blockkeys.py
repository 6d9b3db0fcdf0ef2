"""Content cut into blocks of any size, each with a number that stands for it and all before it.

Two blocks have the same key if, and only if, they hold the same tokens behind the same tokens, in
the same namespace: keys are interned exactly, and no hash decides. The size of a block has nothing
to do with that of a trace's own hashed blocks: it may be smaller, larger, or not divide it.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable

from workloads.content import Run


class BlockKeys:
    """Interns blocks of block_size tokens. Keys are numbers from 0 on."""

    def __init__(self, block_size: int) -> None:
        self.block_size = block_size
        self._numbers: dict[Hashable, int] = {}

    def __len__(self) -> int:
        return len(self._numbers)

    def root(self, namespace: int = 0) -> int:
        """What the first blocks of a namespace stand behind."""
        return self._intern(("namespace", namespace))

    def extend(self, parent: int, runs: Iterable[Run]) -> list[int]:
        """Keys of the full blocks of content that begins behind the block parent, in order.

        Tokens at the end that fill no block have no key. Costs time for every block and run.
        """
        size, intern = self.block_size, self._intern
        keys: list[int] = []
        parts: list[int] = []  # of a block that more than one run fills: source, start, length
        missing = size  # tokens of the block that is being filled
        for source, first, count in runs:
            start, length = first, count
            if parts and length >= missing:
                parts += (source, start, missing)
                start, length = start + missing, length - missing
                parent = intern((parent, *parts))
                keys.append(parent)
                parts, missing = [], size
            while not parts and length >= size:
                parent = intern((parent, source, start))
                keys.append(parent)
                start, length = start + size, length - size
            if length:
                parts += (source, start, length)
                missing -= length
        return keys

    def _intern(self, block: Hashable) -> int:
        return self._numbers.setdefault(block, len(self._numbers))
