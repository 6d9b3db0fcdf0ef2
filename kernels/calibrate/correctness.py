"""Every kernel against float64 before anything is timed: a fast kernel that is wrong has no
time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from kernels import reference
from kernels.cases import Case, Shape, make_case, relative_error, tolerance
from kernels.decode import DecodeConfig, contiguous_decode, paged_decode
from kernels.launch import FP8, KVCache
from kernels.moves import append, copy_blocks
from kernels.prefill import contiguous_prefill, paged_prefill

BF16 = torch.bfloat16
LLAMA = Shape(32, 8, 128, 16, BF16)
LENGTHS = [1, 700, 64, 129, 2000, 0]
CHUNKS, CONTEXTS = [1, 300, 64, 129], [40, 500, 0, 1]

Check = tuple[str, str, Callable[[str], float], float]  # kernel, what, error on a device, tolerance


def _decode(
    shape: Shape, config: DecodeConfig | None = None, *, flat: bool = False
) -> Callable[[str], float]:
    def error(device: str) -> float:
        case = make_case(shape, LENGTHS, device=device)
        if flat:
            result = contiguous_decode(
                case.q, case.flat, case.first_slots, case.lengths, config=config
            )
        else:
            result = paged_decode(case.q, case.cache, case.block_table, case.lengths, config=config)
        truth = reference.paged_decode(case.q, case.cache, case.block_table, case.lengths)
        return relative_error(result, truth)

    return error


def _prefill(shape: Shape, *, flat: bool = False) -> Callable[[str], float]:
    def error(device: str) -> float:
        lengths = [a + b for a, b in zip(CHUNKS, CONTEXTS, strict=True)]
        case = make_case(shape, lengths, num_queries=CHUNKS, device=device)
        spans = (case.query_starts, case.lengths)
        if flat:
            result = contiguous_prefill(case.q, case.flat, case.first_slots, *spans)
        else:
            result = paged_prefill(case.q, case.cache, case.block_table, *spans)
        return relative_error(
            result, reference.paged_prefill(case.q, case.cache, case.block_table, *spans)
        )

    return error


def _moved(shape: Shape, move: Callable[[Any, Case, KVCache], None]) -> Callable[[str], float]:
    """0 where the kernel and the reference leave the same bytes, else infinity."""

    def error(device: str) -> float:
        case = make_case(shape, [200, 90], device=device)
        ours, theirs = (
            KVCache(case.cache.k.clone(), case.cache.v.clone(), 0.5, 2.0) for _ in range(2)
        )
        move((append, copy_blocks), case, ours)
        move((reference.append, reference.copy_blocks), case, theirs)
        same = all(
            torch.equal(a.view(torch.uint8), b.view(torch.uint8))
            for a, b in ((ours.k, theirs.k), (ours.v, theirs.v))
        )
        return 0.0 if same else float("inf")

    return error


def _append(functions: Any, case: Case, cache: KVCache) -> None:
    new = case.q.view(-1, cache.num_kv_heads, cache.head_dim)
    slots = torch.arange(len(new), device=new.device) * 3
    functions[0](new, new, cache, slots)


def _copy(functions: Any, case: Case, cache: KVCache) -> None:
    pairs = torch.tensor([[0, 3], [1, 4]], device=case.q.device)
    functions[1](cache, cache, pairs)


def checks() -> list[Check]:
    """The cases; each poisons with NaN all that must not be read."""
    found: list[Check] = [("decode", "contiguous", _decode(LLAMA, flat=True), tolerance(LLAMA))]
    for size in (1, 16, 64, 256):
        shape = Shape(32, 8, 128, size, BF16)
        found.append(("decode", f"block {size}", _decode(shape), tolerance(shape)))
    for lookup in ("inline", "ahead", "inline_scalar", "ahead_scalar"):
        shape = Shape(32, 8, 128, 64, BF16)
        found.append(
            (
                "decode",
                lookup,
                _decode(shape, DecodeConfig(num_stages=5, lookup=lookup)),
                tolerance(shape),
            )
        )
    for heads in ((8, 1), (64, 8), (32, 32)):
        shape = Shape(*heads, 128, 16, BF16)
        found.append(("decode", f"heads {heads}", _decode(shape), tolerance(shape)))
    fp8 = Shape(32, 8, 128, 16, BF16, FP8, 0.5, 2.0)
    found.append(("decode", "fp8", _decode(fp8), tolerance(fp8)))
    for size in (16, 64):
        shape = Shape(32, 8, 128, size, BF16)
        found.append(("prefill", f"block {size}", _prefill(shape), tolerance(shape)))
    found.append(("prefill", "contiguous", _prefill(LLAMA, flat=True), tolerance(LLAMA)))
    found.append(("append", "bf16", _moved(LLAMA, _append), 0.0))
    found.append(("copy_blocks", "bf16", _moved(LLAMA, _copy), 0.0))
    return found


def run_checks(device: str) -> list[dict[str, Any]]:
    """Every check with its error; ok where it is within the tolerance. A kernel that raises is
    reported, not raised."""
    results = []
    for kernel, what, error_on, allowed in checks():
        try:
            error, failure = error_on(device), ""
        except (
            Exception
        ) as problem:  # a kernel that cannot run must not end the calibration of the others
            error, failure = float("inf"), f"{type(problem).__name__}: {problem}"[:200]
        results.append(
            {
                "kernel": kernel,
                "what": what,
                "error": error,
                "tolerance": allowed,
                "ok": error <= allowed,
                "failure": failure,
            }
        )
    return results
