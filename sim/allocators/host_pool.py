"""A host pool beside the device's: the rows of a request move there and back together."""

from __future__ import annotations

import numpy as np

from sim.allocators import host_blocks, shared_blocks, shared_rows
from sim.allocators.base import ADMISSIONS, Admission
from sim.allocators.block_tables import BlockTables
from sim.allocators.blocks import BlockIds
from sim.sequence import IntArray

GIB = 1 << 30
DEFAULT_SWAP_SPACE = 4.0  # GiB, vLLM's


class HostPool(BlockTables):
    """Blocks with reference counts, of the device and of the host.

    A subclass makes the pool and calls _open_host_pool in `bind`.
    """

    swap_space: float | None
    num_cpu_blocks: int | None
    kv_bytes_per_token: int | None
    _free_blocks: BlockIds
    _events: IntArray

    def _open_host_pool(self, num_blocks: int, num_host: int) -> None:
        self.can_swap = num_host > 0
        self._host_blocks = np.arange(num_blocks, num_blocks + num_host, dtype=np.int32)
        self._refs: IntArray = np.zeros(num_blocks + num_host, np.int64)
        self._moved = np.full(num_blocks + num_host, host_blocks.NOWHERE, np.int32)

    def _num_host_blocks(self, num_blocks: int) -> int:
        """Blocks of the host, beside num_blocks of the device: as many where nothing says more."""
        if self.num_cpu_blocks is not None:
            return self.num_cpu_blocks
        if self.swap_space == 0:
            return 0
        if self.kv_bytes_per_token is None:
            return num_blocks
        swap_space = DEFAULT_SWAP_SPACE if self.swap_space is None else self.swap_space
        return int(swap_space * GIB) // (self.kv_bytes_per_token * self.block_size)

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


def check_host_size(
    swap_space: float | None, num_cpu_blocks: int | None, kv_bytes_per_token: int | None
) -> None:
    """Refuse sizes of the host pool that mean nothing. Raises ValueError."""
    if swap_space is not None and not 0 <= swap_space <= 1 << 20:
        raise ValueError(f"swap_space: must be from 0 to 2^20 GiB, got {swap_space}")
    if swap_space and num_cpu_blocks is None and kv_bytes_per_token is None:
        raise ValueError(
            "swap_space: is in GiB, and no model says what a token takes; accepted without one: "
            "num_cpu_blocks, or 0"
        )
    if num_cpu_blocks is not None and not 0 <= num_cpu_blocks <= 1 << 28:
        raise ValueError(f"num_cpu_blocks: must be from 0 to 2^28, got {num_cpu_blocks}")
    if kv_bytes_per_token is not None and kv_bytes_per_token < 1:
        raise ValueError(f"kv_bytes_per_token: must be at least 1, got {kv_bytes_per_token}")
