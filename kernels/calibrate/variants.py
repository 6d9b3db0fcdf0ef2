"""Names of kernel variants, so that a failed correctness check refuses what it checked and no
more."""

from __future__ import annotations

import torch

from kernels.calibrate.points import Point
from kernels.decode import default_config
from kernels.launch import FP8
from kernels.lookup import resolve_lookup
from kernels.standins import Model


def variant(kernel: str, stored: torch.dtype, layout: str = "") -> str:
    """kernel, dtype of the cache, and how keys are found (a lookup, "paged" or "contiguous")."""
    dtype = "fp8" if stored == FP8 else str(stored).removeprefix("torch.")
    return " ".join(part for part in (kernel, dtype, layout) if part)


def decode_variant(model: Model, block_size: int, lookup: str = "auto", block_n: int = 0) -> str:
    """The variant of a decode; block_size 0: contiguous; block_n 0: the default."""
    if not block_size:
        return variant("decode", model.stored, "contiguous")
    block_n = block_n or default_config(model.head_dim).block_n
    return variant("decode", model.stored, resolve_lookup(lookup, block_n, block_size))


def needed_variants(point: Point) -> set[str]:
    """The variants that must be right for the point's time to mean anything: a layer and a combine
    pass need those of their parts."""
    model, combine = point.model, variant("combine", torch.bfloat16)
    if point.kernel in ("decode", "combine", "layer"):
        lookup, block_n = "auto", 0
        if point.config:
            lookup, block_n = point.config.lookup, point.config.block_n
        needed = {decode_variant(model, point.block_size, lookup, block_n), combine}
        return needed | ({variant("append", model.stored)} if point.kernel == "layer" else set())
    if point.kernel == "prefill":
        layout = "paged" if point.block_size else "contiguous"
        return {variant("prefill", model.stored, layout)}
    if point.kernel in ("h2d", "d2h"):
        moved = variant("copy_blocks", torch.bfloat16)
        return {moved} if point.variant == "kernel" else set()
    return {variant(point.kernel, model.stored)}
