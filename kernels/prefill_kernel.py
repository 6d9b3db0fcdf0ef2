"""Prefill attention: a chunk of new queries a sequence against its earlier context and, causally,
itself.
"""

# Longer than other functions here: what runs before and after the loop is needed once, and the
# whole of an attention, from address to store, is read on one page.
# A kernel has many arguments, its constexprs are in capitals, and jitted code has no sets.
# ruff: noqa: N803, N806, PLR0913, PLR0917, PLR1714

import triton
import triton.language as tl

from kernels.lookup import tile_blocks, tile_rows


@triton.jit
def attend_tiles(
    state,  # running maximum, sum and output of every row
    q,
    k_base,
    v_base,
    table,
    position,  # of every row's query in its sequence
    begin,
    stop,
    end,  # keys that this tile of queries can see
    scale,
    stride_block,
    stride_slot,
    BLOCK_SIZE: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    BLOCK_N: tl.constexpr,
    LOOKUP: tl.constexpr,
    MASKED: tl.constexpr,
    DOT: tl.constexpr,
):
    """Keys begin .. stop; without MASKED every query of the tile sees all of them."""
    m, total, acc = state
    d = tl.arange(0, HEAD_DIM)
    AHEAD: tl.constexpr = LOOKUP == "ahead" or LOOKUP == "ahead_scalar"
    carried = tile_blocks(table, begin, end, BLOCK_SIZE, BLOCK_N, LOOKUP)
    for n in range(begin, stop, BLOCK_N):
        if AHEAD:
            ids = carried
            carried = tile_blocks(table, n + BLOCK_N, end, BLOCK_SIZE, BLOCK_N, LOOKUP)
        else:
            ids = tile_blocks(table, n, end, BLOCK_SIZE, BLOCK_N, LOOKUP)
        rows = tile_rows(ids, n, stride_block, stride_slot, BLOCK_SIZE, BLOCK_N, LOOKUP)
        at = rows[:, None] + d[None, :]
        token = n + tl.arange(0, BLOCK_N)
        if MASKED:
            # slots past the end may hold anything, NaN included, and 0 * NaN is NaN: never read
            k = tl.load(k_base + at, mask=token[:, None] < end, other=0.0)
        else:
            k = tl.load(k_base + at)
        s = tl.dot(q, tl.trans(k.to(DOT)), input_precision="ieee") * scale
        if MASKED:
            s = tl.where(token[None, :] <= position[:, None], s, float("-inf"))
        m_new = tl.maximum(m, tl.max(s, 1))
        p = tl.exp2(s - m_new[:, None])
        alpha = tl.exp2(m - m_new)
        total = total * alpha + tl.sum(p, 1)
        acc = acc * alpha[:, None]
        if MASKED:
            v = tl.load(v_base + at, mask=token[:, None] < end, other=0.0)
        else:
            v = tl.load(v_base + at)
        acc = tl.dot(p.to(DOT), v.to(DOT), acc, input_precision="ieee")
        m = m_new
    return m, total, acc


@triton.jit
def prefill_kernel(
    q_ptr,
    k_ptr,
    v_ptr,
    where_ptr,  # block table, or the first slot of every sequence
    query_starts_ptr,
    lengths_ptr,
    out_ptr,
    scale,  # softmax scale * log2(e) * k_scale
    v_scale,
    stride_q,
    stride_qh,
    stride_block,
    stride_slot,
    stride_head,
    stride_where,
    num_heads,
    BLOCK_SIZE: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    GROUP: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    LOOKUP: tl.constexpr,
    DOT: tl.constexpr,
):
    # the last queries see the most keys: start them first, so that no long program ends alone
    first_row = (tl.num_programs(0) - 1 - tl.program_id(0)) * BLOCK_M
    kv_head = tl.program_id(1)
    seq = tl.program_id(2)
    first_query = tl.load(query_starts_ptr + seq)
    num_queries = tl.load(query_starts_ptr + seq + 1) - first_query
    if first_row >= num_queries * GROUP:
        return
    # a row is one query of one head of the group, so that any group size packs without waste
    row = first_row + tl.arange(0, BLOCK_M)
    query = row // GROUP
    context = tl.load(lengths_ptr + seq) - num_queries
    position = context + query
    end = context + tl.minimum((first_row + BLOCK_M - 1) // GROUP + 1, num_queries)
    whole = (context + first_row // GROUP + 1) // BLOCK_N * BLOCK_N  # no query is before these

    head = kv_head * GROUP + row % GROUP
    live = (query < num_queries)[:, None]
    d = tl.arange(0, HEAD_DIM)
    q_row = (first_query + query).to(tl.int64)
    q_at = q_ptr + q_row[:, None] * stride_q + head.to(tl.int64)[:, None] * stride_qh + d[None, :]
    q = tl.load(q_at, mask=live, other=0.0).to(DOT)
    k_base = k_ptr + kv_head.to(tl.int64) * stride_head
    v_base = v_ptr + kv_head.to(tl.int64) * stride_head
    table = where_ptr + seq.to(tl.int64) * stride_where
    if LOOKUP == "contiguous":
        first = tl.load(where_ptr + seq).to(tl.int64) * stride_slot
        k_base += first
        v_base += first

    m = tl.full([BLOCK_M], float("-inf"), tl.float32)
    total = tl.full([BLOCK_M], 0.0, tl.float32)
    acc = tl.full([BLOCK_M, HEAD_DIM], 0.0, tl.float32)
    # keys that every query of the tile sees, then the diagonal and the ragged end
    m, total, acc = attend_tiles(
        (m, total, acc), q, k_base, v_base, table, position, 0, whole, end,
        scale, stride_block, stride_slot, BLOCK_SIZE, HEAD_DIM, BLOCK_N, LOOKUP, False, DOT,
    )  # fmt: skip
    m, total, acc = attend_tiles(
        (m, total, acc), q, k_base, v_base, table, position, whole, end, end,
        scale, stride_block, stride_slot, BLOCK_SIZE, HEAD_DIM, BLOCK_N, LOOKUP, True, DOT,
    )  # fmt: skip
    result = acc * (v_scale / total)[:, None]  # a query sees at least itself: total > 0
    out_row = q_row * num_heads + head
    out_at = out_ptr + out_row[:, None] * HEAD_DIM + d[None, :]
    tl.store(out_at, result.to(out_ptr.dtype.element_ty), mask=live)
