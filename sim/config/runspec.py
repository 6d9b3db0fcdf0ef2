"""One run as plain data, and the parts it is built from."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from sim.allocators import Allocator
from sim.branching import Branches, WorkloadBranches
from sim.config.classes import code_digest_of, find_class
from sim.config.paths import with_files
from sim.config.plugin_keys import PLUGINS, TABLES, build_part
from sim.config.plugins import Config, nested_tables
from sim.costs import CostModel
from sim.engine.arrivals import FollowUps
from sim.engine.fleet import Parts
from sim.engine.simulation import Memory
from sim.routers import Router
from sim.schedulers import Scheduler
from sim.sequence import PRIORITY, IntArray, Limits, new_requests
from workloads.base import Workload
from workloads.sequences import SequenceContent
from workloads.trace import Trace, TraceError


class TraceSource(NamedTuple):
    """What a trace is made from: runs of equal sources have the same trace.

    workload is its configuration as JSON, folder where relative paths start.
    """

    workload: str
    folder: str
    seed: int

    def load(self) -> Trace:
        """The trace; the same object for equal sources. Raises TraceError."""
        return _load_trace(self)


@dataclass(frozen=True)
class RunSpec:
    """One run, as plain data: cheap to keep and to send to another process.

    config has every default filled in; seed is part of it. cells begin the run's summary row.
    slo maps ttft_s, tpot_s and e2e_s to limits in seconds. folder is where relative paths start.
    skip says why it is not made, empty if it is. num_requests is about how many there are: those of
    the experiment's first seed. max_events is how many rows of events it records, 0 for none.
    """

    run_id: str
    seed: int
    config: Config
    cells: dict[str, Any]
    slo: dict[str, float]
    records_blocks: bool
    folder: str
    skip: str = ""
    num_requests: int = 0
    max_events: int = 0

    @property
    def trace_source(self) -> TraceSource:
        """What the trace of the run is made from."""
        return trace_source(self.config["workload"], Path(self.folder), self.seed)

    def build(
        self, trace: Trace | None = None
    ) -> tuple[Trace, IntArray, Memory, Allocator, Scheduler, CostModel]:
        """The parts of the run, ready for sim.engine.simulation.simulate; of replicas, the first's.

        Raises TraceError if the trace, unless it is given, cannot be read, which only a change of
        its file, or another seed, can cause.
        """
        trace = self.trace_source.load() if trace is None else trace
        config = self.config
        memory = Memory(config["kv_cache"]["num_slots"], config["max_model_len"])
        limits = Limits(
            memory.max_model_len,
            max_tokens_of(trace, config["workload"]["max_tokens"], memory.max_model_len),
        )
        requests = new_requests(trace.arrival_ns, trace.prompt_tokens, trace.output_tokens, limits)
        if trace.priority is not None:
            requests[:, PRIORITY] = trace.priority
        return trace, requests, memory, *self._parts()

    def build_router(self) -> Router | None:
        """What requests go through before one of several replicas; None without replicas."""
        if "replicas" not in self.config:
            return None
        router: Router = build_part("router", self.config["replicas"]["router"], Path(self.folder))
        return router

    def build_others(self) -> list[Parts]:
        """The parts of all replicas but the first."""
        return [self._parts() for _ in range(1, self.config["replicas"]["count"])]

    def _parts(self) -> Parts:
        """The parts of one replica."""
        config, folder = self.config, Path(self.folder)
        allocator: Allocator = build_part("allocator", config["allocator"], folder)
        scheduler: Scheduler = build_part("scheduler", config["scheduler"], folder)
        cost: CostModel = build_part("cost", config["cost"], folder)
        return Parts(allocator, scheduler, cost)

    def key(self, source_hash: str, trace_digest: str) -> str:
        """A hash of all that the run's files depend on: hex, 32 characters."""
        facts = [
            self.config,
            plugin_digests(self.config, Path(self.folder)),
            self.cells,
            self.slo,
            self.records_blocks,
            self.max_events,
            source_hash,
            trace_digest,
        ]
        text = json.dumps(facts, sort_keys=True, ensure_ascii=False)
        return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def plugin_digests(config: Config, folder: Path) -> dict[str, str]:
    """Hashes of the code of plug-ins that are not built in, by key; and of the data that a cost
    model reads.
    """
    digests = {}
    kinds = {key: config[key]["kind"] for key in PLUGINS}
    if "replicas" in config:
        kinds["router"] = config["replicas"]["router"]["kind"]
    for key, kind in kinds.items():
        table, base = TABLES[key]
        if kind not in table:
            digests[key] = code_digest_of(find_class(kind, table, base))
    cost = find_class(config["cost"]["kind"], *PLUGINS["cost"])
    data = getattr(cost, "digest", None)
    if data is not None:
        digests["cost data"] = data(with_files(config["cost"], getattr(cost, "files", ()), folder))
    return digests


def load_trace(config: Config, folder: Path, seed: int) -> Trace:
    """The trace of a workload; the same object for the same workload and seed.

    Raises TraceError.
    """
    return trace_source(config, folder, seed).load()


def trace_source(config: Config, folder: Path, seed: int) -> TraceSource:
    """What the trace of a workload is made from: of one without a random part, with any seed."""
    parameters = {key: value for key, value in config.items() if key != "max_tokens"}
    return TraceSource(json.dumps(parameters), str(folder), seed if uses_seed(config) else 0)


@lru_cache(maxsize=32)
def _load_trace(source: TraceSource) -> Trace:
    workload = build_part("workload", json.loads(source.workload), Path(source.folder))
    return _loaded(workload, source.seed)


def follow_ups(trace: Trace) -> FollowUps | None:
    """Which requests of a trace wait for others; None if all come at their own times.

    A request needs the answer of the one before if both are of one session. Users of a closed
    loop, who have no sessions, ask again whatever became of their last request.
    """
    if trace.parent is None or trace.think_ns is None:
        return None
    needs_answer = np.zeros(len(trace), np.bool_)
    if trace.session is not None:
        needs_answer = (trace.parent >= 0) & (trace.session == trace.session[trace.parent])
    return FollowUps(trace.parent, trace.think_ns, needs_answer)


def sequence_content(trace: Trace) -> SequenceContent | None:
    """What the sequences of a trace consist of; None if it does not say."""
    if trace.content is None:
        return None
    return SequenceContent(trace.content, trace.namespace, trace.priority)


def branches(trace: Trace, seed: int) -> Branches | None:
    """How the requests of a trace fork; None if none does."""
    if trace.num_samples is None and trace.beam_width is None:
        return None
    columns = trace.num_samples, trace.beam_width
    return WorkloadBranches(*columns, seed, trace.beam_parents)


def uses_seed(config: Config) -> bool:
    """Whether a workload's trace depends on the seed, or that of a workload in it."""
    table, base = PLUGINS["workload"]
    cls = find_class(config["kind"], table, base)
    inner = [config[name] for name, entries in nested_tables(cls).items() if entries is table]
    return bool(getattr(cls, "uses_seed", False)) or any(map(uses_seed, inner))


def max_tokens_of(trace: Trace, rule: str | int, max_model_len: int) -> IntArray:
    """max_tokens of every request, by the rule of workload.max_tokens."""
    if rule == "output":
        return trace.output_tokens
    if rule == "column":
        if trace.max_tokens is None:
            raise TraceError(f"{trace.source}: has no max_tokens")
        return trace.max_tokens
    return np.full(len(trace), max_model_len if rule == "max_model_len" else rule, np.int64)


def _loaded(workload: Workload, seed: int) -> Trace:
    """The trace of a workload, which may be anybody's. Raises TraceError for whatever it raises."""
    try:
        trace = workload.load(seed)
    except (TraceError, OSError):
        raise
    except Exception as error:
        if type(workload).__module__.partition(".")[0] == "workloads":
            raise  # a fault of ours keeps its traceback
        reason = " ".join(f"{type(error).__name__}: {error}".split())
        raise TraceError(f"{workload.kind}: load fails: {reason}") from error
    if not isinstance(trace, Trace):
        accepted = "accepted: a Trace"
        raise TraceError(f"{workload.kind}: load gives a {type(trace).__name__}; {accepted}")
    return trace
