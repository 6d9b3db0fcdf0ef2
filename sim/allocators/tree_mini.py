"""mini-sglang's radix tree: the one of SGLang with another idea of when a node was last used.

A walk refreshes the nodes that it passes whole. One that it needs in part is split, and both halves
keep the time at which the node was used last, where SGLang counts both as just used. So what few
requests have in common is evicted sooner than there, and only a few histories evict alike.
A match takes a tick of the clock even if it asks for nothing, a split takes none, a new node one:
its time. Source: mini-sglang, kvcache/radix_cache.py.
"""

from __future__ import annotations

from sim.allocators.tree import LOWEST, NEVER, Node, RadixTree
from sim.allocators.tree_keys import Key
from sim.sequence import IntArray
from workloads.content import Run


class MiniTree(RadixTree):
    """A radix tree of mini-sglang's; it knows least recently used alone."""

    refreshes_parts = False

    def __init__(self, block_size: int) -> None:
        super().__init__(block_size, "lru", 1)

    def match(self, key: Key) -> tuple[Node, int]:
        return self._walk(key, NEVER, LOWEST)

    def _split(self, node: Node, length: int) -> Node:
        now = self.clock
        upper = super()._split(node, length)
        self.clock = now
        upper.last_access = upper.created = node.last_access
        return upper

    def _new_node(self, runs: list[Run], blocks: IntArray, length: int) -> Node:
        node = super()._new_node(runs, blocks, length)
        self.clock = node.created = node.last_access
        return node
