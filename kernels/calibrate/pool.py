"""One pool of random keys and values, allocated once, and block tables into it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from kernels.launch import FP8, H200_SMS, KVCache
from kernels.standins import Model

POOL_BYTES = 10 * 2**30  # keys and values together
POOL_SIZES = tuple(POOL_BYTES // n for n in (1, 2, 4, 8))
H200_L2_BYTES = 60 * 2**20
FP8_PART = 4  # an fp8 copy of a part of the pool: bf16 bits read as fp8 would be NaN here and there


@dataclass(frozen=True)
class Device:
    """Where tensors live and what is known of it: "cuda", "cpu" (interpreter) or "meta" (compile
    only).
    """

    kind: str
    arch: int = 90
    num_sms: int = H200_SMS
    l2_bytes: int = H200_L2_BYTES

    @staticmethod
    def gpu() -> Device:
        found = torch.cuda.get_device_properties(0)
        arch = 10 * found.major + found.minor
        return Device("cuda", arch, found.multi_processor_count, found.L2_cache_size)


def padded(count: int) -> int:
    """The next multiple of 16: rows of tables must keep the alignment the kernels were compiled
    for.
    """
    return -(-count // 16) * 16


class Pool:
    """Random K and V of `num_bytes` together, and what is drawn from it."""

    @staticmethod
    def largest(device: Device, seed: int = 0, sizes: tuple[int, ...] = POOL_SIZES) -> Pool:
        """A pool of the first of these sizes for which there is memory; `OutOfMemoryError` if there
        is none. Points that do not fit a smaller one say so in their row."""
        for size in sizes[:-1]:
            try:
                return Pool(device, size, seed)
            except torch.OutOfMemoryError:
                pass
        return Pool(device, sizes[-1], seed)

    def __init__(self, device: Device, num_bytes: int = POOL_BYTES, seed: int = 0):
        self.device = device
        self.num_bytes = num_bytes
        self.rng = np.random.default_rng(seed)
        self._orders: dict[int, np.ndarray] = {}
        elements = num_bytes // 4
        self._k, self._v = (self.random(elements) for _ in "kv")
        part = elements // FP8_PART
        self._k8, self._v8 = (x[:part].to(FP8) for x in (self._k, self._v))

    def random(self, *size: int, scale: float = 1.0) -> torch.Tensor:
        """bf16, normal."""
        x = torch.empty(size, dtype=torch.bfloat16, device=self.device.kind)
        return x.normal_(0.0, scale)

    def empty(self, *size: int, dtype: torch.dtype = torch.bfloat16) -> torch.Tensor:
        return torch.empty(size, dtype=dtype, device=self.device.kind)

    def put(self, array: np.ndarray) -> torch.Tensor:
        """A numpy array on the device."""
        return torch.from_numpy(np.ascontiguousarray(array)).to(self.device.kind)

    def num_slots(self, model: Model) -> int:
        k = self._k8 if model.stored == FP8 else self._k
        return int(k.numel()) // (model.num_kv_heads * model.head_dim)

    def cache(self, model: Model, block_size: int) -> KVCache:
        """The pool as blocks of that size, or as slots for 0."""
        k, v = (self._k8, self._v8) if model.stored == FP8 else (self._k, self._v)
        slots = self.num_slots(model)
        shape: tuple[int, ...] = (slots, model.num_kv_heads, model.head_dim)
        if block_size:
            shape = (slots // block_size, block_size, model.num_kv_heads, model.head_dim)
        count = int(np.prod(shape))
        return KVCache(k[:count].view(shape), v[:count].view(shape))

    def weights(self, rows: int, columns: int, copies: int) -> list[torch.Tensor]:
        """Matrices (rows, columns), disjoint as far as the pool reaches."""
        size = rows * columns
        if rows * columns > self._k.numel():
            raise ValueError(f"the pool holds no matrix of {rows} x {columns}.")
        both = [
            x[i * size : (i + 1) * size]
            for x in (self._k, self._v)
            for i in range(x.numel() // size)
        ]
        return [x.view(rows, columns) for x in both[:copies]]

    def rotations(self, num_bytes: int, most: int = 512) -> int:
        """Disjoint sets to go through so that none is still in L2 when it comes round again."""
        return max(1, min(most, -(-4 * self.device.l2_bytes // max(1, num_bytes))))

    def blocks(self, num_blocks: int, count: int, order: str) -> np.ndarray:
        """`count` different blocks, drawn from the whole pool at random, or its first ones in
        order.
        """
        if count > num_blocks:
            raise ValueError(f"the pool has {num_blocks} blocks, {count} are needed.")
        if order != "random":
            return np.arange(count)
        if num_blocks not in self._orders:
            self._orders[num_blocks] = self.rng.permutation(num_blocks)
        start = int(self.rng.integers(num_blocks))
        return np.take(self._orders[num_blocks], np.arange(start, start + count), mode="wrap")

    def tables(self, cache: KVCache, lengths: np.ndarray, sets: int, order: str) -> np.ndarray:
        """Block tables (sets, batch, width), int32; unused entries are 0."""
        counts = -(-lengths // cache.block_size)
        width = padded(int(counts.max()))
        used = np.broadcast_to(np.arange(width) < counts[:, None], (sets, len(lengths), width))
        table = np.zeros(used.shape, np.int32)
        table[used] = self.blocks(cache.k.shape[0], int(used.sum()), order)
        return table

    def first_slots(self, model: Model, lengths: np.ndarray, sets: int) -> np.ndarray:
        """Where the sequences begin in contiguous memory, one after another: (sets, padded batch),
        int64.
        """
        if int(lengths.sum()) * sets > self.num_slots(model):
            needed = int(lengths.sum()) * sets
            raise ValueError(f"the pool has {self.num_slots(model)} slots, {needed} are needed.")
        starts = np.zeros((sets, padded(len(lengths))), np.int64)
        ends = np.cumsum(np.tile(lengths, sets)).reshape(sets, -1)
        starts[:, : len(lengths)] = ends - lengths
        return starts

    def cache_words(self) -> torch.Tensor:
        """The keys as 4-byte words."""
        return self._k[: self._k.numel() // 2 * 2].view(torch.int32)
