"""A point turned into launches that only need to be run: one for every disjoint slice of the
pool."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from kernels import mla, reference
from kernels.calibrate.points import HIDDEN, INTERMEDIATE, Point
from kernels.calibrate.pool import Pool, padded
from kernels.cases import relative_error
from kernels.decode import (
    DecodeBuffers,
    DecodeCall,
    choose_splits,
    combine_launch,
    decode_launches,
    default_config,
)
from kernels.launch import KVCache, Launch
from kernels.layer_ops import add_rms_norm_launch, rope_launch, silu_and_mul_launch
from kernels.prefill import PrefillCall, prefill_launch
from kernels.prefill import default_config as default_prefill
from kernels.splits import SplitPlan, equal_splits

NAN = float("nan")  # what outputs hold before: a kernel that writes nothing is then found out
# A launch, or a torch call; returns the compiled kernel if it is one of ours.
Step = Callable[[], Any]


@dataclass
class Work:
    """What is timed: sets[i] is one call on slice i of the pool, as one or more steps."""

    sets: list[list[Step]]
    splits: int = 0
    tile_bytes: int = 0
    check: Callable[[int], float] | None = None  # relative error of what set i wrote


def split_plan(point: Point, q: torch.Tensor, cache: KVCache, num_sms: int) -> SplitPlan:
    """The heuristic's plan for the point's lengths, or the number of pieces it asks for."""
    if point.kernel == "mla":
        return mla.choose_splits(q.shape[1], list(point.lengths), mla.DEFAULT, num_sms)
    config = point.config or default_config(point.model.head_dim, point.model.group)
    if point.splits is not None:
        return equal_splits(max(point.lengths), point.splits, config.block_n)
    return choose_splits(q, cache, list(point.lengths), config, num_sms)


def _where(point: Point, pool: Pool, cache: KVCache, sets: int) -> list[torch.Tensor]:
    """The block table, or the first slots, of every set."""
    lengths = np.array(point.lengths)
    if point.block_size:
        return list(pool.put(pool.tables(cache, lengths, sets, point.order)))
    return [row[: len(lengths)] for row in pool.put(pool.first_slots(point.model, lengths, sets))]


def _sets(point: Point, pool: Pool) -> int:
    if point.l2 == "warm":
        return 1
    fits = pool.num_slots(point.model) // sum(
        padded(n) if point.block_size <= 16 else -(-n // 256) * 256 for n in point.lengths
    )
    return max(1, min(pool.rotations(point.kv_bytes), fits))


def _decode(point: Point, pool: Pool) -> Work:
    model, cache = point.model, pool.cache(point.model, point.block_size)
    config = point.config or default_config(model.head_dim, model.group)
    q = pool.random(len(point.lengths), model.num_heads, model.head_dim)
    plan = split_plan(point, q, cache, pool.device.num_sms)
    buffers = DecodeBuffers.empty(q, plan)
    buffers.out.fill_(NAN)
    lengths = pool.put(np.array(point.lengths, np.int32))
    calls = [
        DecodeCall(where, lengths, plan, config)
        for where in _where(point, pool, cache, _sets(point, pool))
    ]
    if point.kernel == "combine":
        buffers.part.normal_(), buffers.lse.normal_()
        return Work([[combine_launch(calls[0], buffers)]], plan.num_splits)

    def check(index: int) -> float:
        return _first_row_error(q[:1], cache, calls[index].where, point.lengths[0], buffers.out[:1])

    sets: list[list[Step]] = [list(decode_launches(q, cache, call, buffers)) for call in calls]
    return Work(sets, plan.num_splits, model.tile_bytes(config.block_n), check)


def _mla(point: Point, pool: Pool) -> Work:
    model, blocks = point.model, pool.cache(point.model, point.block_size)
    cache = blocks.k.flatten(2)
    q = pool.random(len(point.lengths), model.num_heads, model.head_dim)
    plan = split_plan(point, q, blocks, pool.device.num_sms)
    buffers = mla.mla_buffers(q, plan)
    buffers.out.fill_(NAN)
    lengths = pool.put(np.array(point.lengths, np.int32))
    tables = _where(point, pool, blocks, _sets(point, pool))
    sets: list[list[Step]] = [
        list(mla.mla_launches(q, cache, DecodeCall(table, lengths, plan, mla.DEFAULT), buffers))
        for table in tables
    ]

    def check(index: int) -> float:
        first = q[:1], cache, tables[index][:1], lengths[:1]
        return relative_error(buffers.out[:1], reference.mla_decode(*first, mla.LATENT, mla.SCALE))

    tile = mla.DEFAULT.block_n * mla.WIDTH * cache.element_size()
    return Work(sets, plan.num_splits, tile, check)


def _first_row_error(
    q: torch.Tensor, cache: KVCache, where: torch.Tensor, length: int, result: torch.Tensor
) -> float:
    """Of the last query of the first sequence: it sees all its keys."""
    flat = cache
    if where.dim() == 2:
        flat, slots = cache.flat(), reference.paged_slots(where[0], length, cache.block_size)
    else:
        slots = torch.arange(length, device=q.device) + where[0]
    return relative_error(result, reference._attend_slots(q, flat, slots))


def _prefill(point: Point, pool: Pool) -> Work:
    model, cache = point.model, pool.cache(point.model, point.block_size)
    batch, config = len(point.lengths), default_prefill(model.head_dim, pool.device.arch)
    q = pool.random(batch * point.queries, model.num_heads, model.head_dim)
    out = torch.full_like(q, NAN)
    starts = pool.put(np.arange(batch + 1, dtype=np.int32) * point.queries)
    lengths = pool.put(np.array(point.lengths, np.int32))
    tables = _where(point, pool, cache, _sets(point, pool))
    sets: list[list[Step]] = [
        [prefill_launch(q, cache, PrefillCall(where, starts, lengths, point.queries, config), out)]
        for where in tables
    ]

    def check(index: int) -> float:
        last = slice(point.queries - 1, point.queries)
        return _first_row_error(q[last], cache, tables[index], point.lengths[0], out[last])

    return Work(sets, 1, check=check)


def _linear(point: Point, pool: Pool) -> Work:
    n, k = point.size
    x, out = pool.random(point.queries, k), pool.empty(point.queries, n).fill_(NAN)
    copies = pool.weights(n, k, pool.rotations(2 * n * k, most=16))

    def check(index: int) -> float:
        return relative_error(out[:4, :64], x[:4].double() @ copies[index][:64].double().t())

    return Work([[matmul_step(x, weight, out)] for weight in copies], check=check)


def matmul_step(x: torch.Tensor, weight: torch.Tensor, out: torch.Tensor) -> Step:
    """out = x weight^T, by cuBLAS."""

    def step() -> None:
        torch.mm(x, weight.t(), out=out)

    return step


def _small(point: Point, pool: Pool) -> Work:
    model, rows = point.model, point.queries
    if point.kernel == "add_rms_norm":
        x, residual, out = (
            pool.random(rows, HIDDEN),
            pool.random(rows, HIDDEN),
            pool.empty(rows, HIDDEN),
        )
        return Work([[add_rms_norm_launch(x, residual, pool.random(HIDDEN), out)]])
    if point.kernel == "silu_and_mul":
        return Work(
            [
                [
                    silu_and_mul_launch(
                        pool.random(rows, 2 * INTERMEDIATE), pool.empty(rows, INTERMEDIATE)
                    )
                ]
            ]
        )
    heads = model.num_heads + model.num_kv_heads
    fused = pool.random(rows, heads + model.num_kv_heads, model.head_dim)
    return Work([[rope_step(fused[:, :heads], pool, np.arange(rows))]])


def rope_step(x: torch.Tensor, pool: Pool, positions: np.ndarray) -> Launch:
    """Rotate the heads of x by those positions, with Llama's base."""
    half = x.shape[-1] // 2
    angle = np.arange(int(positions.max()) + 1)[:, None] / 500000.0 ** (np.arange(half) / half)
    cos, sin = (pool.put(f(angle).astype(np.float32)) for f in (np.cos, np.sin))
    return rope_launch(x, cos, sin, pool.put(positions.astype(np.int32)))


PARTS: dict[str, Callable[[Point, Pool], Work]] = {
    "decode": _decode,
    "combine": _decode,
    "mla": _mla,
    "prefill": _prefill,
    "linear": _linear,
    "add_rms_norm": _small,
    "rope": _small,
    "silu_and_mul": _small,
}
