"""A whole transformer layer, to see whether the times of its parts add up."""

from __future__ import annotations

import numpy as np
import torch

from kernels.calibrate.points import HIDDEN, INTERMEDIATE, Point, layers
from kernels.calibrate.pool import Pool
from kernels.calibrate.works import Step, Work, matmul_step, rope_step, split_plan
from kernels.decode import DecodeBuffers, DecodeCall, decode_launches, default_config
from kernels.layer_ops import add_rms_norm_launch, silu_and_mul_launch
from kernels.moves import append_launch

WEIGHT_STD = 0.02
FFN_RATIO = INTERMEDIATE / HIDDEN


def layer_work(point: Point, pool: Pool) -> Work:
    """`layers(point)` layers with weights and keys of their own, one call after another, as one
    set."""
    model, batch = point.model, len(point.lengths)
    hidden = model.num_heads * model.head_dim
    wide = int(hidden * FFN_RATIO)
    heads = model.num_heads + 2 * model.num_kv_heads
    lengths = np.array(point.lengths)
    cache = pool.cache(model, point.block_size)
    fits = max(1, pool.num_slots(model) // int((-(-lengths // 16) * 16).sum()))
    tables = pool.tables(cache, lengths, min(layers(point), fits), point.order)
    shared = _Shared(point, pool, hidden, wide, heads)
    steps: list[Step] = []
    for i in range(layers(point)):
        table = tables[i % len(tables)]
        last = lengths - 1
        slots = (
            table[np.arange(batch), last // point.block_size].astype(np.int64) * point.block_size
            + last % point.block_size
        )
        steps += shared.steps(pool.put(table), pool.put(slots))
    return Work([steps], shared.plan.num_splits)


class _Shared:
    """The activations, which all layers share, and the making of one layer's steps."""

    def __init__(self, point: Point, pool: Pool, hidden: int, wide: int, heads: int):
        model, batch = point.model, len(point.lengths)
        self.point, self.pool, self.hidden, self.wide = point, pool, hidden, wide
        self.cache = pool.cache(model, point.block_size)
        self.x, self.residual, self.normed = (
            pool.random(batch, hidden),
            pool.random(batch, hidden),
            pool.empty(batch, hidden),
        )
        self.qkv = pool.random(batch, heads, model.head_dim)
        self.q = self.qkv[:, : model.num_heads]
        self.plan = split_plan(point, self.q, self.cache, pool.device.num_sms)
        self.gate_up, self.gated = pool.random(batch, 2 * wide), pool.empty(batch, wide)
        self.buffers = DecodeBuffers.empty(self.qkv[:, : model.num_heads], self.plan)
        self.lengths = pool.put(np.array(point.lengths, np.int32))
        rotated = self.qkv[:, : model.num_heads + model.num_kv_heads]
        self.rope = rope_step(rotated, pool, np.array(point.lengths) - 1)

    def steps(self, table: torch.Tensor, slots: torch.Tensor) -> list[Step]:
        """Norm, qkv, rope, append, attention, output, norm, gate and up, activation, down: eleven
        to twelve launches."""
        pool, batch = self.pool, self.x.shape[0]
        model, hidden, wide = self.point.model, self.hidden, self.wide
        flat = self.qkv.view(batch, -1)
        to_qkv, to_out, to_wide, to_narrow = (
            pool.random(n, k, scale=WEIGHT_STD)
            for n, k in (
                (flat.shape[1], hidden),
                (hidden, hidden),
                (2 * wide, hidden),
                (hidden, wide),
            )
        )
        k = self.qkv[:, model.num_heads : model.num_heads + model.num_kv_heads]
        v = self.qkv[:, model.num_heads + model.num_kv_heads :]
        call = DecodeCall(
            table, self.lengths, self.plan, default_config(model.head_dim, model.group)
        )
        norms = [
            add_rms_norm_launch(self.x, self.residual, pool.random(hidden), self.normed)
            for _ in range(2)
        ]
        return [
            norms[0],
            matmul_step(self.normed, to_qkv, flat),
            self.rope,
            append_launch(k, v, self.cache, slots),
            *decode_launches(self.q, self.cache, call, self.buffers),
            matmul_step(self.buffers.out.view(batch, hidden), to_out, self.x),
            norms[1],
            matmul_step(self.normed, to_wide, self.gate_up),
            silu_and_mul_launch(self.gate_up, self.gated),
            matmul_step(self.gated, to_narrow, self.x),
        ]


def sum_of_parts(row: dict[str, object], rows: list[dict[str, object]]) -> float | None:
    """What the parts of a layer, timed alone, add to in us a layer; None if one of them was not
    timed or was refused.

    row: a composition row of points.csv; rows: all rows.
    """
    batch = row["batch"]

    def alone(kernel: str, variant: str, tokens: object) -> float | None:
        found = [
            r["us"]
            for r in rows
            if (r["kernel"], r["variant"], r["q_tokens"]) == (kernel, variant, tokens)
            and r["dtype"] == row["dtype"]
            and r["section"] in ("linears", "moves")
            and r["ok"]
        ]
        return float(found[0]) if found and found[0] is not None else None  # type: ignore[arg-type]

    decode = [
        r["us"]
        for r in rows
        if r["section"] == "decode"
        and r["ok"]
        and (r["page"], r["batch"], r["len_spec"]) == (16, batch, row["len_spec"])
    ]
    parts = [alone("linear", name, batch) for name in ("qkv", "o", "gate_up", "down")]
    parts += [
        alone(name, "auto", batch)
        for name in ("add_rms_norm", "add_rms_norm", "rope", "silu_and_mul", "append")
    ]
    parts.append(float(decode[0]) if decode and decode[0] is not None else None)  # type: ignore[arg-type]
    return None if None in parts else sum(p for p in parts if p is not None)
