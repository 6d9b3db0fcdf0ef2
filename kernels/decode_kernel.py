"""Decode attention: one new query a sequence against all its keys, in paged or contiguous memory.

Where a key lies is `kernels.lookup`'s business. The query heads that share a KV head are the rows
of one tile, so each K/V tile is read once for all of them and the products run on tensor cores.
"""

# Longer than other functions here: what runs before and after the loop is needed once, and the
# whole of an attention, from address to store, is read on one page.
# A kernel has many arguments, its constexprs are in capitals, and jitted code has no sets.
# ruff: noqa: N803, N806, PLR0913, PLR0915, PLR0917, PLR1714

import triton
import triton.language as tl

from kernels.lookup import tile_blocks, tile_rows


@triton.jit
def decode_kernel(
    q_ptr,
    k_ptr,
    v_ptr,
    where_ptr,  # block table, or the first slot of every sequence
    lengths_ptr,
    out_ptr,  # (batch, heads, head_dim), or fp32 (batch, heads, splits, head_dim) if SPLIT
    lse_ptr,  # fp32 (batch, heads, splits), base 2; only if SPLIT
    scale,  # softmax scale * log2(e) * k_scale
    v_scale,
    stride_q,
    stride_qh,
    stride_block,
    stride_slot,
    stride_head,
    stride_where,
    num_heads,
    split_tokens,
    BLOCK_SIZE: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    GROUP: tl.constexpr,  # query heads that share a KV head
    ROWS: tl.constexpr,  # of them, in one tile
    BLOCK_N: tl.constexpr,
    LOOKUP: tl.constexpr,
    SPLIT: tl.constexpr,
    DOT: tl.constexpr,
):
    HEAD_TILES: tl.constexpr = (GROUP + ROWS - 1) // ROWS
    # KV heads fastest: programs that run together read the same memory pages
    kv_head = tl.program_id(0) // HEAD_TILES
    split = tl.program_id(1)
    seq = tl.program_id(2)
    in_group = (tl.program_id(0) % HEAD_TILES) * ROWS + tl.arange(0, ROWS)
    head = kv_head * GROUP + in_group
    head_live = in_group < GROUP
    d = tl.arange(0, HEAD_DIM)

    length = tl.load(lengths_ptr + seq)
    start = split * split_tokens
    end = tl.minimum(start + split_tokens, length)
    if SPLIT and start >= end:
        return  # combine reads only the pieces that exist

    q_at = q_ptr + seq.to(tl.int64) * stride_q + head.to(tl.int64)[:, None] * stride_qh + d[None, :]
    q = tl.load(q_at, mask=head_live[:, None], other=0.0).to(DOT)
    k_base = k_ptr + kv_head.to(tl.int64) * stride_head
    v_base = v_ptr + kv_head.to(tl.int64) * stride_head
    table = where_ptr + seq.to(tl.int64) * stride_where
    if LOOKUP == "contiguous":
        first = tl.load(where_ptr + seq).to(tl.int64) * stride_slot
        k_base += first
        v_base += first
    AHEAD: tl.constexpr = LOOKUP == "ahead" or LOOKUP == "ahead_scalar"

    m = tl.full([ROWS], float("-inf"), tl.float32)
    total = tl.full([ROWS], 0.0, tl.float32)
    acc = tl.full([ROWS, HEAD_DIM], 0.0, tl.float32)
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
        at = rows[:, None] + d[None, :]  # one address computation for K and V
        k = tl.load(k_base + at, mask=live[:, None], other=0.0)
        s = tl.dot(q, tl.trans(k.to(DOT)), input_precision="ieee") * scale
        s = tl.where(live[None, :], s, float("-inf"))
        m_new = tl.maximum(m, tl.max(s, 1))
        p = tl.exp2(s - m_new[:, None])
        alpha = tl.exp2(m - m_new)
        total = total * alpha + tl.sum(p, 1)
        v = tl.load(v_base + at, mask=live[:, None], other=0.0)
        acc = acc * alpha[:, None]
        acc = tl.dot(p.to(DOT), v.to(DOT), acc, input_precision="ieee")
        m = m_new

    # a sequence without keys (padding of a fixed-size batch) gives zeros
    result = acc * (v_scale / tl.where(total == 0.0, 1.0, total))[:, None]
    row = seq.to(tl.int64) * num_heads + head
    if SPLIT:
        row = row * tl.num_programs(1) + split
        tl.store(lse_ptr + row, m + tl.log2(total), mask=head_live)
    out_at = out_ptr + row[:, None] * HEAD_DIM + d[None, :]
    tl.store(out_at, result.to(out_ptr.dtype.element_ty), mask=head_live[:, None])


@triton.jit
def combine_kernel(
    part_ptr,
    lse_ptr,
    lengths_ptr,
    out_ptr,
    num_splits,
    split_tokens,
    HEAD_DIM: tl.constexpr,
    TILE: tl.constexpr,  # pieces merged at a time
):
    """Merge the pieces of one head of one sequence: the average of their outputs, weighted by
    2**lse.
    """
    head = tl.program_id(0)
    seq = tl.program_id(1)
    row = seq.to(tl.int64) * tl.num_programs(0) + head
    count = tl.cdiv(tl.load(lengths_ptr + seq), split_tokens)
    d = tl.arange(0, HEAD_DIM)
    m = tl.full((), float("-inf"), tl.float32)
    total = tl.full((), 0.0, tl.float32)
    acc = tl.full([HEAD_DIM], 0.0, tl.float32)
    for first in range(0, count, TILE):
        piece = first + tl.arange(0, TILE)
        live = piece < count
        lse = tl.load(lse_ptr + row * num_splits + piece, mask=live, other=float("-inf"))
        part_at = part_ptr + (row * num_splits + piece[:, None]) * HEAD_DIM + d[None, :]
        part = tl.load(part_at, mask=live[:, None], other=0.0)
        m_new = tl.maximum(m, tl.max(lse, 0))
        weight = tl.exp2(lse - m_new)
        alpha = tl.exp2(m - m_new)
        total = total * alpha + tl.sum(weight, 0)
        acc = acc * alpha + tl.sum(part * weight[:, None], 0)
        m = m_new
    acc = acc / tl.where(total == 0.0, 1.0, total)
    tl.store(out_ptr + row * HEAD_DIM + d, acc.to(out_ptr.dtype.element_ty))
