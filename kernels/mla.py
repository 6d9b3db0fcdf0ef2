"""mla_decode: the host side of `kernels.mla_kernel`."""

from __future__ import annotations

import torch

from kernels import launch
from kernels.decode import DecodeBuffers, DecodeCall, DecodeConfig, combine_launch
from kernels.launch import Launch, require
from kernels.lookup import check_config, check_lengths, resolve_lookup
from kernels.mla_kernel import mla_decode_kernel
from kernels.splits import SplitPlan, check_plan, plan_splits

LATENT, ROPE = 512, 64  # of DeepSeek-V2, V3 and R1
WIDTH = LATENT + ROPE
SCALE = 192**-0.5  # their unabsorbed query is 128 + 64 wide
# Heads a tile, the least that tensor cores take. The output of one is 512 wide: 64 heads do not fit
# into the registers of the warps that Triton gives them, so DeepSeek's 128 heads read a tile eight
# times, seven of them from L2. Kernels with hand-written warp groups read it once or twice.
ROWS = 16
DEFAULT = DecodeConfig(block_n=32, num_warps=4, num_stages=3)


def choose_splits(
    num_heads: int, lengths: list[int], config: DecodeConfig, num_sms: int
) -> SplitPlan:
    """The split plan for these lengths; by shared memory an SM holds two programs."""
    return plan_splits(lengths, -(-num_heads // ROWS), 2 * num_sms, config.block_n)


def mla_buffers(q: torch.Tensor, plan: SplitPlan) -> DecodeBuffers:
    """New buffers for these queries and this plan; outputs are as wide as the latent."""
    return DecodeBuffers.empty(q[..., :LATENT], plan)


def mla_launches(
    q: torch.Tensor, cache: torch.Tensor, call: DecodeCall, buffers: DecodeBuffers
) -> list[Launch]:
    """The one or two launches of an MLA decode; nothing is run or checked."""
    batch, num_heads, _ = q.shape
    config, plan, block_size = call.config, call.plan, int(cache.shape[1])
    split = plan.num_splits > 1
    scale = (SCALE if call.scale is None else call.scale) * launch.LOG2E
    decode = Launch(
        mla_decode_kernel,
        (-(-num_heads // ROWS), plan.num_splits, batch),
        (
            *(q, cache, call.where, call.lengths),
            *((buffers.part, buffers.lse) if split else (buffers.out, None)),
            *(scale, q.stride(0), q.stride(1), cache.stride(0), cache.stride(1)),
            *(call.where.stride(0), num_heads, plan.split_tokens),
        ),
        {
            "BLOCK_SIZE": block_size,
            "LATENT": LATENT,
            "ROPE": ROPE,
            "ROWS": ROWS,
            "BLOCK_N": config.block_n,
            "LOOKUP": resolve_lookup(config.lookup, config.block_n, block_size),
            "SPLIT": split,
            "DOT": launch.dot_dtype(q.dtype, cache.dtype),
            "num_warps": config.num_warps,
            "num_stages": config.num_stages,
        },
    )
    return [decode, combine_launch(call, buffers)] if split else [decode]


def mla_decode(
    q: torch.Tensor,
    cache: torch.Tensor,
    block_table: torch.Tensor,
    lengths: torch.Tensor,
    *,
    config: DecodeConfig | None = None,
    plan: SplitPlan | None = None,
) -> torch.Tensor:
    """Latent attention of one new query a sequence over its blocks.

    q: (batch, num_heads, 576), fp16, bf16 or fp32, the query of the latent and behind it the
    rotated one; cache: (num_blocks, block_size, 576), the same dtype, last dimension contiguous;
    block_table, lengths, plan as in `paged_decode`, and as little checked with a plan. Scores are
    multiplied by 192^-0.5; a model with YaRN multiplies its own factor into the queries. Returns
    (batch, num_heads, 512), still to be projected. Raises `KernelInputError`.
    """
    config = config or DEFAULT
    _check(q, cache, config)
    launch.check_index(block_table, "block_table", (q.shape[0], -1))
    launch.check_index(lengths, "lengths", (q.shape[0],))
    launch.check_device(q, cache, block_table, lengths)
    longest = None
    if plan is None or lengths.device.type == "cpu":  # with a plan the GPU is not waited for
        known = lengths.tolist()
        check_lengths(known, block_table, cache)
        plan = plan or choose_splits(q.shape[1], known, config, launch.num_sms(q))
        longest = max(known)
    check_plan(plan, config.block_n, longest)
    buffers = mla_buffers(q, plan)
    call = DecodeCall(block_table, lengths, plan, config)
    for each in mla_launches(q, cache, call, buffers):
        each()
    return buffers.out


def _check(q: torch.Tensor, cache: torch.Tensor, config: DecodeConfig) -> None:
    launch.check_tensors(queries=q, cache=cache)
    require(
        q.dim() == 3
        and cache.dim() == 3
        and q.shape[1] > 0
        and q.shape[2] == cache.shape[2] == WIDTH,
        f"queries must be (batch, heads, {WIDTH}) and the cache (blocks, block size, {WIDTH}), "
        f"they are {tuple(q.shape)} and {tuple(cache.shape)}.",
    )
    require(q.stride(2) == cache.stride(2) == 1, "the last dimension of both must be contiguous.")
    require(
        q.dtype == cache.dtype and q.dtype in launch.QUERY_DTYPES,
        f"queries of {q.dtype} do not go with a latent cache of {cache.dtype}: "
        "use float16, bfloat16 or float32 for both.",
    )
    require(
        cache.shape[1] in launch.BLOCK_SIZES,
        f"block size {cache.shape[1]} is not supported, only {launch.BLOCK_SIZES}.",
    )
    launch.check_reach(int(cache.shape[1]), cache.stride(1))
    launch.check_batch(q.shape[0])
    check_config(config)
    launch.check_tile("block_n", config.block_n)
