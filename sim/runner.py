"""From an experiment to files: executes its runs, on several cores, and reuses those done."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import subprocess
import sys
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Sequence
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import joblib

from sim import metrics, results, tables
from sim.allocators.checked import CheckedAllocator
from sim.blocklog import MAX_SLOTS, BlockLog
from sim.costs.base import CostModel
from sim.engine import Options, Run, simulate
from sim.experiment import Experiment, RunSpec
from sim.fleet import FleetRun, Parts, simulate_fleet
from sim.jit import source_digest
from sim.progress import OnDone
from sim.recording.recording import Recording
from sim.recording.write import write_recordings
from sim.replays import ReplaySpec
from sim.runspec import branches, follow_ups, sequence_content

PACKAGES = ("simpy", "numpy", "numba", "pandas", "pyarrow")


@dataclass(frozen=True)
class RunOptions:
    """How runs are executed. None of it changes a result. progress is one of sim.progress.FORMS."""

    jobs: int = 1
    force: bool = False
    check: bool = False
    single_step: bool = False
    progress: str = "bar"


def code_digest() -> str:
    """A hash of the code that results depend on: sim and workloads."""
    root = Path(__file__).parent
    return source_digest(root, root.parent / "workloads")


def run_experiment(
    experiment: Experiment,
    folder: Path,
    options: RunOptions,
    on_done: OnDone = lambda done, row: None,
) -> list[dict[str, Any]]:
    """Execute the runs that are not done yet; return the summary rows of all, in order.

    on_done is told how many have ended, and the row of the last. Files appear below folder as they
    are ready. Workers give back rows alone, each as soon as it is there. Raises ResultsError if
    files cannot be written, or a worker is killed.
    """
    results.tidy(folder, folder / "runs", folder / "figures")
    shared = (folder, code_digest(), options, os.getpid())
    specs = experiment.runs()
    tasks = (joblib.delayed(_numbered)(i, spec, shared) for i, spec in enumerate(specs))
    rows: list[dict[str, Any]] = [{}] * len(specs)
    ended = joblib.Parallel(n_jobs=options.jobs, return_as="generator_unordered")(tasks)
    try:
        for done, (number, row) in enumerate(ended, 1):
            rows[number] = row
            on_done(done, row)
    except BrokenProcessPool:
        raise results.ResultsError(
            f"{folder}: a worker process was killed, perhaps for want of memory; finished runs "
            "are kept, the same command goes on"
        ) from None
    finally:
        with warnings.catch_warnings(action="ignore"):  # advice for those who stop early
            ended.close()
    return rows


def _numbered(
    number: int, spec: RunSpec | ReplaySpec, shared: tuple[Path, str, RunOptions, int]
) -> tuple[int, dict[str, Any]]:
    """Execute a run, unless whoever asked for it is gone; its number and its row."""
    root, code, options, asked_by = shared
    if asked_by not in {os.getpid(), os.getppid()}:
        os._exit(1)  # or it would write where the next command may write already
    return number, execute(spec, root, code, options)


def execute(
    spec: RunSpec | ReplaySpec, root: Path, code: str, options: RunOptions
) -> dict[str, Any]:
    """Make one run, or find it done; return its summary row. One that fails has its error there.

    Raises ResultsError if its files cannot be written.
    """
    if spec.skip:
        return {**_begin(spec), "status": "skipped", **spec.cells, "reason": spec.skip}
    try:
        if isinstance(spec, ReplaySpec):
            return _replay(spec, root, code, options.force)
        return _run(spec, root, code, options)
    except results.ResultsError:
        raise
    except (Exception, SystemExit) as error:  # a plug-in may raise anything; the others go on
        return {**_begin(spec), "status": "error", **spec.cells, "reason": _one_line(error)}


def _run(spec: RunSpec, root: Path, code: str, options: RunOptions) -> dict[str, Any]:
    """Make one run of an engine, or find it done; return its summary row."""
    trace, requests, memory, allocator, scheduler, cost = spec.build()
    key = spec.key(code, trace.digest())
    folder = root / "runs" / spec.run_id
    if not options.force and not options.check:
        row = results.finished_row(folder, key)
        if row is not None:
            return row
    is_logged = memory.num_slots <= MAX_SLOTS and spec.records_blocks
    log = BlockLog(allocator) if is_logged else None
    router = spec.build_router()
    replicas = [Parts(allocator, scheduler, cost), *(spec.build_others() if router else [])]
    if options.check:
        replicas = [part._replace(allocator=CheckedAllocator(part.allocator)) for part in replicas]
    results.open_run(folder)
    started = time.perf_counter()
    recordings = _recordings(spec, len(replicas))
    how = Options(
        options.single_step,
        log,
        follow_ups(trace),
        sequence_content(trace),
        branches(trace, spec.seed),
        log and log.ended,
        recordings,
    )
    run: Run | FleetRun
    if router is None:
        run = simulate(requests, memory, *replicas[0], how)
    else:
        run = simulate_fleet(requests, memory, replicas, router, trace.session, how)
    wall_s = time.perf_counter() - started
    summary = metrics.summarize(run, spec.slo, spec.config["kv_bytes_per_token"])
    source = f"{cost.kind}: {cost.source}"
    costs = [part.cost for part in replicas]
    more = {**_extrapolated(costs), "times_from": source, **_replicas(spec)}
    row = _row(spec, {**summary, **more})
    row |= write_recordings(folder, recordings)
    _write(folder, run, row, log)
    _write_replicas(folder, run, spec)
    facts = {
        "key": key,
        "run": spec.run_id,
        "config": spec.config,
        "trace": {"source": trace.source, "digest": trace.digest(), "notes": dict(trace.notes)},
        "cost_source": source,
        "wall_s": wall_s,
        "requests_per_s": len(requests) / wall_s,
        **environment(),
    }
    results.write_manifest(folder, facts)
    return row


def _recordings(spec: RunSpec, num_replicas: int) -> list[Recording]:
    """One for each replica, which share what may be recorded; none if nothing is."""
    share = spec.max_events // num_replicas
    return [Recording(number, share) for number in range(num_replicas) if spec.max_events]


def _replay(spec: ReplaySpec, root: Path, code: str, is_forced: bool) -> dict[str, Any]:
    """Replay one policy, or find it done; return its summary row."""
    key, folder = spec.key(code), root / "runs" / spec.run_id
    found = None if is_forced else results.finished_row(folder, key)
    if found is not None:
        return found
    results.open_run(folder)
    started = time.perf_counter()
    row = {**spec.cells, "status": "finished", "reason": None, **spec.measure()}
    results.write_json(folder / "summary.json", row)
    wall_s = time.perf_counter() - started
    facts = {"key": key, "run": spec.run_id, "config": spec.config, "wall_s": wall_s}
    results.write_manifest(folder, {**facts, **environment()})
    return row


def _begin(spec: RunSpec | ReplaySpec) -> dict[str, Any]:
    """What a summary row begins with: which run it is."""
    return {name: spec.cells[name] for name in ("experiment", "run", "seed") if name in spec.cells}


def _row(spec: RunSpec, summary: metrics.Row) -> dict[str, Any]:
    """The summary row: which run, how it ended, what it varies, and what was measured."""
    return {**_begin(spec), "status": summary["status"], **spec.cells, **summary}


def _replicas(spec: RunSpec) -> metrics.Row:
    """How many replicas a run has, and their router; nothing without replicas."""
    replicas = spec.config.get("replicas")
    if replicas is None:
        return {}
    return {"num_replicas": replicas["count"], "router": replicas["router"]["kind"]}


def _extrapolated(costs: Sequence[CostModel]) -> metrics.Row:
    """How many iterations were outside of the sizes that a cost model's times were measured at.

    Of replicas, all together.
    """
    if not costs[0].counts_extrapolation:
        return {}
    counts: Counter[str] = Counter()
    for cost in costs:
        counts.update(cost.extrapolated())
    counts = +counts
    return {
        "num_extrapolated_iterations": sum(counts.values()),
        "extrapolated": ", ".join(f"{what} {count:,}" for what, count in counts.items()),
    }


def _one_line(error: BaseException) -> str:
    """What was raised and where, in one line."""
    while error.__cause__ is not None and isinstance(error.__cause__, Exception):
        error = error.__cause__  # SimPy raises a copy; the cause knows the place
    place = traceback.extract_tb(error.__traceback__)[-1]
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text} ({Path(place.filename).name}, line {place.lineno})"


def _write(folder: Path, run: Run | FleetRun, row: dict[str, Any], log: BlockLog | None) -> None:
    tables.write_rows(folder, "requests", tables.REQUESTS, tables.requests_tables(run))
    tables.write_rows(folder, "timeline", tables.TIMELINE, [tables.timeline_table(run)])
    if log is not None:
        tables.write_rows(folder, "blocks", tables.BLOCKS, [log.table()])
    results.write_json(folder / "summary.json", row)


def _write_replicas(folder: Path, run: Run | FleetRun, spec: RunSpec) -> None:
    """A row for each replica, if there are any."""
    if isinstance(run, FleetRun):
        table = metrics.replicas_table(run, spec.slo, spec.config["kv_bytes_per_token"])
        results.write_table(folder / "replicas.csv", table)


def environment() -> dict[str, Any]:
    """What a run was made with: versions, commit, machine."""
    versions = {name: importlib.metadata.version(name) for name in PACKAGES}
    return {
        "python": sys.version.split()[0],
        "machine": f"{platform.system()} {platform.machine()}",
        "versions": versions,
        "commit": _commit(),
    }


@cache
def _commit() -> str | None:
    """The checkout's commit, with + if it has changes; None outside of a checkout."""
    root = Path(__file__).parent.parent
    if not (root / ".git").exists():
        return None
    try:
        head = _git(root, ["rev-parse", "HEAD"])
        changes = _git(root, ["status", "--porcelain", "--", "sim", "workloads"])
    except (OSError, subprocess.CalledProcessError):
        return None
    return head + ("+" if changes else "")


def _git(root: Path, arguments: Sequence[str]) -> str:
    done = subprocess.run(
        ["git", *arguments], cwd=root, capture_output=True, text=True, check=True, timeout=10
    )
    return done.stdout.strip()
