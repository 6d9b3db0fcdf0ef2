"""What a sequence in service is to a radix tree."""

from __future__ import annotations

from sim.allocators.tree import Node
from sim.allocators.tree_keys import Key


class Held:
    """The node that it holds, and how many of its tokens are in the tree: protected_len.

    hit is what match has found, inserted_len what it has inserted so far. key is all that it will
    write, length tokens: all but the last one that it generates. num_computed is -1, or for a
    sequence that is done and stays what it had computed.
    """

    __slots__ = (
        "hit",
        "inserted_len",
        "key",
        "length",
        "node",
        "num_computed",
        "priority",
        "protected_len",
    )

    def __init__(self, root: Node, length: int) -> None:
        self.node, self.length = root, length
        self.hit = self.protected_len = self.inserted_len = self.priority = 0
        self.num_computed = -1
        self.key: Key | None = None
