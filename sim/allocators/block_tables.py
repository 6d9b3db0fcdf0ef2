"""What all allocators of equal blocks show: block tables, and the slots that they name."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from sim.allocators import blocks, entries
from sim.allocators.base import Allocator, BoolArray
from sim.sequence import MAX_FINAL_TOKENS, NUM_SLOTS, IntArray


class BlockTables(Allocator):
    """A pool of blocks. A subclass sets these attributes in `bind`."""

    block_size: int
    _pool: IntArray  # what is recorded, then the cells that sim.allocators.blocks names
    _rows: IntArray  # the sequence table's
    _table: blocks.BlockIds  # one row a row
    _scratch: IntArray  # block_size and a cell for each row
    _can_append: Callable[..., int]  # blocks.can_append, compiled

    @property
    def num_blocks(self) -> int:
        return self._pool.item(blocks.NUM_BLOCKS)

    @property
    def num_usable_blocks(self) -> int:
        """Blocks that sequences can have."""
        return self.num_blocks

    def num_held_hits(self, row: int) -> int:
        """Blocks that a waiting row would share with rows that hold them. Changes nothing."""
        return 0

    def can_finish(self, row: int, rows: IntArray) -> bool:
        need = -(-self._rows.item(row, MAX_FINAL_TOKENS) // self.block_size)
        spare = self._pool.item(blocks.NUM_FREE)
        spare -= int(blocks.outstanding(self._pool, self._rows, rows))
        return need <= spare or need - self.num_held_hits(row) <= spare

    def never_finishes(self, requests: IntArray) -> BoolArray:
        need = -(-requests[:, MAX_FINAL_TOKENS] // self.block_size)
        return np.greater(need, self.num_usable_blocks)

    def can_append(self, rows: IntArray, num_iterations: int) -> int:
        most_blocks = len(rows) * (num_iterations // self.block_size + 1)
        if most_blocks <= self._pool.item(blocks.NUM_FREE):
            return num_iterations  # enough even if every row is at a boundary: the common case
        return self._can_append(self._pool, self._rows, rows, num_iterations, self._scratch)

    def block_table(self, row: int) -> IntArray:
        """Ids of the row's blocks in logical order."""
        held = self._rows.item(row, NUM_SLOTS) // self.block_size
        return self._table[row, :held].astype(np.int64)

    def held_ranges(self, row: int) -> IntArray:
        return self._ranges(self.block_table(row))

    def table_entries(self, rows: IntArray) -> IntArray:
        counts = self._rows[rows, NUM_SLOTS] // self.block_size
        found: IntArray = np.empty((int(counts.sum()), entries.NUM_COLUMNS), np.int64)
        size, num_device = self.block_size, self.num_blocks
        entries.name_blocks(
            self._rows, self._table, rows, self._places(rows), size, num_device, found
        )
        entries.fill(self._rows, rows, counts, found)
        return found

    def _places(self, rows: IntArray) -> IntArray:
        """Where the rows' tables stand."""
        return rows

    def free_ranges(self) -> IntArray:
        first = self.num_blocks - self.num_usable_blocks
        return np.array([[first, self.num_usable_blocks]], np.int64) * self.block_size

    def _ranges(self, block_ids: IntArray) -> IntArray:
        """(first slot, slots) of blocks: shape (blocks, 2)."""
        return np.stack(
            [block_ids * self.block_size, np.full_like(block_ids, self.block_size)], axis=1
        )
