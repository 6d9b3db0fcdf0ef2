"""A run of parts that were made by hand: a trace, memory, a scheduler and a cost model."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from sim.allocators.base import Allocator
from sim.allocators.checked import CheckedAllocator
from sim.config.plugins import shown
from sim.config.runspec import branches, follow_ups, max_tokens_of, sequence_content
from sim.config.yaml_nodes import MAX_NUMBER, ConfigError
from sim.costs.base import CostModel
from sim.costs.linear import Linear
from sim.engine.simulation import Memory, Options, Run
from sim.engine.simulation import simulate as simulate_run
from sim.library.plain import flag, made_part, mapping_of, sizes_of, whole
from sim.metrics import summary as metrics
from sim.results import tables
from sim.schedulers.base import Scheduler
from sim.schedulers.fcfs import Fcfs
from sim.sequence import PRIORITY, Limits, new_requests
from workloads.trace import MAX_TOKENS, Trace

RULES = ("column", "output", "max_model_len")  # what max_tokens may say
LIMITS = ("ttft_s", "tpot_s", "e2e_s")


class Simulation:
    """What a run of parts has left: tables, and the parts in their last state.

    summary is a dict with the metrics of a row of summary.csv; status is finished or stalled.
    """

    def __init__(self, run: Run, slo: Mapping[str, float]) -> None:
        self._run = run
        self.summary: dict[str, Any] = metrics.summarize(run, slo)
        self.status: str = run.status
        self.allocator: Allocator = run.allocator
        self.scheduler: Scheduler = run.scheduler

    @property
    def requests(self) -> pd.DataFrame:
        """One row a request: arrival_s, prompt_tokens, first_token_s, finish_s, status, …."""
        return pd.concat(list(tables.requests_tables(self._run)), ignore_index=True)

    @property
    def timeline(self) -> pd.DataFrame:
        """One row a bucket of time: start_s, width_s, slots of each kind, num_running, …."""
        return tables.timeline_table(self._run)


def simulate(  # noqa: PLR0913 - one for each part, and two more
    trace: Trace,
    allocator: Allocator | Mapping[str, Any],
    num_slots: int,
    *,
    max_model_len: int = 2048,
    scheduler: Scheduler | Mapping[str, Any] | None = None,
    cost: CostModel | Mapping[str, Any] | None = None,
    max_tokens: str | int | None = None,
    slo: Mapping[str, float] | None = None,
    seed: int = 0,
    check: bool = False,
) -> Simulation:
    """Run a trace through one allocator, scheduler and cost model, each an object or {kind: …}.

    num_slots is the pool. scheduler is fcfs and cost linear if they are left out, as in
    experiments. max_tokens is what the scheduler knows of outputs: the trace's own if it has any,
    else the outputs; or "output", "max_model_len", a number. slo maps ttft_s, tpot_s and e2e_s to
    limits in seconds; seed draws beams; check verifies every allocator operation. A part that is
    an object is of this run from now on: another run that is given it begins it anew. Raises
    ConfigError if a part or a number is wrong, or a part needs what the trace does not provide;
    ValueError if the allocator cannot use the pool.

    >>> import sim
    >>> import numpy as np
    >>> trace = sim.Trace(np.array([0, 0]), np.array([25, 47]), np.array([5, 9]))
    >>> done = sim.simulate(trace, {"kind": "paged", "block_size": 16}, num_slots=1024)
    >>> done.status, done.summary["num_finished"], done.requests["output_tokens"].tolist()
    ('finished', 2, [5, 9])
    """
    sizes = {"num_slots": num_slots, "max_model_len": max_model_len}
    _check_values(trace, sizes, max_tokens, slo, seed, check)
    memory = made_part("allocator", allocator)
    policy = Fcfs() if scheduler is None else made_part("scheduler", scheduler)
    times = Linear() if cost is None else made_part("cost", cost)
    _check_needs(trace, memory, policy)
    rule = max_tokens or ("column" if trace.max_tokens is not None else "output")
    limits = Limits(max_model_len, max_tokens_of(trace, rule, max_model_len))
    requests = new_requests(trace.arrival_ns, trace.prompt_tokens, trace.output_tokens, limits)
    if trace.priority is not None:
        requests[:, PRIORITY] = trace.priority
    options = Options(
        follow_ups=follow_ups(trace),
        content=sequence_content(trace),
        branches=branches(trace, seed),
    )
    used = CheckedAllocator(memory) if check else memory
    run = simulate_run(requests, Memory(num_slots, max_model_len), used, policy, times, options)
    return Simulation(run, slo or {})


def _check_values(
    trace: Trace,
    sizes: Mapping[str, Any],
    max_tokens: Any,
    slo: Any,
    seed: Any,
    check: Any,
) -> None:
    """Raise ConfigError for what is no trace, no size, no limit or no seed."""
    problems: list[str] = []
    if not isinstance(trace, Trace):
        problems.append(f"trace: {shown(trace)} is a {type(trace).__name__}; accepted: a Trace")
    sizes_of(sizes["num_slots"], sizes["max_model_len"], problems.append)
    checks = [
        (flag, "check", check),
        (_seed, "seed", seed),
        (_max_tokens, "max_tokens", max_tokens),
    ]
    for look, key, value in checks:
        try:
            look(key, value)
        except ValueError as error:
            problems.append(str(error))
    for key, limit in mapping_of({} if slo is None else slo, "slo", ", ".join(LIMITS)).items():
        is_number = isinstance(limit, int | float | np.number) and not isinstance(limit, bool)
        is_limit = is_number and limit > 0
        if key not in LIMITS or not is_limit or not math.isfinite(limit):
            accepted = f"accepted: seconds above 0 for {', '.join(LIMITS)}"
            problems.append(f"slo: {key}: got {shown(limit)}; {accepted}")
    if problems:
        raise ConfigError(problems)


def _seed(key: str, value: Any) -> None:
    whole(key, value, 0, MAX_NUMBER)


def _max_tokens(key: str, value: Any) -> None:
    """Raise ValueError unless it is a rule or a number."""
    if isinstance(value, str) and value not in RULES:
        raise ValueError(f"{key}: got {value!r}; accepted: {', '.join(RULES)}, or a number")
    if value is not None and not isinstance(value, str):
        whole(key, value, 1, MAX_TOKENS)


def _check_needs(trace: Trace, allocator: Allocator, scheduler: Scheduler) -> None:
    """Raise ConfigError unless the trace provides what the parts need of it."""
    objection = scheduler.objection(allocator)
    problems = [f"scheduler: {objection}"] if objection else []
    parts: dict[str, Allocator | Scheduler] = {"allocator": allocator, "scheduler": scheduler}
    for key, part in parts.items():
        missing = ", ".join(sorted(part.needs - trace.provides))
        if missing:
            provided = ", ".join(sorted(trace.provides)) or "nothing"
            needs = f"{part.kind} needs {missing} of the trace"
            problems.append(f"{key}: {needs}; {trace.source} provides {provided}")
    if problems:
        raise ConfigError(problems)
