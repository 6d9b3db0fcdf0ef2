"""paged_decode and contiguous_decode: the host side of `kernels.decode_kernel`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import triton

from kernels import launch
from kernels.decode_kernel import combine_kernel, decode_kernel
from kernels.launch import KVCache, Launch
from kernels.lookup import check_config, check_lengths, resolve_lookup
from kernels.splits import SplitPlan, check_plan, plan_splits

SHARED_BYTES_PER_SM = 227 * 1024  # sm_90; 163 KiB on sm_80
LEAST_ROWS = 16  # of a tile, for tensor cores
MAX_ROWS = 64  # query rows of a tile; more heads than that a KV head take several programs
COMBINE_TILE = 16


@dataclass(frozen=True)
class DecodeConfig:
    """How the decode kernel is built; the defaults of block_n depend on head_dim (see
    `default_config`).

    block_n: tokens a loop iteration; num_stages: Triton's pipeline depth, which holds num_stages -
    1 K/V tiles; lookup: see `kernels.lookup`.
    """

    block_n: int = 64
    num_warps: int = 4
    num_stages: int = 3
    lookup: str = "auto"


def programs_per_sm(cache: KVCache, config: DecodeConfig) -> int:
    """How many programs one SM holds at once, by shared memory; registers allow about 16 warps."""
    tile = 2 * config.block_n * cache.head_dim * cache.k.element_size()
    return max(
        1,
        min(16 // config.num_warps, SHARED_BYTES_PER_SM // ((config.num_stages - 1) * tile + 4096)),
    )


def head_rows(group: int) -> int:
    """Query rows of a tile for a group of that many heads: a power of two; tensor cores take at
    least 16.
    """
    return min(MAX_ROWS, max(LEAST_ROWS, triton.next_power_of_2(group)))


def default_config(head_dim: int, group: int = 1) -> DecodeConfig:
    """A K/V pair of tiles of 32 KiB in 16-bit whatever the head size: two in flight, three programs
    an SM on sm_90. More than 16 heads a KV head would spill registers: they take twice the warps
    and, at 128, half the keys (checked in tests/kernels_static).
    """
    if head_rows(group) > LEAST_ROWS:
        return DecodeConfig(block_n=128 if head_dim == 64 else 32, num_warps=8)
    return DecodeConfig(block_n=8192 // head_dim)


def choose_splits(
    q: torch.Tensor,
    cache: KVCache,
    lengths: list[int],
    config: DecodeConfig,
    num_sms: int | None = None,
) -> SplitPlan:
    """The split plan for these lengths (on the host), on the tensor's GPU unless num_sms is
    given.
    """
    group = q.shape[1] // cache.num_kv_heads
    programs = cache.num_kv_heads * -(-group // head_rows(group))
    slots = (num_sms or launch.num_sms(q)) * programs_per_sm(cache, config)
    return plan_splits(lengths, programs, slots, config.block_n)


@dataclass(frozen=True)
class DecodeBuffers:
    """Where a decode writes: out (batch, heads, head_dim); with splits also fp32 part and lse, one
    row a piece.
    """

    out: torch.Tensor
    part: torch.Tensor | None = None
    lse: torch.Tensor | None = None

    @staticmethod
    def empty(q: torch.Tensor, plan: SplitPlan) -> DecodeBuffers:
        """New buffers for these queries and this plan."""
        out = torch.empty(q.shape, dtype=q.dtype, device=q.device)
        if plan.num_splits == 1:
            return DecodeBuffers(out)
        pieces = (*q.shape[:2], plan.num_splits)
        part = torch.empty((*pieces, q.shape[2]), dtype=torch.float32, device=q.device)
        return DecodeBuffers(out, part, torch.empty(pieces, dtype=torch.float32, device=q.device))


@dataclass(frozen=True)
class DecodeCall:
    """Everything a decode needs but the queries and the cache.

    where: (batch, max_blocks) block table, or (batch,) first slots for contiguous memory; lengths:
    (batch,) keys of each sequence, its new token included; scale: of the scores, 1/sqrt(head_dim)
    if None.
    """

    where: torch.Tensor
    lengths: torch.Tensor
    plan: SplitPlan
    config: DecodeConfig
    scale: float | None = None


def decode_launches(
    q: torch.Tensor, cache: KVCache, call: DecodeCall, buffers: DecodeBuffers
) -> list[Launch]:
    """The one or two launches of a decode; nothing is run or checked."""
    batch, num_heads, head_dim = q.shape
    plan, options = call.plan, _decode_options(q, cache, call)
    head_tiles = -(-options["GROUP"] // options["ROWS"])
    split = options["SPLIT"]
    scale = (head_dim**-0.5 if call.scale is None else call.scale) * launch.LOG2E * cache.k_scale
    where_stride = call.where.stride(0) if call.where.dim() == 2 else 1
    decode = Launch(
        decode_kernel,
        (cache.num_kv_heads * head_tiles, plan.num_splits, batch),
        (
            *(q, cache.k, cache.v, call.where, call.lengths),
            *((buffers.part, buffers.lse) if split else (buffers.out, None)),
            *(scale, float(cache.v_scale), q.stride(0), q.stride(1)),
            *(*cache.strides(), where_stride, num_heads, plan.split_tokens),
        ),
        options,
    )
    return [decode, combine_launch(call, buffers)] if split else [decode]


def _decode_options(q: torch.Tensor, cache: KVCache, call: DecodeCall) -> dict[str, Any]:
    """What the kernel is compiled for."""
    paged, config = cache.k.dim() == 4, call.config
    lookup = "contiguous"
    if paged:
        lookup = resolve_lookup(config.lookup, config.block_n, cache.block_size)
    group = q.shape[1] // cache.num_kv_heads
    return {
        "BLOCK_SIZE": cache.block_size if paged else 1,
        "HEAD_DIM": cache.head_dim,
        "GROUP": group,
        "ROWS": head_rows(group),
        "BLOCK_N": config.block_n,
        "LOOKUP": lookup,
        "SPLIT": call.plan.num_splits > 1,
        "DOT": launch.dot_dtype(q.dtype, cache.k.dtype),
        "num_warps": config.num_warps,
        "num_stages": config.num_stages,
    }


def combine_launch(call: DecodeCall, buffers: DecodeBuffers) -> Launch:
    """The pass that merges the pieces."""
    batch, num_heads, head_dim = buffers.out.shape
    return Launch(
        combine_kernel,
        (num_heads, batch),
        (
            buffers.part,
            buffers.lse,
            call.lengths,
            buffers.out,
            call.plan.num_splits,
            call.plan.split_tokens,
        ),
        {"HEAD_DIM": head_dim, "TILE": COMBINE_TILE, "num_warps": 4, "num_stages": 2},
    )


def paged_decode(
    q: torch.Tensor,
    cache: KVCache,
    block_table: torch.Tensor,
    lengths: torch.Tensor,
    *,
    config: DecodeConfig | None = None,
    plan: SplitPlan | None = None,
) -> torch.Tensor:
    """Attention of one new query a sequence over its blocks.

    q: (batch, num_heads, head_dim), fp16, bf16 or fp32; block_table: (batch, max_blocks), int32 or
    int64, entry j the block of tokens j * block_size onwards, in any physical order, entries past
    the end never read; lengths: (batch,), int32, keys of each sequence, the new token included; 0
    gives zeros. Returns the shape and dtype of q. Without `plan` the lengths are read back from the
    GPU to choose one, and then it is checked that every key lies in the cache; with a plan neither
    lengths nor table are checked there, and what they reach outside is read. Raises
    `KernelInputError`.
    """
    launch.check_cache(cache, paged=True)
    launch.check_query(q, cache)
    launch.check_index(block_table, "block_table", (q.shape[0], -1))
    return _decode(q, cache, block_table, lengths, (config, plan))


def contiguous_decode(
    q: torch.Tensor,
    cache: KVCache,
    first_slots: torch.Tensor,
    lengths: torch.Tensor,
    *,
    config: DecodeConfig | None = None,
    plan: SplitPlan | None = None,
) -> torch.Tensor:
    """`paged_decode` without the block table: key t of sequence i lies in slot first_slots[i] + t.

    cache: k and v (num_slots, num_kv_heads, head_dim); first_slots: (batch,), int32 or int64, with
    a plan not checked either. With the same block_n and plan the result equals `paged_decode`'s bit
    for bit: the order of every sum is the same.
    """
    launch.check_cache(cache, paged=False)
    launch.check_query(q, cache)
    launch.check_index(first_slots, "first_slots", (q.shape[0],))
    return _decode(q, cache, first_slots, lengths, (config, plan))


def _decode(
    q: torch.Tensor,
    cache: KVCache,
    where: torch.Tensor,
    lengths: torch.Tensor,
    choice: tuple[DecodeConfig | None, SplitPlan | None],
) -> torch.Tensor:
    launch.check_index(lengths, "lengths", (q.shape[0],))
    launch.check_device(q, cache.k, cache.v, where, lengths)
    config = choice[0] or default_config(cache.head_dim, q.shape[1] // cache.num_kv_heads)
    check_config(config)
    launch.check_tile("block_n", config.block_n)
    launch.check_batch(q.shape[0])
    plan, longest = choice[1], None
    if plan is None or lengths.device.type == "cpu":  # with a plan the GPU is not waited for
        known = lengths.tolist()
        check_lengths(known, where, cache.k)
        plan, longest = plan or choose_splits(q, cache, known, config), max(known)
    check_plan(plan, config.block_n, longest)
    buffers = DecodeBuffers.empty(q, plan)
    for each in decode_launches(q, cache, DecodeCall(where, lengths, plan, config), buffers):
        each()
    return buffers.out
