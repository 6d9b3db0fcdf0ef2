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

import triton
import triton.language as tl

from kernels.launch import require

LOOKUPS = ("auto", "inline", "ahead", "inline_scalar", "ahead_scalar")


def resolve_lookup(lookup: str, block_n: int, block_size: int) -> str:
    """The lookup of a paged kernel with tiles of block_n tokens; `KernelInputError` if it cannot
    work.

    "auto" takes one id a tile where the block size allows it, and always one iteration ahead.
    """
    require(lookup in LOOKUPS, f"lookup {lookup!r} is unknown, choose one of {LOOKUPS}.")
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
