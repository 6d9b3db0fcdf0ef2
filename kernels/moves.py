# Triton writes compile-time arguments in upper case, and a kernel takes many.
"""append and copy_blocks: the kernels that write into the cache."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from itertools import pairwise

import torch
import triton

from kernels import launch
from kernels.launch import KVCache, Launch, require
from kernels.moves_kernel import append_kernel, copy_blocks_kernel

FP8_LARGEST = 448.0  # of e4m3
COPY_WORDS = 2048  # 4-byte words of K, and as many of V, that one program copies


def append_launch(k: torch.Tensor, v: torch.Tensor, cache: KVCache, slots: torch.Tensor) -> Launch:
    """The launch of `append`; nothing is run or checked."""
    return Launch(
        append_kernel,
        (slots.shape[0],),
        (
            *(k, v, cache.k, cache.v, slots, 1.0 / cache.k_scale, 1.0 / cache.v_scale),
            *(k.stride(0), k.stride(1), *cache.strides(), cache.num_kv_heads),
        ),
        {
            "BLOCK_SIZE": cache.block_size,
            "HEAD_DIM": cache.head_dim,
            "HEADS": triton.next_power_of_2(cache.num_kv_heads),
            "FP8": cache.k.dtype == launch.FP8,
            "LARGEST": FP8_LARGEST,
            "num_warps": 4,
        },
    )


def append(k: torch.Tensor, v: torch.Tensor, cache: KVCache, slots: torch.Tensor) -> None:
    """Write new keys and values into their slots of a paged cache.

    k, v: (num_tokens, num_kv_heads, head_dim), equal strides (views into a fused projection are
    fine), in the cache's dtype: nothing is converted, except that an fp8 cache takes fp16, bf16 or
    fp32 and stores x / scale, cut off at ±448. slots: (num_tokens,) int32 or int64, block *
    block_size + offset, inside the cache and no two equal, which is not checked; a negative slot
    is skipped (padding). Raises `KernelInputError`.
    """
    launch.check_cache(cache, paged=True)
    launch.check_rows(k, cache, "new keys")
    require(
        k.shape[1] == cache.num_kv_heads,
        f"the new keys have {k.shape[1]} heads, the cache {cache.num_kv_heads}.",
    )
    launch.check_tensors(v=v)
    require(
        k.shape == v.shape and k.stride() == v.stride() and k.dtype == v.dtype,
        "the new keys and values must have the same shape, strides and dtype.",
    )
    launch.check_index(slots, "slots", (k.shape[0],))
    launch.check_device(k, v, cache.k, cache.v, slots)
    if slots.shape[0]:
        append_launch(k, v, cache, slots)()


def copy_launch(source: KVCache, destination: KVCache, pairs: torch.Tensor) -> Launch:
    """The launch of `copy_blocks`; nothing is run or checked. Copies words, so any dtype goes."""
    from_k, from_v, to_k, to_v = (
        x.flatten(1).view(torch.int32) for x in (source.k, source.v, destination.k, destination.v)
    )
    words = from_k.shape[1]
    return Launch(
        copy_blocks_kernel,
        (pairs.shape[0], triton.cdiv(words, COPY_WORDS)),
        (from_k, from_v, to_k, to_v, pairs, words, from_k.stride(0), to_k.stride(0)),
        {"WORDS": min(COPY_WORDS, triton.next_power_of_2(words)), "num_warps": 4},
    )


def copy_blocks(source: KVCache, destination: KVCache, pairs: torch.Tensor) -> None:
    """Copy whole blocks, K and V: copy-on-write within a cache, or a swap between two.

    pairs: (n, 2) int32 or int64, block numbers (source, destination); no destination may share
    memory with another or with a source of the same call, since the order of the copies is not
    defined. A cache in pinned host memory works as source or destination on a GPU. Reads the pairs
    back from the GPU to check them; `copy_launch` does not. Raises `KernelInputError`.
    """
    launch.check_cache(source, paged=True)
    launch.check_cache(destination, paged=True)
    require(
        source.k.shape[1:] == destination.k.shape[1:] and source.k.dtype == destination.k.dtype,
        "source and destination must have blocks of one shape and dtype.",
    )
    require(
        all(c.k[0].is_contiguous() for c in (source, destination) if len(c.k)),
        "a block must be contiguous memory to be copied.",
    )
    require(
        all(_in_words(x) for c in (source, destination) for x in (c.k, c.v)),
        "blocks must begin at a multiple of 4 bytes to be copied.",
    )
    launch.check_index(pairs, "pairs", (-1, 2))
    near = [t for c in (source, destination) for t in (c.k, c.v) if not _pinned(t)]
    launch.check_device(pairs, *near)
    _check_pairs(source, destination, pairs)
    if pairs.shape[0]:
        copy_launch(source, destination, pairs)()


def _pinned(x: torch.Tensor) -> bool:
    return x.device.type == "cpu" and x.is_pinned()


def _check_pairs(source: KVCache, destination: KVCache, pairs: torch.Tensor) -> None:
    known = pairs.tolist()
    sources, targets = {a for a, _ in known}, {b for _, b in known}
    for what, used, cache in (("source", sources, source), ("destination", targets, destination)):
        outside = [b for b in sorted(used) if not 0 <= b < len(cache.k)]
        require(
            not outside, f"{what} block {(outside or [0])[0]} is not one of the {len(cache.k)}."
        )
    places, size = _places(destination, [b for _, b in known]), _block_bytes(source)
    require(
        all(b - a >= size for a, b in pairwise(places)),
        "a block is a destination twice: which copy stays is undefined.",
    )
    overlap = [b for b in sorted(sources) if _touch(_places(source, [b]), places, size)]
    require(not overlap, f"blocks {overlap} are source and destination at once.")


def _in_words(x: torch.Tensor) -> bool:
    size = x.element_size()
    return x.data_ptr() % 4 == 0 and x.stride(0) * size % 4 == 0


def _block_bytes(cache: KVCache) -> int:
    return cache.k.shape[1:].numel() * cache.k.element_size()


def _places(cache: KVCache, blocks: list[int]) -> list[int]:
    """Where K and V of these blocks begin in memory, in order."""
    size = cache.k.element_size()
    return sorted(x.data_ptr() + b * x.stride(0) * size for x in (cache.k, cache.v) for b in blocks)


def _touch(some: list[int], others: list[int], size: int) -> bool:
    """Whether one of some, in order, begins less than `size` before or behind one of the others."""
    return any(bisect_left(others, at + size) > bisect_right(others, at - size) for at in some)
