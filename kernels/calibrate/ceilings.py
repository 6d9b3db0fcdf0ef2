# Triton writes compile-time arguments in upper case, and a kernel takes many.
# ruff: noqa: N803
"""What the hardware can do at best: the numbers that a timed row is measured against."""

from __future__ import annotations

import math
import time
from collections.abc import Callable

import torch
import triton
import triton.language as tl

from kernels.calibrate.pool import Pool
from kernels.calibrate.sanity import OUT_OF_TIME
from kernels.calibrate.timing import GraphTimer, Timing
from kernels.calibrate.works import Step, matmul_step
from kernels.launch import Launch

MATRIX = 8192
READ_WORDS = (4096, 8192, 16384)  # 4-byte words a program reads: the best of several counts
WARM_WORDS = 24 * 2**18  # 24 MiB stay in L2
WARM_PASSES = 64  # over them in one launch: 1.6 GB, beside which a launch's microseconds vanish


@triton.jit
def read_kernel(x_ptr, out_ptr, WORDS: tl.constexpr):
    """Read WORDS 4-byte words and write one: as close to reading alone as a kernel comes."""
    first = tl.program_id(0).to(tl.int64) * WORDS
    x = tl.load(x_ptr + first + tl.arange(0, WORDS))
    tl.store(out_ptr + tl.program_id(0), tl.sum(x, 0))


@triton.jit
def read_again_kernel(x_ptr, out_ptr, PARTS: tl.constexpr, WORDS: tl.constexpr):
    """Read PARTS parts of WORDS words one after another and write one word. Each program begins
    with a part of its own, so that no part is read twice from one SM's first-level cache; .cg
    keeps that cache out of it as well.
    """
    total = tl.full([WORDS], 0, tl.int32)
    for i in range(PARTS):
        part = (tl.program_id(0) + i) % tl.num_programs(0)
        at = x_ptr + part.to(tl.int64) * WORDS + tl.arange(0, WORDS)
        total += tl.load(at, cache_modifier=".cg")
    tl.store(out_ptr + tl.program_id(0), tl.sum(total, 0))


@triton.jit
def empty_kernel(out_ptr):
    """Nothing: what remains is the launch."""


def read_launch(x: torch.Tensor, words: int) -> Launch:
    """Read all of x (int32, a multiple of `words` long)."""
    count = x.numel() // words
    out = torch.empty(count, dtype=torch.int32, device=x.device)
    return Launch(read_kernel, (count,), (x, out), {"WORDS": words, "num_warps": 8})


def read_again_launch(x: torch.Tensor, words: int, passes: int) -> Launch:
    """Read all of x (int32, a multiple of `words` long) that many times within one launch."""
    count = x.numel() // words
    out = torch.empty(count, dtype=torch.int32, device=x.device)
    options = {"PARTS": passes, "WORDS": words, "num_warps": 8}
    return Launch(read_again_kernel, (count,), (x, out), options)


def _rate(timing: Timing, amount: float) -> float:
    """Amount a microsecond, in millions: TB/s of bytes, TFLOP/s of operations."""
    return amount / timing.us / 1e6


def measure_ceilings(
    pool: Pool, timer: GraphTimer, deadline: float = math.inf
) -> tuple[dict[str, float], dict[str, str]]:
    """What could be measured, and why the rest could not. deadline: of time.monotonic(), after
    which no further one is begun."""
    found, failures = {}, {}
    for name, measure in measures(pool, timer).items():
        if time.monotonic() > deadline:
            failures[name] = OUT_OF_TIME
            continue
        try:
            found[name] = measure()
        except Exception as problem:  # the other ceilings still refuse what they can
            failures[name] = f"{type(problem).__name__}: {problem}"[:300]
    return found, failures


def measures(pool: Pool, timer: GraphTimer) -> dict[str, Callable[[], float]]:
    """How to measure read_tb_s, copy_tb_s, matmul_tflop_s, l2_read_tb_s, empty_graph_us and
    empty_eager_us; best of the variants tried. Memory is taken by the one that needs it."""
    words = pool.cache_words()
    size = words.numel() // READ_WORDS[-1] * READ_WORDS[-1]
    half = size // 2
    nothing = Launch(empty_kernel, (1,), (words,), {"num_warps": 1})

    def read() -> float:
        timings = [timer.graph([[read_launch(words[:size], n)]], 4) for n in READ_WORDS]
        return max(_rate(timing, 4 * size) for timing in timings)

    def read_l2() -> float:
        warm = words[:WARM_WORDS]
        launches = [read_again_launch(warm, n, WARM_PASSES) for n in READ_WORDS]
        timings = [timer.graph([[launch]], 10) for launch in launches]
        return max(_rate(timing, 4 * warm.numel() * WARM_PASSES) for timing in timings)

    def copy() -> float:
        steps: list[Step] = [lambda: words[:half].copy_(words[half : 2 * half])]
        return _rate(timer.graph([steps], 4), 2 * 4 * half)

    def matmul() -> float:
        a, b = (pool.random(MATRIX, MATRIX) for _ in "ab")
        step = matmul_step(a, b, torch.empty_like(a))
        return _rate(timer.graph([[step]], 10), 2 * MATRIX**3)

    return {
        "read_tb_s": read,
        "copy_tb_s": copy,
        "matmul_tflop_s": matmul,
        "l2_read_tb_s": read_l2,
        "empty_graph_us": lambda: timer.graph([[nothing]], 500).us,
        "empty_eager_us": lambda: timer.eager([[nothing]], 200).us,
    }
