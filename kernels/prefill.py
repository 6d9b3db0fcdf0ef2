"""paged_prefill and contiguous_prefill: the host side of `kernels.prefill_kernel`."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import torch

from kernels import launch
from kernels.launch import KVCache, Launch, require
from kernels.lookup import check_config, check_lengths, resolve_lookup
from kernels.prefill_kernel import prefill_kernel


@dataclass(frozen=True)
class PrefillConfig:
    """How the prefill kernel is built.

    block_m: rows of a query tile, a row being one query of one head; block_n: keys a loop
    iteration; num_stages: Triton's pipeline depth, which holds num_stages - 1 K/V tiles; lookup:
    see `kernels.lookup`.
    """

    block_m: int = 128
    block_n: int = 64
    num_warps: int = 8
    num_stages: int = 3
    lookup: str = "auto"


def default_config(head_dim: int, arch: int = 90) -> PrefillConfig:
    """The largest tile without spilled registers (checked in tests/kernels_static).

    arch: compute capability, 90 for 9.0. Before it a tensor-core instruction takes its operands
    from registers, so half as many keys fit beside them.
    """
    if head_dim == 256:
        return PrefillConfig(block_m=64, block_n=32)
    return PrefillConfig(block_n=64 if arch >= 90 else 32)


@dataclass(frozen=True)
class PrefillCall:
    """Everything a prefill needs but the queries and the cache.

    where: (batch, max_blocks) block table, or (batch,) first slots; query_starts: (batch + 1,)
    int32, sequence i's queries are rows query_starts[i] .. query_starts[i + 1]; lengths: (batch,)
    int32, context and chunk together; max_queries: the longest chunk.
    """

    where: torch.Tensor
    query_starts: torch.Tensor
    lengths: torch.Tensor
    max_queries: int
    config: PrefillConfig


def prefill_launch(q: torch.Tensor, cache: KVCache, call: PrefillCall, out: torch.Tensor) -> Launch:
    """The one launch of a prefill; nothing is run or checked."""
    _, num_heads, head_dim = q.shape
    paged = cache.k.dim() == 4
    config, group = call.config, num_heads // cache.num_kv_heads
    tiles = -(-call.max_queries * group // config.block_m)
    lookup = "contiguous"
    if paged:
        lookup = resolve_lookup(config.lookup, config.block_n, cache.block_size)
    return Launch(
        prefill_kernel,
        (tiles, cache.num_kv_heads, call.lengths.shape[0]),
        (
            *(q, cache.k, cache.v, call.where, call.query_starts, call.lengths, out),
            *(head_dim**-0.5 * launch.LOG2E * cache.k_scale, float(cache.v_scale)),
            *(q.stride(0), q.stride(1), *cache.strides(), call.where.stride(0) if paged else 1),
            num_heads,
        ),
        {
            "BLOCK_SIZE": cache.block_size if paged else 1,
            "HEAD_DIM": head_dim,
            "GROUP": group,
            "BLOCK_M": config.block_m,
            "BLOCK_N": config.block_n,
            "LOOKUP": lookup,
            "DOT": launch.dot_dtype(q.dtype, cache.k.dtype),
            "num_warps": config.num_warps,
            "num_stages": config.num_stages,
        },
    )


def paged_prefill(
    q: torch.Tensor,
    cache: KVCache,
    block_table: torch.Tensor,
    query_starts: torch.Tensor,
    lengths: torch.Tensor,
    *,
    config: PrefillConfig | None = None,
) -> torch.Tensor:
    """Causal attention of a chunk of queries a sequence over its blocks, which already hold the
    chunk's keys.

    q: (total_queries, num_heads, head_dim), the chunks one after another; query_starts: (batch +
    1,) int32, where each begins and the last ends; lengths: (batch,) int32, earlier context and
    chunk together, so the chunk's queries are the last tokens of the sequence; block_table as in
    `paged_decode`. Returns the shape and dtype of q. Reads query_starts and lengths back from the
    GPU and checks that every key lies in the cache. Raises `KernelInputError`.
    """
    launch.check_cache(cache, paged=True)
    launch.check_index(lengths, "lengths", (-1,))
    launch.check_index(block_table, "block_table", (lengths.shape[0], -1))
    return _prefill(q, cache, block_table, (query_starts, lengths), config)


def contiguous_prefill(
    q: torch.Tensor,
    cache: KVCache,
    first_slots: torch.Tensor,
    query_starts: torch.Tensor,
    lengths: torch.Tensor,
    *,
    config: PrefillConfig | None = None,
) -> torch.Tensor:
    """`paged_prefill` without the block table: key t of sequence i lies in slot first_slots[i] + t
    of a flat cache.
    """
    launch.check_cache(cache, paged=False)
    launch.check_index(lengths, "lengths", (-1,))
    launch.check_index(first_slots, "first_slots", (lengths.shape[0],))
    return _prefill(q, cache, first_slots, (query_starts, lengths), config)


def _prefill(
    q: torch.Tensor,
    cache: KVCache,
    where: torch.Tensor,
    spans: tuple[torch.Tensor, torch.Tensor],
    config: PrefillConfig | None,
) -> torch.Tensor:
    query_starts, lengths = spans
    launch.check_query(q, cache)
    launch.check_batch(lengths.shape[0])
    launch.check_index(query_starts, "query_starts", (lengths.shape[0] + 1,))
    launch.check_device(q, cache.k, cache.v, where, query_starts, lengths)
    config = config or default_config(cache.head_dim, launch.arch(q))
    check_config(config)
    launch.check_tile("block_m", config.block_m)
    launch.check_tile("block_n", config.block_n)
    starts, known = query_starts.tolist(), lengths.tolist()
    check_lengths(known, where, cache.k)
    chunks = [b - a for a, b in pairwise(starts)]
    require(
        starts[0] == 0 and starts[-1] == q.shape[0] and min(chunks) >= 0,
        f"query_starts must rise from 0 to the number of queries, {q.shape[0]}.",
    )
    short = [(n, c) for n, c in zip(known, chunks, strict=True) if n < c]
    require(
        not short,
        "a length counts the chunk's own keys: "
        + ", ".join(f"{n} is less than the chunk of {c}" for n, c in short[:1])
        + ".",
    )
    out = torch.empty(q.shape, dtype=q.dtype, device=q.device)
    if max(chunks) > 0:
        call = PrefillCall(where, query_starts, lengths, max(chunks), config)
        prefill_launch(q, cache, call, out)()
    return out
