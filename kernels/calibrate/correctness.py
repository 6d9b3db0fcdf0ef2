"""Every kernel variant against float64 before anything is timed: a fast kernel that is wrong has no
time."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import torch

from kernels import mla, reference
from kernels.calibrate import correctness_ops as ops
from kernels.calibrate.pool import padded
from kernels.calibrate.sanity import OUT_OF_TIME
from kernels.calibrate.variants import Variant
from kernels.cases import Case, Shape, make_case, relative_error, tolerance
from kernels.decode import contiguous_decode, paged_decode
from kernels.launch import FP8
from kernels.prefill import PrefillConfig, contiguous_prefill, paged_prefill
from kernels.splits import equal_splits
from kernels.standins import Model


@dataclass(frozen=True)
class Scale:
    """How large the checks are.

    lengths: keys of the sequences of a decode; chunks, contexts: new and earlier tokens of those
    of a prefill; pieces: of a split decode; small: one KV head and small matrices, for the
    interpreter.
    """

    lengths: tuple[int, ...] = (1, 700, 64, 129, 2000, 0)
    chunks: tuple[int, ...] = (1, 300, 64, 129)
    contexts: tuple[int, ...] = (40, 500, 0, 1)
    pieces: int = 8
    small: bool = False


FULL = Scale()
REHEARSAL = Scale((150, 1), (20, 1), (50, 0), 2, True)


def shape_of(model: Model, block_size: int, scale: Scale) -> Shape:
    """The model's attention as a problem; fp8 with scales that are powers of two."""
    heads = model.num_heads, model.num_kv_heads
    if scale.small:
        heads = model.num_heads // model.num_kv_heads, 1
    scales = (0.5, 2.0) if model.stored == FP8 else (1.0, 1.0)
    return Shape(*heads, model.head_dim, block_size or 16, model.dtype, model.kv_dtype, *scales)


def padded_table(case: Case) -> Case:
    """The case with rows as wide as calibrate's pool makes them, a multiple of 16 entries: the
    compiled kernel is then the one that is timed. The last column is poison and is repeated."""
    table = case.block_table
    missing = padded(table.shape[1]) - table.shape[1]
    last = table[:, -1:].expand(-1, missing)
    return case.with_table(torch.cat([table, last], 1).contiguous())


@lru_cache(maxsize=4)
def _decode_case(shape: Shape, scale: Scale, device: str) -> tuple[Case, torch.Tensor]:
    """The problem and its solution, for all variants of one shape."""
    case = padded_table(make_case(shape, list(scale.lengths), device=device))
    return case, reference.paged_decode(case.q, case.cache, case.block_table, case.lengths)


def _decode(variant: Variant, scale: Scale, device: str) -> float:
    case, truth = _decode_case(shape_of(variant.model, variant.block_size, scale), scale, device)
    config = variant.config
    pieces = scale.pieces if variant.split else 1
    plan = equal_splits(max(scale.lengths), pieces, config.block_n if config else 64)
    choice = {"config": config, "plan": plan}
    if variant.block_size:
        result = paged_decode(case.q, case.cache, case.block_table, case.lengths, **choice)
    else:
        result = contiguous_decode(case.q, case.flat, case.first_slots, case.lengths, **choice)
    return relative_error(result, truth)


def _mla(variant: Variant, scale: Scale, device: str) -> float:
    shape = Shape(1, 1, mla.WIDTH, variant.block_size, variant.model.dtype)
    case, _ = _decode_case(shape, scale, device)
    heads = 4 if scale.small else variant.model.num_heads
    q = ops.random(len(scale.lengths), heads, mla.WIDTH, device=device)
    given = q, case.cache.k.flatten(2), case.block_table, case.lengths
    pieces = scale.pieces if variant.split else 1
    plan = equal_splits(max(scale.lengths), pieces, mla.DEFAULT.block_n)
    result = mla.mla_decode(*given, config=variant.config, plan=plan)
    return relative_error(result, reference.mla_decode(*given, mla.LATENT, mla.SCALE))


def _prefill(variant: Variant, scale: Scale, device: str) -> float:
    lengths = [a + b for a, b in zip(scale.chunks, scale.contexts, strict=True)]
    shape = shape_of(variant.model, variant.block_size, scale)
    case = make_case(shape, lengths, num_queries=list(scale.chunks), device=device)
    case, spans = padded_table(case), (case.query_starts, case.lengths)
    config = PrefillConfig(32, 32) if scale.small else None
    if variant.block_size:
        result = paged_prefill(case.q, case.cache, case.block_table, *spans, config=config)
    else:
        result = contiguous_prefill(case.q, case.flat, case.first_slots, *spans, config=config)
    truth = reference.paged_prefill(case.q, case.cache, case.block_table, *spans)
    return relative_error(result, truth)


def _moved(variant: Variant, scale: Scale, device: str) -> float:
    shape = shape_of(variant.model, variant.block_size, scale)
    return ops.moved(variant.kernel, shape, device)


def _operation(variant: Variant, scale: Scale, device: str) -> float:
    return ops.OPERATIONS[variant.kernel](device, scale.small)


def _combine(variant: Variant, scale: Scale, device: str) -> float:
    latent = variant.model.head_dim == mla.WIDTH
    return ops.combine(device, scale.small, mla.LATENT if latent else variant.model.head_dim)


def _linear(variant: Variant, scale: Scale, device: str) -> float:
    size = (64, 64) if scale.small else variant.size
    return ops.linear(size, min(variant.rows, 8) if scale.small else variant.rows, device)


def _host_copy(variant: Variant, scale: Scale, device: str) -> float:
    return ops.host_copy(variant.kernel, variant.size[1], device)


CHECKS: dict[str, Callable[[Variant, Scale, str], float]] = {
    "decode": _decode,
    "mla": _mla,
    "prefill": _prefill,
    "append": _moved,
    "copy_blocks": _moved,
    "linear": _linear,
    "h2d": _host_copy,
    "d2h": _host_copy,
    "combine": _combine,
    **dict.fromkeys(ops.OPERATIONS, _operation),
}
EXACT = ("append", "copy_blocks", "h2d", "d2h")  # the same bytes or wrong


def run_checks(
    variants: Iterable[Variant], device: str, scale: Scale = FULL, deadline: float = math.inf
) -> list[dict[str, Any]]:
    """Every variant with its error; ok where it is within the tolerance. A kernel that raises is
    reported, not raised. deadline: of time.monotonic(), after which nothing more is checked."""
    results = [_checked(variant, device, scale, deadline) for variant in variants]
    _decode_case.cache_clear()  # the memory is needed for what is timed
    ops.clear()
    return results


def _checked(variant: Variant, device: str, scale: Scale, deadline: float) -> dict[str, Any]:
    allowed = 0.0 if variant.kernel in EXACT else tolerance(Shape(dtype=variant.model.dtype))
    error, failure = float("inf"), OUT_OF_TIME
    try:
        if time.monotonic() < deadline:
            error, failure = CHECKS[variant.kernel](variant, scale, device), ""
    except Exception as problem:  # what cannot run must not end the calibration of the others
        error, failure = float("inf"), f"{type(problem).__name__}: {problem}"[:200]
    return {
        "kernel": variant.kernel,
        "variant": variant.name,
        "error": error,
        "tolerance": allowed,
        "ok": error <= allowed,
        "failure": failure,
    }


def broken(results: list[dict[str, Any]]) -> set[str]:
    """Names of the variants that failed."""
    return {result["variant"] for result in results if not result["ok"]}
