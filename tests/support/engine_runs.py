"""One engine preset serves one workload: what it refuses, and what its run leaves behind."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from experiment_files import errors_of, load
from sim.allocators.checked import CheckedAllocator
from sim.allocators.terms import CACHED, FREE
from sim.config.engine_presets import REQUIRED, read_engine
from sim.config.plugin_keys import build_part
from sim.config.runspec import RunSpec, branches, follow_ups, load_trace, sequence_content
from sim.engine.simulation import Options, Run, simulate
from sim.sequence import (
    ARRIVAL_NS,
    FINISH_NS,
    FINISHED,
    FIRST_SCHEDULED_NS,
    FIRST_TOKEN_NS,
    NUM_GENERATED,
    NUM_SLOTS,
    PROMPT_TOKENS,
    REJECTED,
    STATUS,
    SequenceTable,
)
from sleep_examples import left_behind
from workloads.trace import Trace

Config = dict[str, Any]

MAX_TOKENS = 24  # so that runs are short; every scheduler knows it
SHORTEST, LONGEST = 512, 32768  # of what max_model_len may be
NO_CACHE = "; or set enable_prefix_caching: false"
COST = {"kind": "linear", "base_s": 0.2, "per_prefill_token_s": 1e-5}


def trace_of(workload: Config, folder: Path) -> Trace:
    return load_trace(workload, folder, 0)


def max_model_len_of(trace: Trace) -> int:
    """A power of two that more than half of the requests stay below, and some may exceed."""
    length = int(np.percentile(trace.prompt_tokens + trace.output_tokens, 60))
    return min(max(1 << length.bit_length(), SHORTEST), LONGEST)


def experiment(engine: str, workload: Config, max_model_len: int, **more: Any) -> str:
    """The pool holds three of the longest requests, so that others must wait for them."""
    keys = {
        "name": "example",
        "engine": engine,
        "model": "llama-3-8b",
        "kv_cache": {"num_slots": 3 * max_model_len},
        "max_model_len": max_model_len,
        "cost": COST,
        "workload": workload,
    }
    return yaml.safe_dump({**keys, **more})


def missing(engine: str, trace: Trace) -> list[str]:
    """What the engine's memory needs of a trace that has it not."""
    allocator = build_part("allocator", read_engine(engine, Path()).part("allocator", None), Path())
    return sorted(allocator.needs - trace.provides)


def has_switch(engine: str) -> bool:
    """Whether the engine can do without its cache."""
    return "enable_prefix_caching" in read_engine(engine, Path()).part("allocator", None)


def assert_refused_for_what_the_trace_lacks(engine: str, workload: Config, folder: Path) -> None:
    """Each thing that the engine needs and the trace lacks is one sentence, and nothing else."""
    trace, preset = trace_of(workload, folder), read_engine(engine, Path())
    sentences = []
    if preset.max_tokens == REQUIRED and trace.max_tokens is None:
        accepted = "output, max_model_len or a number"
        sentences.append(
            f"workload.max_tokens: {engine} admits by it, and the trace has none; "
            f"accepted: {accepted}"
        )
    lacks = missing(engine, trace)
    if lacks:
        kind = preset.part("allocator", None)["kind"]
        sentences.append(
            f"engine: {engine}'s allocator: {kind} needs {', '.join(lacks)} of the trace; "
            f"{trace.source} provides {', '.join(sorted(trace.provides)) or 'nothing'}"
            + (NO_CACHE if has_switch(engine) else "")
        )
    if sentences:
        lines = errors_of(folder, experiment(engine, workload, max_model_len_of(trace)))
        assert [re.sub(r"^x\.yaml:\d+: ", "", line) for line in lines] == sentences


def run_pair(engine: str, workload: Config, folder: Path) -> Run:
    """The run: asleep and verified at every operation, and the same in single steps."""
    trace = trace_of(workload, folder)
    more = {"allocator": {"enable_prefix_caching": False}} if missing(engine, trace) else {}
    told = {**workload, "max_tokens": MAX_TOKENS}
    (spec,) = load(folder, experiment(engine, told, max_model_len_of(trace), **more)).runs()
    slept, stepped = run_of(spec, True), run_of(spec, False)
    expected = left_behind(stepped)
    for name, value in left_behind(slept).items():
        assert value == expected[name], f"{name} differs between sleeping and single steps"
    assert_every_request_ends(slept, trace)
    assert_memory_is_whole(slept, spec)
    return slept


def run_of(spec: RunSpec, sleeps_and_checks: bool) -> Run:
    trace, requests, memory, allocator, scheduler, cost = spec.build()
    if sleeps_and_checks:
        allocator = CheckedAllocator(allocator)
    how = Options(
        single_step=not sleeps_and_checks,
        follow_ups=follow_ups(trace),
        content=sequence_content(trace),
        branches=branches(trace, spec.seed),
    )
    return simulate(requests, memory, allocator, scheduler, cost, how)


def assert_every_request_ends(run: Run, trace: Trace) -> None:
    """Finished with as many tokens as asked for and allowed, or rejected with a number."""
    requests, longest = run.requests, run.allocator.max_model_len
    status = requests[:, STATUS]
    assert (run.status, run.reason) == ("finished", "")
    is_done, is_rejected = status == FINISHED, status == REJECTED
    assert (is_done | is_rejected).all(), run.scheduler.reasons
    assert is_rejected[trace.prompt_tokens >= longest].all()
    assert set(run.scheduler.reasons) == set(np.flatnonzero(is_rejected).tolist())
    assert all(re.search(r"\d", reason) for reason in run.scheduler.reasons.values())
    done = requests[is_done]
    assert run.scheduler.num_finished == len(done)
    wanted = np.minimum(np.minimum(trace.output_tokens, MAX_TOKENS), longest - trace.prompt_tokens)
    assert done[:, PROMPT_TOKENS].tolist() == trace.prompt_tokens[is_done].tolist()
    assert done[:, NUM_GENERATED].tolist() == wanted[is_done].tolist()
    times = done[:, [ARRIVAL_NS, FIRST_SCHEDULED_NS, FIRST_TOKEN_NS, FINISH_NS]]
    assert (np.diff(times, axis=1) >= 0).all()


def assert_memory_is_whole(run: Run, spec: RunSpec) -> None:
    """As before the first request, but that some of what is free is cached."""
    _, _, memory, fresh, _, _ = spec.build()
    fresh.bind(memory.num_slots, SequenceTable(), memory.max_model_len)
    terms = run.allocator.terms.copy()
    assert terms.sum() == memory.num_slots
    terms[FREE] += terms[CACHED]
    terms[CACHED] = 0
    assert terms.tolist() == fresh.terms.tolist()
    assert not run.scheduler.sequences.rows[:, NUM_SLOTS].any()
    assert run.scheduler.num_running == run.scheduler.num_waiting == 0
    run.allocator.check(np.empty(0, np.int64))
