"""Who is preempted, and what lies on the host: vLLM v0's scheduler, watched at every iteration."""

from __future__ import annotations

from collections import Counter
from typing import Literal, NamedTuple

import numpy as np

from sim.allocators.paged_cow import PagedCow
from sim.branching import WorkloadBranches
from sim.claims.probes.results import Vacuous
from sim.costs.linear import Constant
from sim.engine.simulation import Memory, Observer, Options, simulate
from sim.schedulers.base import Scheduler
from sim.schedulers.vllm_v0 import VllmV0
from sim.sequence import PENDING, REQUEST, STATUS, IntArray, Limits, new_requests
from workloads.sharegpt import ShareGPT

BLOCK_SIZE = 16
HOST_POOLS = 16  # how many times the GPU's blocks the host has
NUM_SEEDS = 3
ORDER_BLOCKS = 400  # a request of 2,048 tokens and three samples fits, and little beside
STEP_S = 0.02  # of an iteration; nothing here depends on it


class _Load(NamedTuple):
    """Requests, and the pool that they are too many for."""

    prompt: IntArray
    output: IntArray
    num_blocks: int
    max_model_len: int


def most_swapped(loads: list[str]) -> dict[str, dict[str, int]]:
    """Most blocks that lie on the host at a time, beside the blocks of the GPU, by load.

    Whoever is preempted is swapped. Loads are sharegpt, lengths of ShareGPT in the memory of an
    A100-40GB, and growing: as many requests as blocks, each of one block at first, all of which
    could grow to the whole pool.
    """
    found = {}
    for name in loads:
        seeds = range(NUM_SEEDS if name == "sharegpt" else 1)
        runs = [_most_swapped(_load(name, seed)) for seed in seeds]
        found[name] = {"num_gpu_blocks": runs[0][0], "most_on_host": max(most for _, most in runs)}
    return found


def swapped_within_gpu_blocks(loads: list[str]) -> dict[str, bool]:
    """Whether that is never more than the GPU has, by load (PagedAttention paper, §4.5)."""
    found = most_swapped(loads)
    return {name: of["most_on_host"] <= of["num_gpu_blocks"] for name, of in found.items()}


def preemption_order(
    num_samples: int = 3, mode: Literal["auto", "recompute", "swap"] = "swap"
) -> dict[str, bool] | Vacuous:
    """Whether requests come first-come, first-served, go last-come, and go as a whole.

    Over ShareGPT lengths, each request num_samples sequences, in a pool for a few of them.
    """
    order = _Order(num_samples)
    for seed in range(NUM_SEEDS):
        load = _load("sharegpt", seed, num_requests=40)._replace(num_blocks=ORDER_BLOCKS)
        _simulate(load, VllmV0(preemption_mode=mode), order.observe, num_samples)
    if order.num_preempted == 0:
        return Vacuous(order.holds, "nothing was preempted")
    return order.holds


class _Order:
    """Looks at every iteration: holds says which of the rules have held so far."""

    def __init__(self, width: int) -> None:
        self.holds = {"first_come_first_served": True, "last_come_first": True, "all_or_none": True}
        self.num_preempted = 0
        self._width = width

    def observe(self, now_ns: int, scheduler: Scheduler) -> None:
        """Requests are numbered in order of arrival."""
        assert isinstance(scheduler, VllmV0)
        rows = scheduler.running[: scheduler.num_running]
        running = Counter(scheduler.sequences.rows[rows, REQUEST].tolist())
        gone = scheduler.preempted
        self.num_preempted += len(gone)
        stayed = set(running) - set(scheduler.admitted) - set(scheduler.returned)
        if gone:
            in_order = gone == sorted(gone, reverse=True) and max(stayed, default=-1) < gone[-1]
            self.holds["last_come_first"] &= in_order
        swapped = scheduler.swapped()
        if scheduler.admitted:
            status = scheduler.requests[: max(scheduler.admitted), STATUS]
            passed = set(np.flatnonzero(status == PENDING).tolist()) - set(running) - set(swapped)
            self.holds["first_come_first_served"] &= not passed and not swapped
        on_device = [row for rows in swapped.values() for row in rows]
        is_whole = set(running.values()) <= {1, self._width} and not set(running) & set(swapped)
        held = [scheduler.allocator.held_ranges(row) for row in on_device]
        self.holds["all_or_none"] &= is_whole and not any(map(len, held))


def _load(name: str, seed: int, num_requests: int = 150) -> _Load:
    """Requests that are all there from the start. Raises ValueError."""
    if name == "sharegpt":
        trace = ShareGPT(num_requests, {"kind": "all_at_once"}).load(seed)
        return _Load(trace.prompt_tokens, trace.output_tokens, 983, 2048)
    if name == "growing":
        count = 16
        prompt = np.full(count, BLOCK_SIZE - 1)
        return _Load(prompt, count * BLOCK_SIZE - prompt, count, count * BLOCK_SIZE)
    raise ValueError(f"unknown load {name!r}; accepted: sharegpt, growing")


def _most_swapped(load: _Load) -> tuple[int, int]:
    """Blocks of the GPU, and the most that lay on the host at a time."""
    most = 0

    def observe(now_ns: int, scheduler: Scheduler) -> None:
        nonlocal most
        allocator = scheduler.allocator
        rows = [row for rows in scheduler.swapped().values() for row in rows]
        most = max(most, sum(len(allocator.host_ranges(row)) for row in rows))

    _simulate(load, VllmV0(preemption_mode="swap"), observe)
    return load.num_blocks, most


def _simulate(load: _Load, scheduler: VllmV0, observe: Observer, num_samples: int = 1) -> None:
    """Run a load to its end, watched at every iteration."""
    count = len(load.prompt)
    limits = Limits(load.max_model_len, load.output)
    requests = new_requests(np.zeros(count, np.int64), load.prompt, load.output, limits)
    allocator = PagedCow(BLOCK_SIZE, watermark=0, num_cpu_blocks=HOST_POOLS * load.num_blocks)
    memory = Memory(load.num_blocks * BLOCK_SIZE, load.max_model_len)
    branches = None
    if num_samples > 1:
        branches = WorkloadBranches(np.full(count, num_samples), None, seed=0)
    options = Options(observe=observe, branches=branches)
    simulate(requests, memory, allocator, scheduler, Constant(STEP_S), options)
