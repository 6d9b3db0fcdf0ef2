"""Every engine preset serves every trace: what it lacks is refused, and everything adds up.

Runs are verified at every operation as under --check, and compared with single steps. Traces are
the public ones below $KVSIM_SHARED/traces, a few requests each, and some of our own.
"""

from __future__ import annotations

import json
from collections import Counter
from functools import cache
from pathlib import Path

import pytest

from command import SHARED
from engine_runs import (
    Config,
    assert_refused_for_what_the_trace_lacks,
    experiment,
    has_switch,
    missing,
    run_pair,
    trace_of,
)
from experiment_files import errors_of
from sim.config.engine_presets import ENGINES
from sim.engine.simulation import Run
from workloads.publictraces import public_traces

FOLDER = SHARED / "traces"
LONG = ("lmcache-miniswe", "mooncake-1000", "mooncake-conversation", "tracelab-example")
MIDDLING = ("apex-summarization", "burstgpt-400", "ragpulse", "vidur-arxiv", "vidur-sharegpt-8k")
# requests; verifying the memory of long ones takes its time
LIMIT = 60
LIMITS = {"kv-cache-tester": 16, **dict.fromkeys(LONG, 16), **dict.fromkeys(MIDDLING, 30)}
TIMES = {"kind": "poisson", "rate": 4}
WITHOUT_TIMES = ("nanoflow-sharegpt", "vidur-arxiv", "vidur-sharegpt-10k", "vidur-sharegpt-8k")
COLUMNS = {  # tables in no format of their own
    "alpaca-5000": ("opt_instruction_input", "opt_output"),
    "sharegpt-turns": ("opt_prompt", "opt_output"),
    "wmt16-ende": ("llama_en", "llama_de"),
}
SESSION = "kv-cache-tester/traces/trace_0368.json.gz"  # of 121 that are in one folder
MEASURED = {
    f"measured-{gpu}": f"llmservingsim/vllm-measured/{gpu}/Llama-3.1-8B/requests.jsonl.gz"
    for gpu in ("RTX4090", "RTXPRO6000")
}
# read with others, or beside what is a trace
COMPANIONS = ("ragpulse/", "llmservingsim/vllm-measured/")
HERE = {name: place.shared for name, place in public_traces().items() if place.shared} | MEASURED
PUBLIC = [
    pytest.param(name, marks=pytest.mark.skipif(not is_here, reason=f"no {name} in {FOLDER}"))
    for name in [*public_traces(), *MEASURED]
    for is_here in [name in HERE and (FOLDER / HERE[name]).exists()]
]

DRAWN: Config = {
    "kind": "synthetic",
    "num_requests": 40,
    "arrivals": TIMES,
    "prompt_tokens": {"kind": "uniform", "low": 20, "high": 600},
    "output_tokens": {"kind": "uniform", "low": 1, "high": 60},
}
POOL = {"kind": "pool", "texts": 3, "tokens": 90}
OWN: dict[str, Config] = {
    "lengths": DRAWN,
    "shared": {**DRAWN, "prefix": [50, POOL]},
    "samples": {**DRAWN, "prefix": [50], "num_samples": 3},
    "beams": {**DRAWN, "prefix": [50], "beam_width": 2},
    "chat": {**DRAWN, "prompt_tokens": 70, "turns": {"kind": "chat", "count": 4, "think_s": 0.5}},
}

needs_traces = pytest.mark.skipif(
    not FOLDER.exists(), reason=f"there are no public traces at {FOLDER}"
)


def public(name: str) -> Config:
    """The workload of a public trace, with times where it has none."""
    rows = {"limit": LIMITS.get(name, LIMIT), "zero_tokens": "one"}
    if name in MEASURED or name == "kv-cache-tester":
        return {"kind": "file", "path": str(FOLDER / MEASURED.get(name, SESSION)), **rows}
    if name in WITHOUT_TIMES:
        return {"kind": "lengths", "name": name, "arrivals": TIMES, **rows}
    if name in COLUMNS:
        prompt, output = COLUMNS[name]
        columns = {"prompt_column": prompt, "output_column": output}
        return {"kind": "lengths", "name": name, "arrivals": TIMES, **columns, **rows}
    if public_traces()[name].read_by == "servegen":
        clients = {"kind": "servegen", "name": name, "duration_s": 10.0, "rate_scale": 0.1}
        return {"kind": "filter", "workload": clients, "limit": LIMIT}
    return {"kind": "trace", "name": name, "unsorted": "sort", **rows}


def with_beginnings(workload: Config) -> Config | None:
    """The same lengths, where all prompts begin alike: for who cannot do without sharing."""
    if workload["kind"] == "synthetic":
        return {**workload, "prefix": [16]}
    if workload["kind"] == "filter":
        return None  # ServeGen's clients say nothing of what they send
    rows = {key: value for key, value in workload.items() if key != "unsorted"}
    return {**rows, "kind": "lengths", "arrivals": TIMES, "prefix": [16]}


def serve(engine: str, workload: Config, folder: Path) -> Run | None:
    """Refused for what it lacks, then served with it, or without a cache; None if neither is."""
    assert_refused_for_what_the_trace_lacks(engine, workload, folder)
    if missing(engine, trace_of(workload, folder)) and not has_switch(engine):
        shared = with_beginnings(workload)
        return run_pair(engine, shared, folder) if shared else None
    return run_pair(engine, workload, folder)


@pytest.fixture(autouse=True)
def shared(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Named traces are read where this file looks, and not from what was fetched."""
    monkeypatch.setenv("KVSIM_SHARED", str(SHARED))
    monkeypatch.setenv("KVSIM_CACHE", str(tmp_path))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One for all, so that each trace is read once."""
    return tmp_path_factory.mktemp("presets")


@cache
def events(engine: str, name: str, folder: Path) -> Counter[str]:
    """What happened when an engine served a trace of our own."""
    run = serve(engine, OWN[name], folder)
    assert run is not None
    counts = {**run.allocator.counters(), **run.scheduler.counters()}
    counts["num_queued"] = run.recorder.num_queued_iterations
    counts["num_preempted"] = run.scheduler.num_preemptions
    counts["num_rejected"] = len(run.scheduler.reasons)
    return Counter(counts)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("name", OWN)
def test_every_engine_serves_every_trace_of_our_own(name: str, engine: str, folder: Path) -> None:
    assert events(engine, name, folder)["num_queued"] > 0


def test_our_own_traces_meet_all_that_may_happen(folder: Path) -> None:
    """Guards the contract: requests are refused, wait, are preempted, copied, swapped and found."""
    total: Counter[str] = sum((events(e, name, folder) for e in ENGINES for name in OWN), Counter())
    happened = {event for event, count in total.items() if count > 0}
    wanted = {"num_preempted", "num_rejected", "num_hit_tokens", "num_evicted_blocks"}
    assert happened >= wanted | {"num_copied_blocks", "num_recomputed_tokens", "num_pages_mapped"}


@needs_traces
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("name", PUBLIC)
def test_every_engine_serves_every_public_trace(name: str, engine: str, folder: Path) -> None:
    run = serve(engine, public(name), folder)
    if run is not None:
        reasons = run.scheduler.reasons.values()
        whole = all(" in one iteration without chunked prefill" in reason for reason in reasons)
        assert run.scheduler.num_finished > 0 or whole


@needs_traces
@pytest.mark.parametrize("name", [*WITHOUT_TIMES, *COLUMNS])
def test_a_trace_without_times_or_known_columns_is_refused_with_what_reads_it(
    name: str, folder: Path
) -> None:
    workload = {"kind": "trace", "name": name}
    (line,) = errors_of(folder, experiment("vllm-0.2", workload, 512))
    wanted = "columns" if name in COLUMNS else "lengths"
    assert f" 'kind: {wanted}'" in line


@needs_traces
def test_no_file_of_the_public_traces_is_left_out() -> None:
    places = [*HERE.values(), *COMPANIONS]
    files = json.loads((FOLDER / "EXPECTED.json").read_text())
    assert [file for file in files if not file.startswith(tuple(places))] == []
    assert all((FOLDER / MEASURED.get(name, SESSION)).exists() for name in MEASURED)
