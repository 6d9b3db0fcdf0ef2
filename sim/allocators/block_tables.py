"""What all allocators of equal blocks show: block tables, and the slots that they name."""

from __future__ import annotations

import numpy as np

from sim.allocators import blocks
from sim.allocators.base import Allocator
from sim.sequence import NUM_SLOTS, IntArray


class BlockTables(Allocator):
    """A pool of blocks. A subclass sets these attributes in `bind`."""

    block_size: int
    _pool: IntArray  # what is recorded, then the cells that sim.allocators.blocks names
    _rows: IntArray  # the sequence table's
    _table: blocks.BlockIds  # one row a row

    @property
    def num_blocks(self) -> int:
        return self._pool.item(blocks.NUM_BLOCKS)

    def block_table(self, row: int) -> IntArray:
        """Ids of the row's blocks in logical order."""
        held = self._rows.item(row, NUM_SLOTS) // self.block_size
        return self._table[row, :held].astype(np.int64)

    def held_ranges(self, row: int) -> IntArray:
        return self._ranges(self.block_table(row))

    def _ranges(self, block_ids: IntArray) -> IntArray:
        """(first slot, slots) of blocks: shape (blocks, 2)."""
        return np.stack(
            [block_ids * self.block_size, np.full_like(block_ids, self.block_size)], axis=1
        )
