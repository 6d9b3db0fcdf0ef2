"""Decode of multi-head latent attention (DeepSeek-V2 and later), after the up-projections of keys
and values have been moved into the queries and the output.

A token's cache entry is one vector for all heads: a latent and, behind it, a rotated part. The key
is the whole of it, the value is the latent, so a tile is loaded once and multiplied twice.
"""

# Longer than other functions here, for the reasons given in decode_kernel.py.
# A kernel has many arguments, its constexprs are in capitals, and jitted code has no sets.
# ruff: noqa: N803, N806, PLR0913, PLR0917, PLR1714

import triton
import triton.language as tl

from kernels.lookup import tile_blocks, tile_rows


@triton.jit
def mla_decode_kernel(
    q_ptr,
    cache_ptr,
    table_ptr,
    lengths_ptr,
    out_ptr,  # (batch, heads, LATENT), or fp32 (batch, heads, splits, LATENT) if SPLIT
    lse_ptr,  # fp32 (batch, heads, splits), base 2; only if SPLIT
    scale,  # softmax scale * log2(e)
    stride_q,
    stride_qh,
    stride_block,
    stride_slot,
    stride_table,
    num_heads,
    split_tokens,
    BLOCK_SIZE: tl.constexpr,
    LATENT: tl.constexpr,
    ROPE: tl.constexpr,
    ROWS: tl.constexpr,  # heads of a tile
    BLOCK_N: tl.constexpr,
    LOOKUP: tl.constexpr,
    SPLIT: tl.constexpr,
    DOT: tl.constexpr,
):
    # head tiles fastest: programs that run together read the same memory
    head = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    split = tl.program_id(1)
    seq = tl.program_id(2)
    head_live = head < num_heads
    c = tl.arange(0, LATENT)
    r = LATENT + tl.arange(0, ROPE)

    length = tl.load(lengths_ptr + seq)
    start = split * split_tokens
    end = tl.minimum(start + split_tokens, length)
    if SPLIT and start >= end:
        return  # combine reads only the pieces that exist

    q_at = q_ptr + seq.to(tl.int64) * stride_q + head.to(tl.int64)[:, None] * stride_qh
    q_latent = tl.load(q_at + c[None, :], mask=head_live[:, None], other=0.0).to(DOT)
    q_rope = tl.load(q_at + r[None, :], mask=head_live[:, None], other=0.0).to(DOT)
    table = table_ptr + seq.to(tl.int64) * stride_table
    AHEAD: tl.constexpr = LOOKUP == "ahead" or LOOKUP == "ahead_scalar"

    m = tl.full([ROWS], float("-inf"), tl.float32)
    total = tl.full([ROWS], 0.0, tl.float32)
    acc = tl.full([ROWS, LATENT], 0.0, tl.float32)
    carried = tile_blocks(table, start, end, BLOCK_SIZE, BLOCK_N, LOOKUP)
    for n in range(start, end, BLOCK_N):
        if AHEAD:
            ids = carried
            carried = tile_blocks(table, n + BLOCK_N, end, BLOCK_SIZE, BLOCK_N, LOOKUP)
        else:
            ids = tile_blocks(table, n, end, BLOCK_SIZE, BLOCK_N, LOOKUP)
        rows = tile_rows(ids, n, stride_block, stride_slot, BLOCK_SIZE, BLOCK_N, LOOKUP)
        # slots past the end may hold anything, NaN included, and 0 * NaN is NaN: never read them
        live = n + tl.arange(0, BLOCK_N) < end
        at = cache_ptr + rows[:, None]
        latent = tl.load(at + c[None, :], mask=live[:, None], other=0.0).to(DOT)
        rope = tl.load(at + r[None, :], mask=live[:, None], other=0.0).to(DOT)
        s = tl.dot(q_latent, tl.trans(latent), input_precision="ieee")
        s = tl.dot(q_rope, tl.trans(rope), s, input_precision="ieee") * scale
        s = tl.where(live[None, :], s, float("-inf"))
        m_new = tl.maximum(m, tl.max(s, 1))
        p = tl.exp2(s - m_new[:, None])
        alpha = tl.exp2(m - m_new)
        total = total * alpha + tl.sum(p, 1)
        acc = acc * alpha[:, None]
        acc = tl.dot(p.to(DOT), latent, acc, input_precision="ieee")
        m = m_new

    # a sequence without keys (padding of a fixed-size batch) gives zeros
    result = acc / tl.where(total == 0.0, 1.0, total)[:, None]
    row = seq.to(tl.int64) * num_heads + head
    if SPLIT:
        row = row * tl.num_programs(1) + split
        tl.store(lse_ptr + row, m + tl.log2(total), mask=head_live)
    out_at = out_ptr + row[:, None] * LATENT + c[None, :]
    tl.store(out_at, result.to(out_ptr.dtype.element_ty), mask=head_live[:, None])
