"""Where the parts of an experiment meet its trace: whether it has what they need of it."""

from __future__ import annotations

from pathlib import Path

from sim.allocators import Allocator
from sim.allocators.declared import declared_prefixes
from sim.config.cells import Cell
from sim.config.engine_presets import REQUIRED
from sim.config.plugin_keys import build_part
from sim.config.plugins import Config, Report
from sim.config.runspec import load_trace, sequence_content, uses_seed
from sim.routers import Router
from sim.schedulers import Scheduler
from sim.sequence import SequenceTable
from workloads.publictraces import AbsentTraceError
from workloads.trace import Trace, TraceError

# what a workload may provide, and what becomes of it where nothing uses it
NOT_SIMULATED = {
    "prefix identity": "every prompt is computed and kept whole",
    "samples": "one sample a request is simulated",
    "beams": "one sequence a request is simulated, and no search",
    "priority": "requests are served in order of arrival",
}
NO_CACHE = "; or set enable_prefix_caching: false"


def meet_trace(cell: Cell, folder: Path, seed: int) -> list[str]:
    """Load the trace of a cell, say what max_tokens is, and check that it has what is needed.

    The lines returned say what reading or drawing the requests changed.
    """
    assert cell.point is not None
    config = cell.point.config
    workload = config["workload"]
    try:
        trace = load_trace(workload, folder, seed)
    except AbsentTraceError as error:
        if any(axis.path[0] == "workload" for axis in cell.indices):
            cell.skip = str(error)  # the other workloads of the sweep are run
        else:
            cell.report(("workload", "name"), str(error))
        return []
    except (TraceError, OSError) as error:
        cell.report(("workload",), str(error))
        return []
    cell.num_requests = len(trace)
    _settle_max_tokens(cell, config, trace)
    cell.warnings = _meet_parts(config, trace, cell.report_misfit)
    cell.warnings += _meet_content(config, trace, cell.report_misfit)
    if "replicas" in config:
        _meet_router(config, trace, cell.report)
    drawn = f" (seed {seed})" if uses_seed(workload) else ""
    return [
        f"workload      {len(trace):,} requests; {reason}: {count:,}{drawn}"
        for reason, count in trace.notes.items()
    ]


def _settle_max_tokens(cell: Cell, config: Config, trace: Trace) -> None:
    """Say what the scheduler knows of outputs: the experiment's rule, the trace's, the engine's.

    Who needs to know it, and is told by nobody, is reported.
    """
    preset = cell.overlay.preset
    rule = config["workload"]["max_tokens"]
    if rule is None and trace.max_tokens is None and preset is not None:
        rule = preset.max_tokens
    own = "column" if trace.max_tokens is not None else "output"
    config["workload"]["max_tokens"] = own if rule in {None, REQUIRED} else rule
    accepted = "output, max_model_len or a number"
    where = ("workload", "max_tokens")
    if rule == "column" and trace.max_tokens is None:
        cell.report_misfit(where, f"{trace.source} has no max_tokens; accepted: {accepted}")
    if rule == REQUIRED and preset is not None:
        sentence = f"{preset.name} admits by it, and the trace has none; accepted: {accepted}"
        cell.report_misfit(where, sentence)
        return
    is_told = rule is not None or trace.max_tokens is not None
    lacks = "workload.max_tokens, because the trace has none of its own"
    allocator = config["allocator"]
    if allocator.get("reservation") == "max_tokens" and not is_told:
        cell.report_misfit(("allocator", "reservation"), f"max_tokens needs {lacks}")
    if allocator.get("reserve_max_tokens") and not is_told:
        cell.report_misfit(("allocator", "reserve_max_tokens"), f"needs {lacks}")
    scheduler: Scheduler = build_part("scheduler", config["scheduler"], Path())
    if scheduler.admits_by_max_tokens and not is_told:
        cell.report_misfit(("scheduler",), f"{config['scheduler']['kind']} admits by {lacks}")


def _meet_content(config: Config, trace: Trace, report: Report) -> list[str]:
    """Let the allocator take what sequences consist of: declared prefixes need room.

    The lines returned say if there is no such prefix.
    """
    content = sequence_content(trace)
    num_tokens = config["allocator"].get("shared_prefix_tokens")
    if content is None or not num_tokens:
        return []
    allocator: Allocator = build_part("allocator", config["allocator"], Path())
    allocator.bind(config["kv_cache"]["num_slots"], SequenceTable(), config["max_model_len"])
    try:
        allocator.bind_content(content)
    except ValueError as error:
        name, _, sentence = str(error).partition(": ")
        report(("allocator", name), sentence)
    if declared_prefixes(content, num_tokens):
        return []
    return [f"shared_prefix_tokens: no two prompts have the same first {num_tokens} tokens"]


def _meet_router(config: Config, trace: Trace, report: Report) -> None:
    """Check that trace and memory have what the router decides by."""
    part = config["replicas"]["router"]
    router: Router = build_part("router", part, Path())
    allocator: Allocator = build_part("allocator", config["allocator"], Path())
    where = ("replicas", "router")
    missing = router.needs - trace.provides
    if missing:
        provided = ", ".join(sorted(trace.provides)) or "nothing"
        lacks = f"{part['kind']} needs {', '.join(sorted(missing))} of the trace"
        report(where, f"{lacks}; {trace.source} provides {provided}")
    if router.reads_prefixes and not allocator.caches_prefixes:
        kind = config["allocator"]["kind"]
        report(where, f"{part['kind']} asks replicas for prefixes, which {kind} does not cache")


def _meet_parts(config: Config, trace: Trace, report: Report) -> list[str]:
    """Check that the trace has what allocator and scheduler need.

    The lines returned say what the requests have that neither knows anything of.
    """
    used, kinds, can_fork = frozenset[str](), [], True
    for key in ("allocator", "scheduler"):
        part: Allocator | Scheduler = build_part(key, config[key], Path())
        kinds.append(config[key]["kind"])
        used |= part.needs | part.uses
        can_fork &= getattr(part, "forks", "") != "no"
        missing = part.needs - trace.provides
        if missing:
            report(
                (key,),
                f"{kinds[-1]} needs {', '.join(sorted(missing))} of the trace; "
                f"{trace.source} provides {', '.join(sorted(trace.provides)) or 'nothing'}"
                + (NO_CACHE if config[key].get("enable_prefix_caching") else ""),
            )
    if not can_fork:
        used -= {"samples", "beams"}
    unused = trace.provides - used
    lines = [(fact, meaning) for fact, meaning in NOT_SIMULATED.items() if fact in unused]
    return [f"{fact} of the workload: {how} with {' and '.join(kinds)}" for fact, how in lines]
