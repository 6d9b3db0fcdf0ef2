"""The kernels that write a KV cache: new tokens into their slots, and whole blocks by a list."""

# A kernel has many arguments, and its constexprs are in capitals.
# ruff: noqa: N803, PLR0913, PLR0917

import triton
import triton.language as tl


@triton.jit
def append_kernel(
    new_k_ptr,
    new_v_ptr,
    k_ptr,
    v_ptr,
    slots_ptr,
    inverse_k_scale,
    inverse_v_scale,
    stride_new,
    stride_new_head,
    stride_block,
    stride_slot,
    stride_head,
    num_kv_heads,
    BLOCK_SIZE: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    HEADS: tl.constexpr,  # num_kv_heads, rounded up to a power of two
    FP8: tl.constexpr,
    LARGEST: tl.constexpr,
):
    token = tl.program_id(0)
    slot = tl.load(slots_ptr + token).to(tl.int64)
    if slot < 0:
        return  # padding
    head = tl.arange(0, HEADS).to(tl.int64)  # a cache may store whole heads one after another
    d = tl.arange(0, HEAD_DIM)
    live = (head < num_kv_heads)[:, None]
    new = token.to(tl.int64) * stride_new + head[:, None] * stride_new_head + d[None, :]
    row = (slot // BLOCK_SIZE) * stride_block + (slot % BLOCK_SIZE) * stride_slot
    at = row + head[:, None] * stride_head + d[None, :]
    k = tl.load(new_k_ptr + new, mask=live, other=0.0)
    v = tl.load(new_v_ptr + new, mask=live, other=0.0)
    if FP8:
        k = tl.clamp(k.to(tl.float32) * inverse_k_scale, -LARGEST, LARGEST)
        v = tl.clamp(v.to(tl.float32) * inverse_v_scale, -LARGEST, LARGEST)
    tl.store(k_ptr + at, k.to(k_ptr.dtype.element_ty), mask=live)
    tl.store(v_ptr + at, v.to(v_ptr.dtype.element_ty), mask=live)


@triton.jit
def copy_blocks_kernel(
    from_k_ptr,
    from_v_ptr,
    to_k_ptr,
    to_v_ptr,
    pairs_ptr,
    words,  # 4-byte words of a block's K
    from_stride,
    to_stride,
    WORDS: tl.constexpr,
):
    pair = tl.program_id(0)
    source = tl.load(pairs_ptr + 2 * pair).to(tl.int64) * from_stride
    target = tl.load(pairs_ptr + 2 * pair + 1).to(tl.int64) * to_stride
    word = tl.program_id(1) * WORDS + tl.arange(0, WORDS)
    live = word < words
    k = tl.load(from_k_ptr + source + word, mask=live)
    v = tl.load(from_v_ptr + source + word, mask=live)
    tl.store(to_k_ptr + target + word, k, mask=live)
    tl.store(to_v_ptr + target + word, v, mask=live)
