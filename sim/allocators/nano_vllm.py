"""nano-vllm's prefix cache: the one of `prefix` with a handful of rules changed.

Models the BlockManager of nano-vllm. No block is set aside. A sequence takes the blocks of all its
tokens when it is admitted, even if its prompt is computed in chunks. Full blocks become findable
when the iteration has ended that filled them, so that nobody shares within an iteration; of two
blocks with the same content the one that became findable last is hit, and the other one no more.
Freed blocks go behind all others, a sequence's last one first. At least one token is computed.
Differs on purpose: contents are compared exactly, where the engine compares a hash and one block's
tokens; blocks of one token work, for which the engine never takes another while decoding.
"""

from __future__ import annotations

from typing import ClassVar

from sim.allocators import cached_blocks
from sim.allocators.prefix import Prefix
from sim.sequence import IntArray


class NanoVllm(Prefix):
    """Blocks of block_size slots that are found again by their content (nano-vllm)."""

    kind: ClassVar[str] = "nano_vllm"
    num_null_blocks: ClassVar[int] = 0
    caches_computed = True

    def __init__(self, block_size: int = 256) -> None:
        super().__init__(block_size, free_order="append")

    def _new_pool(self, num_blocks: int) -> IntArray:
        pool = super()._new_pool(num_blocks)
        rules = cached_blocks.TAKES_ALL, cached_blocks.CACHES_COMPUTED, cached_blocks.FINDS_NEWEST
        pool[list(rules)] = True
        return pool
