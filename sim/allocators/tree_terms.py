"""The conservation terms of memory whose sequences hold blocks of one tree."""

from __future__ import annotations

from sim.allocators.blocks import NUM_BLOCKS, NUM_FREE
from sim.allocators.terms import CACHED, FREE, HELD_BLOCKS, INTERNAL, TOKEN_STATES
from sim.allocators.tree import RadixTree
from sim.sequence import IntArray

IN_TREE = (TOKEN_STATES, INTERNAL, CACHED)  # what tokens in the tree may be


class TreeTerms:
    """Corrects the terms in a pool for what is in the tree.

    Rows count all their slots; those in the tree count there, once for all that hold them.
    """

    def __init__(self, tree: RadixTree, pool: IntArray) -> None:
        self._tree, self._pool = tree, pool
        self._active = self._idle = 0  # tokens in the tree that rows hold, and that done rows do
        self._settled = (0, 0, 0)

    def hold(self, num_tokens: int) -> None:
        """A row holds so many tokens more of the tree; fewer, if negative."""
        self._active += num_tokens

    def hold_idle(self, num_tokens: int) -> None:
        """The row that holds so many tokens is done now; or, if negative, no longer."""
        self._active -= num_tokens
        self._idle += num_tokens

    def settle(self) -> None:
        """Let the terms be those of now."""
        tree, pool = self._tree, self._pool
        idle_blocks = pool.item(NUM_FREE) + tree.evictable // tree.block_size
        pool[HELD_BLOCKS] = pool.item(NUM_BLOCKS) - idle_blocks
        useful = tree.protected - tree.idle - self._active
        now = useful, tree.idle - self._idle, tree.evictable
        if now == self._settled:
            return
        for term, new, old in zip(IN_TREE, now, self._settled, strict=True):
            pool[term] += new - old
            pool[FREE] -= new - old
        self._settled = now
