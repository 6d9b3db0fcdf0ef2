"""mini-sglang's memory: SGLang's radix cache with a handful of rules changed.

Models mini-sglang's RadixPrefixCache and CacheManager; tree_mini.py has its tree. A prompt is found
when all of it has been computed, not chunk by chunk. Freed blocks go behind the others whatever
they hold. No more is evicted than the blocks that are needed take, where SGLang counts a block for
each request that may need none; a leaf goes as a whole all the same. Only least recently used.
The tree is compared with recorded histories of the package's; the rest was read in its source,
kvcache/ and scheduler/cache.py, and no recording confirms it.
Differs on purpose: as radix does. Blocks are numbered from 1 on, where the engine begins with 0.
"""

from __future__ import annotations

from typing import ClassVar

from sim.allocators.radix import Radix
from sim.allocators.tree import Node, RadixTree
from sim.allocators.tree_keys import Key
from sim.allocators.tree_mini import MiniTree
from sim.sequence import IntArray


class MiniSglang(Radix):
    """Blocks of block_size tokens (mini-sglang: page_size) in its radix tree."""

    kind: ClassVar[str] = "mini_sglang"
    evicts_exactly: ClassVar[bool] = True
    caches_chunks: ClassVar[bool] = False

    def __init__(self, block_size: int = 1) -> None:
        super().__init__(block_size, split_at_prompt=False)
        self.evicts_by_batch = False

    def _new_tree(self) -> RadixTree:
        return MiniTree(self.block_size)

    def _insert(self, row: int, key: Key, own: IntArray) -> tuple[Node, int]:
        return self.tree.put(key, own, self._held[row].protected_len)
