"""How fast the simulator is, as ratios to a bare SimPy timeout measured in the same process."""

from __future__ import annotations

import resource
import statistics
import time
from collections.abc import Callable, Generator
from typing import Any

import numpy as np
import simpy

from sim.allocators.paged import Paged
from sim.costs.linear import Linear
from sim.engine import Memory, Options, Run, simulate
from sim.metrics import summarize
from sim.schedulers.fcfs import Fcfs
from sim.sequence import Limits, new_requests
from workloads.sharegpt import ShareGPT

MEMORY = Memory(num_slots=7600 * 16, max_model_len=2048)
RATE = 8.0
REPEATS = 3


def measure(million: bool = False) -> dict[str, Any]:
    """Run all measurements; medians of three.

    bare_event_us          one SimPy timeout of a process
    iteration_us           one iteration at 256 running sequences, single step, six terms kept
    iteration_bare_events  the same in bare events
    requests_per_s         ShareGPT-like requests at 8/s, full latency table
    requests_per_s_at_1us  the same where a bare event takes 1 µs
    """
    _sharegpt(1000, Options())  # compiles, or loads what is compiled
    bare_us = statistics.median(bare_event_us() for _ in range(REPEATS))
    iteration = statistics.median(iteration_us() for _ in range(REPEATS))
    runs = [_sharegpt(50_000, Options()) for _ in range(REPEATS)]
    requests_per_s = statistics.median(50_000 / wall_s for _, wall_s in runs)
    run, wall_s = runs[-1]
    facts: dict[str, Any] = {
        "bare_event_us": bare_us,
        "iteration_us": iteration,
        "iteration_bare_events": iteration / bare_us,
        "requests_per_s": requests_per_s,
        "requests_per_s_at_1us": requests_per_s * bare_us,
        "iterations_per_s": run.recorder.num_iterations / wall_s,
        "iterations_per_request": run.recorder.num_iterations / 50_000,
        "num_running_mean": summarize(run, {})["num_running_mean"],
        "single_step_requests_per_s": 50_000 / _sharegpt(50_000, Options(single_step=True))[1],
    }
    if million:
        run, wall_s = _sharegpt(1_000_000, Options())
        facts["million_requests_s"] = wall_s
        facts["million_slowdown"] = wall_s / 1_000_000 * requests_per_s
    facts["peak_memory_bytes"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return facts


def bare_event_us(count: int = 300_000) -> float:
    """Microseconds of one timeout of one SimPy process."""
    env = simpy.Environment()

    def process() -> Generator[simpy.Event, None, None]:
        for _ in range(count):
            yield env.timeout(1)

    env.process(process())
    return _timed(env.run) / count * 1e6


def iteration_us(count: int = 20_000) -> float:
    """Microseconds of an iteration in which 256 sequences decode, one event each."""
    prompt = np.full(256, 16)
    output = np.full(256, count)
    requests = new_requests(np.zeros(256, np.int64), prompt, output, Limits(count + 17, output))
    memory = Memory(num_slots=256 * (count + 32), max_model_len=count + 17)
    options = Options(single_step=True)
    parts = Paged(16), Fcfs(), Linear()
    return _timed(lambda: simulate(requests, memory, *parts, options)) / count * 1e6


def _sharegpt(count: int, options: Options) -> tuple[Run, float]:
    """Run the reference workload; return the run and its wall time in seconds."""
    arrivals = {"kind": "poisson", "rate": RATE}
    trace = ShareGPT(num_requests=count, arrivals=arrivals).load(seed=0)
    limits = Limits(MEMORY.max_model_len, trace.output_tokens)
    columns = trace.arrival_ns, trace.prompt_tokens, trace.output_tokens
    requests = new_requests(*columns, limits)
    parts = Paged(16), Fcfs(), Linear()
    runs: list[Run] = []
    wall_s = _timed(lambda: runs.append(simulate(requests, MEMORY, *parts, options)))
    return runs[0], wall_s


def _timed(function: Callable[[], object]) -> float:
    start = time.perf_counter()
    function()
    return time.perf_counter() - start
