"""Kernel variants: what a correctness check vouches for, and which of them a point needs.

The checks are made from the points: a variant is checked if and only if it is timed, and one that
fails takes with it the points that need it and no other.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

import torch

from kernels import mla, standins
from kernels.calibrate.points import LINEARS, LLAMA, Point
from kernels.calibrate.works import split_plan
from kernels.decode import DecodeConfig, default_config
from kernels.launch import FP8
from kernels.lookup import resolve_lookup
from kernels.mla import LATENT, WIDTH
from kernels.standins import Model


@dataclass(frozen=True)
class Variant:
    """A kernel as it is compiled and, where that decides what runs, its size.

    block_size 0: contiguous. config, split: of a decode, the lookup resolved. size: (n, k) of a
    linear, (1, bytes of a block's K) of a copy. rows: of a linear, since cuBLAS chooses by them.
    """

    kernel: str
    model: Model = LLAMA
    block_size: int = 0
    config: DecodeConfig | None = None
    split: bool = False
    size: tuple[int, int] = (0, 0)
    rows: int = 0

    @property
    def name(self) -> str:
        """What calibration.json calls it."""
        model = self.model
        parts = [self.kernel, "fp8" if model.stored == FP8 else "bf16"]
        if self.kernel == "combine":
            parts.append(f"width {LATENT if model.head_dim == WIDTH else model.head_dim}")
        if self.kernel in ("decode", "mla", "prefill"):
            parts.append(f"heads {model.num_heads}/{model.num_kv_heads}")
            parts.append(f"block {self.block_size}" if self.block_size else "contiguous")
        if self.config:
            config = self.config
            parts += [config.lookup] * bool(self.block_size)
            parts += [f"n{config.block_n} w{config.num_warps} st{config.num_stages}"]
            parts += ["split" if self.split else "whole"]
        if self.rows:
            parts.append(f"{self.rows} x {self.size[0]} x {self.size[1]}")
        elif self.kernel in ("h2d", "d2h"):
            parts.append(f"blocks of {self.size[1]} bytes")
        return " ".join(parts)


def decode_variant(point: Point, num_sms: int) -> Variant:
    """What a decode point, latent or not, runs besides the combine pass."""
    model, size = point.model, point.block_size
    latent = point.kernel == "mla"
    default = mla.DEFAULT if latent else default_config(model.head_dim, model.group)
    config = point.config or default
    lookup = resolve_lookup(config.lookup, config.block_n, size) if size else "auto"
    q = torch.empty(len(point.lengths), model.num_heads, model.head_dim, device="meta")
    plan = split_plan(point, q, standins.cache(model, size or None), num_sms)
    return Variant(
        "mla" if latent else "decode",
        model,
        size,
        replace(config, lookup=lookup),
        plan.num_splits > 1,
    )


def _linear(size: tuple[int, int], rows: int) -> Variant:
    return Variant("linear", size=size, rows=rows)


def _layer_variants(point: Point, num_sms: int) -> set[Variant]:
    """A layer needs all of its parts."""
    rows, model = len(point.lengths), point.model
    linears = {_linear(size, rows) for name, size in LINEARS.items() if name != "lm_head"}
    small = {Variant(kernel, model) for kernel in ("add_rms_norm", "rope", "silu_and_mul")}
    decode = decode_variant(point, num_sms)
    return linears | small | {decode, Variant("append", model)} | _combine(decode)


def _combine(decode: Variant) -> set[Variant]:
    """The merging of a decode's pieces, if it has any; of keys it sees no more than the width."""
    model = decode.model if decode.kernel == "mla" else LLAMA
    return {Variant("combine", model)} if decode.split else set()


def needed_variants(point: Point, num_sms: int) -> set[Variant]:
    """The variants that must be right for the point's time to mean anything."""
    model, kernel = point.model, point.kernel
    if kernel in ("decode", "mla"):
        decode = decode_variant(point, num_sms)
        return {decode} | _combine(decode)
    if kernel == "layer":
        return _layer_variants(point, num_sms)
    if kernel == "prefill":
        return {Variant("prefill", model, point.block_size)}
    if kernel in ("h2d", "d2h"):
        return {Variant(kernel, size=(1, point.size[1]))} if point.variant == "kernel" else set()
    if kernel == "linear":
        return {_linear(point.size, point.queries)}
    return {Variant(kernel, LLAMA if kernel == "combine" else model)}


def all_variants(points: Iterable[Point], num_sms: int) -> list[Variant]:
    """Every variant that one of the points needs, by name; the linears of one size together, so
    that their weights are made once."""
    found = set().union(*(needed_variants(point, num_sms) for point in points))
    return sorted(found, key=lambda v: (v.kernel, v.size, v.rows, v.name))
