"""Every kernel against float64 before anything is timed: a fast kernel that is wrong has no
time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch

from kernels import reference
from kernels.calibrate.pool import padded
from kernels.calibrate.variants import decode_variant, variant
from kernels.cases import Case, Shape, make_case, relative_error, tolerance
from kernels.decode import DecodeConfig, contiguous_decode, default_config, paged_decode
from kernels.launch import BLOCK_SIZES, FP8, KVCache
from kernels.lookup import LOOKUPS
from kernels.moves import append, copy_blocks
from kernels.prefill import contiguous_prefill, paged_prefill
from kernels.splits import equal_splits
from kernels.standins import Model

BF16 = torch.bfloat16
LLAMA = Shape(32, 8, 128, 16, BF16)
LLAMA_FP8 = Shape(32, 8, 128, 16, BF16, FP8, 0.5, 2.0)
LENGTHS = [1, 700, 64, 129, 2000, 0]
CHUNKS, CONTEXTS = [1, 300, 64, 129], [40, 500, 0, 1]

# kernel, variant (see `kernels.calibrate.variants`), what, error on a device, tolerance
Check = tuple[str, str, str, Callable[[str], float], float]


def padded_table(case: Case) -> Case:
    """The case with rows as wide as calibrate's pool makes them, a multiple of 16 entries: the
    compiled kernel is then the one that is timed. The last column is poison and is repeated."""
    table = case.block_table
    missing = padded(table.shape[1]) - table.shape[1]
    last = table[:, -1:].expand(-1, missing)
    return case.with_table(torch.cat([table, last], 1).contiguous())


def _decode(
    shape: Shape,
    config: DecodeConfig | None = None,
    *,
    flat: bool = False,
    splits: int | None = None,
) -> Callable[[str], float]:
    def error(device: str) -> float:
        case = padded_table(make_case(shape, LENGTHS, device=device))
        tile = (config or default_config(shape.head_dim)).block_n
        plan = equal_splits(max(LENGTHS), splits, tile) if splits else None
        where = case.first_slots if flat else case.block_table
        cache, run = (case.flat, contiguous_decode) if flat else (case.cache, paged_decode)
        result = run(case.q, cache, where, case.lengths, config=config, plan=plan)
        truth = reference.paged_decode(case.q, case.cache, case.block_table, case.lengths)
        return relative_error(result, truth)

    return error


def _prefill(shape: Shape, *, flat: bool = False) -> Callable[[str], float]:
    def error(device: str) -> float:
        lengths = [a + b for a, b in zip(CHUNKS, CONTEXTS, strict=True)]
        case = padded_table(make_case(shape, lengths, num_queries=CHUNKS, device=device))
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


def _of_decode(
    what: str, shape: Shape, lookup: str = "auto", *, flat: bool = False, splits: int | None = None
) -> Check:
    config = None if lookup == "auto" else DecodeConfig(num_stages=5, lookup=lookup)
    model = Model(shape.num_heads, shape.num_kv_heads, shape.head_dim, BF16, shape.kv_dtype)
    name = decode_variant(model, 0 if flat else shape.block_size, lookup)
    return "decode", name, what, _decode(shape, config, flat=flat, splits=splits), tolerance(shape)


def _decode_checks() -> list[Check]:
    found = [_of_decode("contiguous", LLAMA, flat=True)]
    found.append(_of_decode("contiguous, not split", LLAMA, flat=True, splits=1))
    for size in BLOCK_SIZES:
        shape = replace(LLAMA, block_size=size)
        found.append(_of_decode(f"block {size}", shape))
        found.append(_of_decode(f"block {size}, not split", shape, splits=1))
    for lookup in LOOKUPS[1:]:
        for splits in (None, 1):
            what = f"{lookup}, {'not split' if splits else 'split'}"
            found.append(_of_decode(what, replace(LLAMA, block_size=64), lookup, splits=splits))
    found += [
        _of_decode(f"heads {heads}", Shape(*heads, 128, 16, BF16))
        for heads in ((8, 1), (64, 8), (32, 32))
    ]
    found.append(_of_decode("fp8", LLAMA_FP8))
    found.append(_of_decode("fp8, not split", LLAMA_FP8, splits=1))
    return found


def checks() -> list[Check]:
    """The cases; each poisons with NaN all that must not be read."""
    found = _decode_checks()
    pieces = _decode(LLAMA, flat=True, splits=8)
    found.append(("combine", variant("combine", BF16), "8 pieces", pieces, tolerance(LLAMA)))
    paged = variant("prefill", BF16, "paged")
    for size in BLOCK_SIZES:
        shape = replace(LLAMA, block_size=size)
        found.append(("prefill", paged, f"block {size}", _prefill(shape), tolerance(shape)))
    flat = _prefill(LLAMA, flat=True)
    name = variant("prefill", BF16, "contiguous")
    found.append(("prefill", name, "contiguous", flat, tolerance(LLAMA)))
    found.append(("append", variant("append", BF16), "bf16", _moved(LLAMA, _append), 0.0))
    found.append(("copy_blocks", variant("copy_blocks", BF16), "bf16", _moved(LLAMA, _copy), 0.0))
    return found


def run_checks(device: str) -> list[dict[str, Any]]:
    """Every check with its error; ok where it is within the tolerance. A kernel that raises is
    reported, not raised."""
    results = []
    for kernel, name, what, error_on, allowed in checks():
        try:
            error, failure = error_on(device), ""
        except (
            Exception
        ) as problem:  # a kernel that cannot run must not end the calibration of the others
            error, failure = float("inf"), f"{type(problem).__name__}: {problem}"[:200]
        results.append(
            {
                "kernel": kernel,
                "variant": name,
                "what": what,
                "error": error,
                "tolerance": allowed,
                "ok": error <= allowed,
                "failure": failure,
            }
        )
    return results
