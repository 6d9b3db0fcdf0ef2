"""A trie with a node a block, of tokens where blocks hold one: what a radix cache may keep."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence


class Trie:
    """A node: its own block, and the nodes that go on with one more piece of content."""

    def __init__(self, block: int = 0) -> None:
        self.block = block
        self.children: dict[tuple[int, ...], Trie] = {}

    def find(self, pieces: Iterable[tuple[int, ...]]) -> list[int]:
        """The blocks of as many of the pieces as are known, from the first on."""
        node, found = self, []
        for piece in pieces:
            if piece not in node.children:
                break
            node = node.children[piece]
            found.append(node.block)
        return found

    def put(self, pieces: Sequence[tuple[int, ...]], blocks: Sequence[int]) -> None:
        """Make pieces known; those that were keep their own blocks."""
        node = self
        for piece, block in zip(pieces, blocks, strict=True):
            node = node.children.setdefault(piece, Trie(block))

    def blocks(self) -> Iterator[int]:
        """Of all nodes below this one."""
        for child in self.children.values():
            yield child.block
            yield from child.blocks()

    def remove(self, gone: set[int]) -> None:
        """Forget the nodes with these blocks. Nothing below one of them may stay."""
        for piece, child in [*self.children.items()]:
            if child.block in gone:
                assert gone.issuperset(child.blocks()), "what a sequence goes on from is gone"
                del self.children[piece]
            else:
                child.remove(gone)
