# Triton writes compile-time arguments in upper case, and a kernel takes many.
# ruff: noqa: N803
"""What the hardware can do at best: the numbers that a timed row is measured against."""

from __future__ import annotations

from collections.abc import Callable

import torch
import triton
import triton.language as tl

from kernels.calibrate.pool import Pool
from kernels.calibrate.timing import GraphTimer, Timing
from kernels.calibrate.works import Step, matmul_step
from kernels.launch import Launch

MATRIX = 8192
READ_WORDS = (4096, 8192, 16384)  # 4-byte words a program reads: the best of several counts


@triton.jit
def read_kernel(x_ptr, out_ptr, WORDS: tl.constexpr):
    """Read WORDS 4-byte words and write one: as close to reading alone as a kernel comes."""
    first = tl.program_id(0).to(tl.int64) * WORDS
    x = tl.load(x_ptr + first + tl.arange(0, WORDS))
    tl.store(out_ptr + tl.program_id(0), tl.sum(x, 0))


@triton.jit
def empty_kernel(out_ptr):
    """Nothing: what remains is the launch."""


def read_launch(x: torch.Tensor, words: int) -> Launch:
    """Read all of x (int32, a multiple of `words` long)."""
    count = x.numel() // words
    out = torch.empty(count, dtype=torch.int32, device=x.device)
    return Launch(read_kernel, (count,), (x, out), {"WORDS": words, "num_warps": 8})


def _rate(timing: Timing, amount: float) -> float:
    """Amount a microsecond, in millions: TB/s of bytes, TFLOP/s of operations."""
    return amount / timing.us / 1e6


def measure_ceilings(pool: Pool, timer: GraphTimer) -> tuple[dict[str, float], dict[str, str]]:
    """What could be measured, and why the rest could not."""
    found, failures = {}, {}
    for name, measure in measures(pool, timer).items():
        try:
            found[name] = measure()
        except Exception as problem:  # the other ceilings still refuse what they can
            failures[name] = f"{type(problem).__name__}: {problem}"[:300]
    return found, failures


def measures(pool: Pool, timer: GraphTimer) -> dict[str, Callable[[], float]]:
    """How to measure read_tb_s, copy_tb_s, matmul_tflop_s, l2_read_tb_s, empty_graph_us and
    empty_eager_us; best of the variants tried."""
    words = pool.cache_words()
    size = words.numel() // READ_WORDS[-1] * READ_WORDS[-1]
    warm = words[: 24 * 2**18]  # 24 MiB stay in L2
    half = size // 2
    a, b = (pool.random(MATRIX, MATRIX) for _ in "ab")
    product = torch.empty_like(a)
    nothing = Launch(empty_kernel, (1,), (words,), {"num_warps": 1})

    def best_read(x: torch.Tensor, count: int) -> float:
        rates = [
            _rate(timer.graph([[read_launch(x, n)]], count), 4 * x.numel()) for n in READ_WORDS
        ]
        return max(rates)

    def copy() -> None:
        words[:half].copy_(words[half : 2 * half])

    steps: list[Step] = [copy]
    return {
        "read_tb_s": lambda: best_read(words[:size], 4),
        "copy_tb_s": lambda: _rate(timer.graph([steps], 4), 2 * 4 * half),
        "matmul_tflop_s": lambda: _rate(
            timer.graph([[matmul_step(a, b, product)]], 10), 2 * MATRIX**3
        ),
        "l2_read_tb_s": lambda: best_read(warm, 100),
        "empty_graph_us": lambda: timer.graph([[nothing]], 500).us,
        "empty_eager_us": lambda: timer.eager([[nothing]], 200).us,
    }
