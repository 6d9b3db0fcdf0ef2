"""Experiments without an engine: `policies:` replayed on `traces:`, as runs that are plain data.

One run is one policy on one trace at one capacity, so that runs are reused, spread over cores and
drawn like those of an engine.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from sim.config.keys import ReplayedTrace, ReplayKeys
from sim.config.plugin_keys import resolve_part
from sim.config.plugins import Config, Report, Reported, below, guess, shown, validate
from sim.config.point import no_folder_name
from sim.config.runspec import TraceSource, load_trace, trace_source
from sim.policies import POLICIES, References, hit_rate, references
from sim.policies.replay import hit_blocks
from sim.policies.sweep import default_capacities, rows
from workloads.publictraces import AbsentTraceError
from workloads.trace import Trace, TraceError

BOUNDS = ("unbounded", "clairvoyant", "none")  # the ceilings and the floor of every replay
FIGURES = ("prefix_policies",)
SEED = 0


@dataclass(frozen=True)
class ReplaySpec:
    """One run, as plain data. config has the policy, the workload with its defaults, block_size
    and capacity_tokens; cells begin the run's summary row. folder is where relative paths start.
    skip says why it is not made, empty if it is.
    """

    run_id: str
    config: Config
    cells: dict[str, Any]
    folder: str
    skip: str = ""

    @property
    def trace_source(self) -> TraceSource:
        """What the trace of the run is made from."""
        return trace_source(self.config["workload"], Path(self.folder), SEED)

    def key(self, source_hash: str, trace_digest: str) -> str:
        """A hash of all that the run's row depends on: hex, 32 characters."""
        facts = [self.config, self.cells, source_hash, trace_digest]
        text = json.dumps(facts, sort_keys=True, ensure_ascii=False)
        return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()

    def measure(self, trace: Trace) -> dict[str, Any]:
        """What the policy finds in the run's trace: the row of sim.policies.sweep."""
        config, label = self.config, self.cells["trace"]
        asked = _asked(trace, config["block_size"])
        (row,) = rows(label, asked, [config["capacity_tokens"]], [config["policy"]])
        return row


@lru_cache(maxsize=4)
def _asked(trace: Trace, block_size: int) -> References:
    """What a trace asks of a cache."""
    return references(trace, block_size)


@dataclass(frozen=True)
class Replays:
    """An experiment's replays: its keys, runs, and what is worth knowing before they begin."""

    keys: ReplayKeys
    config: Config
    specs: tuple[ReplaySpec, ...]
    lines: tuple[str, ...]
    warnings: tuple[str, ...]


@dataclass
class _Trace:
    """A trace as the file names it, read."""

    label: str
    workload: Config
    block_size: int
    capacities: list[int]
    lines: list[str]
    skip: str = ""


def read_replays(data: Config, folder: Path, report: Report) -> Replays | None:
    """Check the keys of a replay and load its traces; None if anything was reported."""
    reported = Reported()
    report = reported.before(report)
    keys = validate(ReplayKeys, data, (), report)
    if isinstance(keys, ReplayKeys):
        _check_names(keys, report)
    traces = list(_read_traces(data, folder, report))
    if reported.any or not isinstance(keys, ReplayKeys):
        return None
    for trace in traces:
        _meet(trace, keys.capacity_tokens, folder, report)
    if not reported.any and all(trace.skip for trace in traces):
        for trace in traces:
            report(("traces", trace.label, "workload"), trace.skip)
    if reported.any:
        return None
    policies = [name for name in POLICIES if name in keys.policies or name in BOUNDS]
    return Replays(
        keys,
        _resolved(keys, traces, policies),
        tuple(_specs(keys, traces, policies, folder)),
        tuple(line for trace in traces for line in trace.lines),
        tuple(f"skipped: {trace.skip}" for trace in traces if trace.skip),
    )


def _check_names(keys: ReplayKeys, report: Report) -> None:
    """Report names that are none: of the experiment, its policies and its figures."""
    if sentence := no_folder_name(keys.name):
        report(("name",), sentence)
    if not keys.policies:
        report(("policies",), f"must name at least one; accepted: {', '.join(POLICIES)}")
    lists = {"policies": (keys.policies, POLICIES), "figures": (keys.figures or [], FIGURES)}
    for key, (names, known) in lists.items():
        for i, name in enumerate(names):
            if name not in known:
                report((key, i), f"unknown name {name!r}{guess(name, list(known))}")
            elif name in names[:i]:
                report((key, i), f"{name} is named twice")
    sizes = keys.capacity_tokens
    if sizes is not None and len(set(sizes)) < max(1, len(sizes)):
        report(("capacity_tokens",), "must be a list of at least one value, each once")


def _read_traces(data: Config, folder: Path, report: Report) -> Iterator[_Trace]:
    """The traces whose keys are right."""
    value = data.get("traces", {})
    example = "{chat: {workload: {kind: trace, name: …}, block_size: 16}}"
    if not isinstance(value, dict) or not value:
        if "traces" in data:  # else reported as missing
            report(("traces",), f"must be a mapping like {example}, got {shown(value)}")
        return
    for label, entry in value.items():
        path = ("traces", label)
        if sentence := no_folder_name(label):
            report(path, sentence)
        if not isinstance(entry, dict):
            report(path, f"must be a mapping like {{workload: …}}, got {shown(entry)}")
            continue
        keys = validate(ReplayedTrace, entry, path, report)
        workload = None
        if "workload" in entry:
            around = (folder, None)
            workload = resolve_part("workload", entry["workload"], around, below(path, report))
        if isinstance(keys, ReplayedTrace) and workload is not None:
            yield _Trace(label, workload, keys.block_size, [], [])


def _meet(trace: _Trace, capacities: Sequence[int] | None, folder: Path, report: Report) -> None:
    """Load a trace, and settle the capacities that a cache of it is to have."""
    where = ("traces", trace.label, "workload")
    try:
        loaded = load_trace(trace.workload, folder, SEED)
        asked = _asked(loaded, trace.block_size)
    except AbsentTraceError as error:
        trace.skip = str(error)  # the other traces are replayed
        return
    except (TraceError, OSError) as error:
        report(where, str(error))
        return
    trace.capacities = list(capacities or default_capacities(asked))
    for i, tokens in enumerate(trace.capacities):
        if tokens < trace.block_size:
            text = f"{tokens} tokens hold no block of {trace.block_size} ({trace.label})"
            report(("capacity_tokens", i), text)
    ceiling = hit_rate(asked, hit_blocks("unbounded", asked, asked.num_blocks))
    trace.lines.append(
        f"trace         {trace.label}: {len(loaded):,} requests, {asked.num_blocks:,} different "
        f"blocks of {trace.block_size}; a cache of all of them would serve {100 * ceiling:.1f} % "
        "of the prompt tokens"
    )
    trace.lines += [f"  {reason}: {count:,}" for reason, count in loaded.notes.items()]
    if loaded.think_ns is not None:
        trace.lines.append("  follow-ups come in the order in which sessions start: no engine runs")


def _specs(
    keys: ReplayKeys, traces: Sequence[_Trace], policies: Sequence[str], folder: Path
) -> Iterator[ReplaySpec]:
    """The runs: traces x policies x capacities; one for a trace that is not there."""
    for trace in traces:
        config = {"workload": trace.workload, "block_size": trace.block_size}
        for policy in policies if not trace.skip else [None]:
            for tokens in trace.capacities if not trace.skip else [None]:
                parts = [trace.label, policy, tokens and f"capacity={tokens}"]
                run_id = "-".join(part for part in parts if part)
                yield ReplaySpec(
                    run_id,
                    {"policy": policy, **config, "capacity_tokens": tokens},
                    {"experiment": keys.name, "run": run_id, "trace": trace.label},
                    str(folder),
                    trace.skip,
                )


def _resolved(keys: ReplayKeys, traces: Sequence[_Trace], policies: list[str]) -> Config:
    """The experiment as plain data, defaults filled in."""
    return {
        "name": keys.name,
        "description": keys.description.strip(),
        "policies": policies,
        "traces": {
            trace.label: {"workload": trace.workload, "block_size": trace.block_size}
            for trace in traces
        },
        "capacity_tokens": keys.capacity_tokens,
        "figures": list(keys.figures or ()),
        **({"report": True} if keys.report else {}),
    }
