"""Where the keys of a tile lie: through a block table, or without one. Shared by every attention
kernel here.

One source for both layouts, so that a comparison of the two compares nothing but the block table.
The constexpr LOOKUP says how:

  contiguous     slot = first slot of the sequence + position; no table
  inline         block ids loaded in the iteration that uses them, one for every token of the tile
  ahead          the same ids loaded one iteration early and carried in registers
  inline_scalar  one id a tile (block size a multiple of the tile), in the iteration that uses it
  ahead_scalar   one id a tile, loaded one iteration early

Triton gives a load whose address was itself loaded in the same iteration fewer buffers (its K/V
copies start that many iterations later), so "inline" prefetches less than "contiguous" at equal
num_stages; "ahead" prefetches the same.
"""

# A kernel has many arguments, its constexprs are in capitals, and jitted code has no sets.
# ruff: noqa: N803, PLR0913, PLR0917, PLR1714

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl

from kernels.launch import require

LOOKUPS = ("auto", "inline", "ahead", "inline_scalar", "ahead_scalar")
WARPS = (1, 2, 4, 8, 16, 32)


def check_lengths(lengths: list[int], where: torch.Tensor, cache: torch.Tensor) -> None:
    """Raise `KernelInputError` unless no length is negative and every key lies in the cache (its k,
    or the latents): by the block table if `where` is one (two dimensions), else by the first slots.
    There must be at least one length. Waits for the GPU."""
    require(min(lengths) >= 0, f"a length cannot be negative, the smallest is {min(lengths)}.")
    counts, size = torch.tensor(lengths, device=where.device), cache.shape[0]
    if where.dim() == 1:
        outside = (counts > 0) & ((where < 0) | (where + counts > size))
        bad = where[outside][:1].tolist()
        require(not bad, f"a sequence from slot {bad} on leaves the cache's {size} slots.")
        return
    block_size = cache.shape[1]
    needed = -(-max(lengths) // block_size)
    require(
        where.shape[1] >= needed,
        f"block_table has {where.shape[1]} columns, "
        f"a sequence of {max(lengths)} keys needs {needed}.",
    )
    first_key = torch.arange(needed, device=where.device) * block_size
    used = where[:, :needed][first_key < counts[:, None]]
    bad = used[(used < 0) | (used >= size)][:1].tolist()
    require(not bad, f"block_table names block {bad}, the cache has {size}.")


def check_config(config: Any) -> None:
    """Raise `KernelInputError` unless a kernel of any kind can be built so."""
    check_name(config.lookup)
    warps, stages = config.num_warps, config.num_stages
    require(warps in WARPS, f"num_warps must be one of {WARPS}, it is {warps}.")
    require(
        isinstance(stages, int) and stages >= 1, f"num_stages must be at least 1, it is {stages}."
    )


def check_name(lookup: str) -> None:
    """Raise `KernelInputError` unless there is such a lookup."""
    require(lookup in LOOKUPS, f"lookup {lookup!r} is unknown, choose one of {LOOKUPS}.")


def resolve_lookup(lookup: str, block_n: int, block_size: int) -> str:
    """The lookup of a paged kernel with tiles of block_n tokens; `KernelInputError` if it cannot
    work.

    "auto" takes one id a tile where the block size allows it, and always one iteration ahead.
    """
    check_name(lookup)
    whole = block_size % block_n == 0
    if lookup == "auto":
        return "ahead_scalar" if whole else "ahead"
    require(
        whole or not lookup.endswith("scalar"),
        f"one id a tile needs a block size that is a multiple of block_n {block_n}, "
        f"not {block_size}.",
    )
    return lookup


@triton.jit
def tile_blocks(
    table, n, end, BLOCK_SIZE: tl.constexpr, BLOCK_N: tl.constexpr, LOOKUP: tl.constexpr
):
    """Physical blocks of tokens n .. n + BLOCK_N: int64, one id, or one a token (0 from `end`
    on).
    """
    if LOOKUP == "contiguous":
        ids = tl.full((), 0, tl.int64)
    elif LOOKUP == "inline_scalar" or LOOKUP == "ahead_scalar":
        ids = tl.load(table + n // BLOCK_SIZE, mask=n < end, other=0).to(tl.int64)
    else:
        token = n + tl.arange(0, BLOCK_N)
        ids = tl.load(table + token // BLOCK_SIZE, mask=token < end, other=0).to(tl.int64)
    return ids


@triton.jit
def tile_rows(
    ids,
    n,
    stride_block,
    stride_slot,
    BLOCK_SIZE: tl.constexpr,
    BLOCK_N: tl.constexpr,
    LOOKUP: tl.constexpr,
):
    """Element offsets of the tokens n .. n + BLOCK_N, int64: caches pass 2**31 elements."""
    token = n + tl.arange(0, BLOCK_N)
    if LOOKUP == "contiguous":
        rows = token.to(tl.int64) * stride_slot
    else:
        rows = ids * stride_block + (token % BLOCK_SIZE) * stride_slot
    return rows
