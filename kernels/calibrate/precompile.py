"""Compile the variants of all points, without a GPU: in parallel before the timing, and in a dry
run."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from multiprocessing import get_context
from typing import Any

import torch

from kernels.calibrate.build import build
from kernels.calibrate.points import Point
from kernels.calibrate.pool import Device, Pool
from kernels.calibrate.provenance import ptx_hash
from kernels.calibrate.sanity import OUT_OF_TIME
from kernels.launch import Launch
from kernels.static import compile_for, inspect


def _kind(value: Any) -> str:
    """What of an argument a compiled kernel depends on."""
    if isinstance(value, torch.Tensor):
        return str(value.dtype)
    if isinstance(value, int):
        return "1" if value == 1 else f"{value % 16 == 0}{value >= 2**31}"
    return type(value).__name__


def variant_key(launch: Launch) -> str:
    """Equal for launches that run the same compiled kernel."""
    options = " ".join(f"{k}={v}" for k, v in sorted(launch.options.items()))
    return f"{launch.name} {options} {' '.join(map(_kind, launch.args))}"


def variants(arch: int, points: Iterable[Point]) -> dict[str, Launch]:
    """Every different kernel of these points, as launches on tensors without memory."""
    pool = Pool(Device("meta", arch))
    found: dict[str, Launch] = {}
    for point in points:
        if point.kernel in ("h2d", "d2h", "linear", "layer"):
            continue  # copies and cuBLAS; a layer's kernels occur alone as well
        for step in build(_one_set(point), pool).sets[0]:
            if isinstance(step, Launch):
                found.setdefault(variant_key(step), step)
    return found


def _one_set(point: Point) -> Point:
    return replace(point, l2="warm") if point.lengths else point


def _compile_share(
    arch: int, points: list[Point], share: tuple[int, int], deadline: float
) -> list[dict[str, Any]]:
    """Worker: compile every share[1]-th variant, from the share[0]-th on, until the deadline."""
    chosen = list(variants(arch, points).items())[share[0] :: share[1]]
    results = []
    for key, launch in chosen:
        if time.monotonic() > deadline:
            results.append({"kernel": key, "ok": False, "failure": OUT_OF_TIME})
            continue
        try:
            kernel = compile_for(arch, launch)
            report = inspect(kernel)
            results.append(
                {
                    "kernel": key,
                    "ptx_sha256": ptx_hash(kernel),
                    "registers": report.registers,
                    "stack": report.stack,
                    "spills": report.spills,
                    "shared": report.shared,
                    "ok": report.spills == 0 and report.stack == 0,
                }
            )
        except Exception as problem:
            results.append(
                {
                    "kernel": key,
                    "ok": False,
                    "failure": f"{type(problem).__name__}: {problem}"[:300],
                }
            )
    return results


def compile_all(
    arch: int, points: list[Point], workers: int | None = None, deadline: float = math.inf
) -> list[dict[str, Any]]:
    """Compile every variant into Triton's cache on disk, where the timed run finds it; one dict a
    variant. deadline: of time.monotonic(), which all processes share; after it nothing more is
    begun."""
    workers = workers or max(1, (os.cpu_count() or 2) - 2)
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as executor:
        jobs = [
            executor.submit(_compile_share, arch, points, (i, workers), deadline)
            for i in range(workers)
        ]
        return [result for job in jobs for result in job.result()]
