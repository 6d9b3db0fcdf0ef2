"""A host pool beside the device's: the rows of a request move there and back together."""

from __future__ import annotations

import numpy as np

from sim.allocators import host_blocks, shared_blocks, shared_rows
from sim.allocators.base import ADMISSIONS, Admission
from sim.allocators.block_tables import BlockTables
from sim.allocators.blocks import BlockIds
from sim.sequence import IntArray

GIB = 1 << 30


class HostPool(BlockTables):
    """Blocks with reference counts, of the device and of the host.

    A subclass makes the pool and calls _open_host_pool in `bind`.
    """

    _free_blocks: BlockIds
    _events: IntArray

    def _open_host_pool(self, num_blocks: int, num_host: int) -> None:
        self.can_swap = num_host > 0
        self._host_blocks = np.arange(num_blocks, num_blocks + num_host, dtype=np.int32)
        self._refs: IntArray = np.zeros(num_blocks + num_host, np.int64)
        self._moved = np.full(num_blocks + num_host, host_blocks.NOWHERE, np.int32)

    def _shared(
        self,
    ) -> tuple[IntArray, IntArray, BlockIds, IntArray, BlockIds]:
        return self._pool, self._rows, self._table, self._refs, self._free_blocks

    def _known(self) -> tuple[IntArray, IntArray, BlockIds, IntArray]:
        return self._pool, self._rows, self._table, self._refs

    def can_swap_out(self, rows: IntArray) -> bool:
        need = host_blocks.num_distinct(*self._known(), rows)
        return need <= self._pool.item(shared_blocks.NUM_HOST_FREE)

    def swap_out(self, rows: IntArray) -> None:
        more = self._host_blocks, self._moved, self._events, rows
        host_blocks.swap_out(*self._shared(), *more)

    def can_swap_in(self, rows: IntArray) -> Admission:
        return ADMISSIONS[host_blocks.can_swap_in(*self._known(), rows)]

    def swap_in(self, rows: IntArray) -> None:
        more = self._host_blocks, self._moved, self._events, rows
        host_blocks.swap_in(*self._shared(), *more)

    def num_swapped_blocks(self) -> tuple[int, int]:
        moved = self._pool[[shared_blocks.NUM_BLOCKS_OUT, shared_blocks.NUM_BLOCKS_IN]].sum()
        return int(moved), self.block_size

    def drop_swapped(self, rows: IntArray) -> None:
        for row in rows.tolist():
            host_blocks.forget_swapped(*self._shared(), self._host_blocks, row)
            shared_rows.forget(self._pool, self._rows, row)

    def host_free_list(self) -> IntArray:
        """Free blocks of the host, the next one to be taken first."""
        count = self._pool.item(shared_blocks.NUM_HOST_FREE)
        return self._host_blocks[:count][::-1].astype(np.int64)
