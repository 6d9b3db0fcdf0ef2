"""Random problems for the kernels, with every slot that must not be read set to NaN.

Used by the tests under the interpreter and by calibrate's correctness section on a GPU.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch

from kernels.launch import KVCache

Table = list[list[int]]  # the blocks of every sequence, in logical order


@dataclass(frozen=True)
class Shape:
    """What stays the same over a batch."""

    num_heads: int = 8
    num_kv_heads: int = 2
    head_dim: int = 64
    block_size: int = 16
    dtype: torch.dtype = torch.float32
    kv_dtype: torch.dtype | None = None  # dtype if None
    k_scale: float = 1.0
    v_scale: float = 1.0


@dataclass(frozen=True)
class Case:
    """One batch, its keys in paged and, the same numbers, in contiguous memory.

    q: (sum of num_queries, heads, head_dim); cache and block_table: paged; flat and first_slots:
    contiguous; lengths: int32 keys a sequence; query_starts: int32 (batch + 1,).
    """

    q: torch.Tensor
    cache: KVCache
    block_table: torch.Tensor
    flat: KVCache
    first_slots: torch.Tensor
    lengths: torch.Tensor
    query_starts: torch.Tensor

    def with_table(self, block_table: torch.Tensor) -> Case:
        return replace(self, block_table=block_table)


def draw_tables(lengths: list[int], block_size: int, seed: int) -> Table:
    """Blocks for sequences of these lengths, in random physical order, with unused blocks between
    them.
    """
    counts = [-(-n // block_size) for n in lengths]
    generator = torch.Generator().manual_seed(seed)
    order = torch.randperm(2 * sum(counts) + 1, generator=generator).tolist()
    blocks = iter(order)
    return [[next(blocks) for _ in range(count)] for count in counts]


def make_case(
    shape: Shape,
    lengths: list[int],
    seed: int = 0,
    *,
    num_queries: list[int] | None = None,
    tables: Table | None = None,
    device: str = "cpu",
) -> Case:
    """Random keys, values and queries for sequences of these lengths.

    num_queries: new queries of each sequence, 1 if None (decode); tables: random if None. A block
    may stand in several tables (a shared prefix). What no table and length reaches is NaN, table
    entries past the end included: they point at a block of NaN.
    """
    tables = draw_tables(lengths, shape.block_size, seed) if tables is None else tables
    generator = torch.Generator().manual_seed(seed + 1)
    num_queries = num_queries or [1] * len(lengths)
    poison = max([b for row in tables for b in row], default=0) + 1  # no sequence holds it
    cache, flat = _caches(shape, lengths, tables, poison, generator)
    width = max([len(row) for row in tables], default=0) + 1
    table = torch.tensor([row + [poison] * (width - len(row)) for row in tables], dtype=torch.int32)
    q = torch.randn((sum(num_queries), shape.num_heads, shape.head_dim), generator=generator)
    return Case(
        q.to(shape.dtype).to(device),
        _to(cache, device),
        table.to(device),
        _to(flat, device),
        _first_slots(lengths).to(device),
        torch.tensor(lengths, dtype=torch.int32, device=device),
        torch.tensor([0, *num_queries]).cumsum(0).int().to(device),
    )


def _caches(
    shape: Shape, lengths: list[int], tables: Table, poison: int, generator: torch.Generator
) -> tuple[KVCache, KVCache]:
    """The same random keys and values as blocks 0 .. poison and as slots without blocks."""
    slots = [_slots(row, n, shape.block_size) for row, n in zip(tables, lengths, strict=True)]
    used = torch.cat([*slots, torch.empty(0, dtype=torch.long)]).unique()
    k, v = (_keep_only(_random_pool(shape, poison + 1, generator), used, shape) for _ in "kv")
    blocks = (poison + 1, shape.block_size, shape.num_kv_heads, shape.head_dim)
    scales = shape.k_scale, shape.v_scale
    paged = KVCache(k.view(blocks), v.view(blocks), *scales)
    return paged, KVCache(_contiguous(k, slots), _contiguous(v, slots), *scales)


def _to(cache: KVCache, device: str) -> KVCache:
    return KVCache(cache.k.to(device), cache.v.to(device), cache.k_scale, cache.v_scale)


def _random_pool(shape: Shape, num_blocks: int, generator: torch.Generator) -> torch.Tensor:
    slots = num_blocks * shape.block_size
    return torch.randn((slots, shape.num_kv_heads, shape.head_dim), generator=generator)


def _slots(table: list[int], length: int, block_size: int) -> torch.Tensor:
    token = torch.arange(length)
    return torch.tensor([*table, 0])[token // block_size] * block_size + token % block_size


def _keep_only(x: torch.Tensor, used: torch.Tensor, shape: Shape) -> torch.Tensor:
    kept = torch.full_like(x, float("nan"))
    kept[used] = x[used]
    return kept.to(shape.kv_dtype or shape.dtype)


def _contiguous(x: torch.Tensor, slots: list[torch.Tensor]) -> torch.Tensor:
    """The sequences one after another, three slots of NaN between them."""
    nan = torch.full((3, *x.shape[1:]), float("nan")).to(x.dtype)
    return torch.cat([part for each in slots for part in (x[each], nan)])


def _first_slots(lengths: list[int]) -> torch.Tensor:
    return torch.tensor([0, *(n + 3 for n in lengths)]).cumsum(0)[:-1]


def tolerance(shape: Shape) -> float:
    """Largest allowed |difference| to float64, relative to the largest value there, from the dtype
    of the operands.

    16-bit operands round q, k, v's products at 2^-11 (fp16) or 2^-8 (bf16) and the output once
    more.
    """
    return {torch.float32: 2e-6, torch.float16: 2e-3, torch.bfloat16: 1.6e-2}[shape.dtype]


def relative_error(result: torch.Tensor, truth: torch.Tensor) -> float:
    """Largest |difference| over the largest |truth|; infinite where the result is not finite."""
    if not torch.isfinite(result.float()).all():
        return float("inf")
    scale = float(truth.abs().max()) or 1.0
    return float((result.double() - truth).abs().max()) / scale
