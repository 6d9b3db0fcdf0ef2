"""From one run of an experiment to its files: makes it, or finds it done."""

from __future__ import annotations

import time
import traceback
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sim.allocators.checked import CheckedAllocator
from sim.config.replays import ReplaySpec
from sim.config.runspec import RunSpec, branches, follow_ups, sequence_content
from sim.costs.base import CostModel
from sim.engine.fleet import FleetRun, Parts, simulate_fleet
from sim.engine.simulation import Options, Run, simulate
from sim.jit import source_digest
from sim.metrics import summary as metrics
from sim.recording.blocklog import MAX_SLOTS, BlockLog
from sim.recording.recording import Recording
from sim.recording.write import write_recordings
from sim.results import files as results
from sim.results import tables
from sim.runs.environment import environment
from sim.stored.runs import finished_row
from workloads.trace import Trace

Spec = RunSpec | ReplaySpec
Row = dict[str, Any]


@dataclass(frozen=True)
class RunOptions:
    """How runs are executed. None of it changes a result.

    jobs is how many run at a time on this machine. progress is one of sim.runs.progress.FORMS,
    executor "local" or where a cluster is, as sim.executors.find_executor takes it.
    """

    jobs: int = 1
    force: bool = False
    check: bool = False
    single_step: bool = False
    progress: str = "bar"
    executor: str = "local"


def code_digest() -> str:
    """A hash of the code that results depend on: sim and workloads."""
    root = Path(__file__).parents[1]
    return source_digest(root, root.parent / "workloads")


@dataclass(frozen=True)
class Work:
    """What all runs of an experiment are made with: results go to folder, code is code_digest()."""

    folder: Path
    code: str
    options: RunOptions


@dataclass(frozen=True)
class Due:
    """A run that is to be made, with all that it needs."""

    spec: Spec
    key: str
    trace: Trace


def execute(spec: Spec, work: Work) -> Row:
    """Make one run, or find it done; return its summary row. One that fails has its error there.

    Raises ResultsError if its files cannot be written.
    """
    due = look_up(spec, work)
    return make(due, work) if isinstance(due, Due) else due


def look_up(spec: Spec, work: Work, trace: Trace | None = None) -> Due | Row:
    """The row of a run that is skipped, or done, or fails before it begins; else what is due.

    The trace is loaded unless it is given.
    """
    if spec.skip:
        return {**_begin(spec), "status": "skipped", **spec.cells, "reason": spec.skip}
    try:
        trace = spec.trace_source.load() if trace is None else trace
        key = spec.key(work.code, trace.digest())
    except (Exception, SystemExit) as error:  # a plug-in may raise anything; the others go on
        return failed(spec, _one_line(error))
    row = None
    if not work.options.force and not work.options.check:
        row = _done(spec, key, work)
    return Due(spec, key, trace) if row is None else row


def _done(spec: Spec, key: str, work: Work) -> Row | None:
    """The row of a run that is done under this key, or was and is set aside; None if it is due."""
    row = finished_row(run_folder(spec, work), key)
    if row is None:
        row = finished_row(results.aside_folder(work.folder, spec.run_id), key)
        if row is not None:
            results.take_back(work.folder, spec.run_id)
    return row


def make(due: Due, work: Work) -> Row:
    """Make a run; return its summary row. One that fails has its error there.

    Raises ResultsError if its files cannot be written.
    """
    try:
        if isinstance(due.spec, ReplaySpec):
            return _replay(due.spec, due, work)
        return _run(due.spec, due, work)
    except results.ResultsError:
        raise
    except (Exception, SystemExit) as error:  # a plug-in may raise anything; the others go on
        return failed(due.spec, _one_line(error))


def failed(spec: Spec, reason: str) -> Row:
    """The row of a run that could not be made."""
    return {**_begin(spec), "status": "error", **spec.cells, "reason": reason}


def run_folder(spec: Spec, work: Work) -> Path:
    """Where the files of a run are."""
    return work.folder / "runs" / spec.run_id


def _run(spec: RunSpec, due: Due, work: Work) -> Row:
    """Make one run of an engine; return its summary row."""
    trace, options, folder = due.trace, work.options, run_folder(spec, work)
    _, requests, memory, allocator, scheduler, cost = spec.build(trace)
    first = Parts(allocator, scheduler, cost)
    is_logged = memory.num_slots <= MAX_SLOTS and spec.records_blocks
    log = BlockLog(first.allocator) if is_logged else None
    router = spec.build_router()
    replicas = [first, *(spec.build_others() if router else [])]
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
    costs = [part.cost for part in replicas]
    source = f"{costs[0].kind}: {costs[0].source}"
    more = {**_extrapolated(costs), "times_from": source, **_replicas(spec)}
    row = _row(spec, {**summary, **more})
    row |= write_recordings(folder, recordings)
    _write(folder, run, row, log)
    _write_replicas(folder, run, spec)
    facts = _facts(due, source, wall_s, len(requests))
    results.write_manifest(folder, facts)
    return row


def _facts(due: Due, source: str, wall_s: float, num_requests: int) -> Row:
    """What the manifest of a run says; source is where its times come from."""
    trace = due.trace
    return {
        "key": due.key,
        "run": due.spec.run_id,
        "config": due.spec.config,
        "trace": {"source": trace.source, "digest": trace.digest(), "notes": dict(trace.notes)},
        "cost_source": source,
        "wall_s": wall_s,
        "requests_per_s": num_requests / wall_s,
        **environment(),
    }


def _recordings(spec: RunSpec, num_replicas: int) -> list[Recording]:
    """One for each replica, which share what may be recorded; none if nothing is."""
    share = spec.max_events // num_replicas
    return [Recording(number, share) for number in range(num_replicas) if spec.max_events]


def _replay(spec: ReplaySpec, due: Due, work: Work) -> Row:
    """Replay one policy; return its summary row."""
    folder = run_folder(spec, work)
    results.open_run(folder)
    started = time.perf_counter()
    row = {**spec.cells, "status": "finished", "reason": None, **spec.measure(due.trace)}
    results.write_json(folder / "summary.json", row)
    wall_s = time.perf_counter() - started
    facts = {"key": due.key, "run": spec.run_id, "config": spec.config, "wall_s": wall_s}
    results.write_manifest(folder, {**facts, **environment()})
    return row


def _begin(spec: Spec) -> Row:
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
        results.write_csv(folder / "replicas.csv", table)
