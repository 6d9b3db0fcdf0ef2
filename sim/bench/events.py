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
from sim.allocators.prefix import Prefix
from sim.batch import DECODE_KV_TOKENS, KV_TOKENS, NUM_DECODE_SEQS, NUM_SEQS, empty_batch
from sim.bench.tree import measure_tree
from sim.costs.linear import Linear
from sim.costs.measured import Measured
from sim.engine.arrivals import FOREVER_NS
from sim.engine.simulation import Memory, Options, Run, simulate
from sim.metrics.summary import summarize
from sim.schedulers.fcfs import Fcfs
from sim.schedulers.vllm_v1 import VllmV1
from sim.sequence import IntArray, Limits, SequenceTable, new_requests
from workloads.sequences import SequenceContent
from workloads.sharegpt import ShareGPT
from workloads.synthetic import Synthetic

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
    v1_steps_per_s         vllm_v1 with 256 sequences of 2,048 tokens, single step, no caching
    v1_cached_steps_per_s  the same with prefix caching
    cold_admissions_per_s  prompts of 1,024 tokens into a prefix cache that knows none of them
    hit_admissions_per_s   the same prompt again and again; both with lookup, keys and freeing
    long_prompts_per_s     vllm_v1 and a prefix cache of 100,000 blocks under an overload of prompts
                           of 12,200 tokens, 38 % of them shared: the shape of Mooncake's
                           conversations
    tree_…                 see bench_tree.measure_tree
    cost_call_us           one iteration's time by the cost model measured, asked for alone
    cost_planned_us        the same where 4,096 iterations are asked for at once
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
        "v1_steps_per_s": _median(lambda: v1_steps_per_s(is_caching=False)),
        "v1_cached_steps_per_s": _median(lambda: v1_steps_per_s(is_caching=True)),
        "cold_admissions_per_s": _median(lambda: admissions_per_s(is_hit=False)),
        "hit_admissions_per_s": _median(lambda: admissions_per_s(is_hit=True)),
        "long_prompts_per_s": _median(long_prompts_per_s),
        **measure_tree(),
    }
    call_us, planned_us = zip(*(cost_us() for _ in range(REPEATS)), strict=True)
    facts["cost_call_us"] = statistics.median(call_us)
    facts["cost_planned_us"] = statistics.median(planned_us)
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


def v1_steps_per_s(is_caching: bool, count: int = 4096) -> float:
    """Iterations of vllm_v1 a second while 256 sequences decode, at 2,048 tokens on average.

    Prompts are as long as it takes; the first iteration, which computes them, is left out.
    """
    prompt, output = np.full(256, max(1, 2048 - count // 2)), np.full(256, count)
    longest = int(prompt[0]) + count + 1
    requests = new_requests(np.zeros(256, np.int64), prompt, output, Limits(longest, output))
    memory = Memory(256 * (longest + 16) + 16, longest)
    times: list[float] = []
    options = Options(observe=lambda now_ns, scheduler: times.append(time.perf_counter()))
    allocator = Prefix(enable_prefix_caching=is_caching)
    scheduler = VllmV1(max_num_batched_tokens=256 * longest)
    simulate(requests, memory, allocator, scheduler, Linear(), options)
    return (len(times) - 2) / (times[-1] - times[1])


def admissions_per_s(is_hit: bool, count: int = 4_000) -> float:
    """Prompts of 1,024 tokens a second that a prefix cache numbers, looks up, admits and frees."""
    ones = np.ones(count, np.int64)
    requests = new_requests(0 * ones, 1024 * ones, ones, Limits(2048, ones))
    allocator, sequences = Prefix(), SequenceTable()
    allocator.bind(64 * 16 * 1000, sequences, 2048)
    one_row: IntArray = np.zeros(1, np.int64)

    def admit_all() -> None:
        for request in range(count):
            row = sequences.open(requests, 0 if is_hit else request)
            allocator.admit(row, 1024 - allocator.lookup(row))
            one_row[0] = row
            allocator.free(one_row)
            sequences.close(row)

    return count / _timed(admit_all)


def long_prompts_per_s(count: int = 12_000) -> float:
    """Requests a second of a whole run, their content cut into keys included.

    Lengths and the shared part are like those of Mooncake's hour of conversations (12,031 requests
    at 3.4/s with prompts of 12,035 tokens, outputs of 343, 37 % of prompt tokens shared).
    """
    texts = {"kind": "lognormal", "mean": 6200, "cv": 1.5, "max": 60_000}
    trace = Synthetic(
        num_requests=count,
        arrivals={"kind": "gamma", "rate": 3.4, "cv": 3.0},
        prompt_tokens={"kind": "lognormal", "mean": 6800, "cv": 1.5, "max": 60_000},
        output_tokens={
            "kind": "quantiles",
            "levels": [0, 0.05, 0.5, 0.95, 1],
            "tokens": [1, 10, 350, 550, 1500],
        },
        prefix=[512, {"kind": "pool", "texts": 2500, "tokens": texts, "zipf": 0.9}],
    ).load(seed=0)
    memory = Memory(num_slots=100_000 * 16, max_model_len=1 << 17)
    limits = Limits(memory.max_model_len, trace.output_tokens)
    columns = trace.arrival_ns, trace.prompt_tokens, trace.output_tokens
    requests = new_requests(*columns, limits)
    options = Options(content=SequenceContent(trace.content))
    parts = Prefix(), VllmV1(), Linear()
    return count / _timed(lambda: simulate(requests, memory, *parts, options))


def cost_us(count: int = 20_000) -> tuple[float, float]:
    """Microseconds of an iteration by the cost model measured: asked for alone, and within a plan.

    Llama-3-8B's shape, 256 sequences of 2,048 tokens that decode, on an H100.
    """
    shape: dict[str, Any] = {
        "layers": 32,
        "hidden": 4096,
        "heads": 32,
        "kv_heads": 8,
        "head_dim": 128,
    }
    sizes: dict[str, Any] = {
        "kv_bytes_per_token": 131_072,
        "weights_bytes": 16 * 10**9,
        "num_params": 8 * 10**9,
    }
    model = Measured(profile="h100", block_size=16, **shape, **sizes)
    batch, boundaries = empty_batch(), np.zeros(4097, np.int64)
    batch[[NUM_SEQS, NUM_DECODE_SEQS]] = 256
    batch[[KV_TOKENS, DECODE_KV_TOKENS]] = 256 * 2048

    def ask() -> None:
        for _ in range(count):
            model.plan(batch, boundaries, 1, FOREVER_NS)

    planned_s = _timed(lambda: model.plan(batch, boundaries, 4096, FOREVER_NS))
    return _timed(ask) / count * 1e6, planned_s / 4096 * 1e6


def _median(measurement: Callable[[], float]) -> float:
    return statistics.median(measurement() for _ in range(REPEATS))


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
