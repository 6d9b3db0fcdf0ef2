"""A run of parts that were made by hand: a trace, memory, a scheduler and a cost model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd

from sim import metrics, tables
from sim.allocators.base import Allocator
from sim.allocators.checked import CheckedAllocator
from sim.costs.base import CostModel
from sim.costs.linear import Linear
from sim.engine import Memory, Options, Run
from sim.engine import simulate as simulate_run
from sim.library.plain import made_part
from sim.runspec import branches, follow_ups, max_tokens_of, sequence_content
from sim.schedulers.base import Scheduler
from sim.schedulers.fcfs import Fcfs
from sim.sequence import PRIORITY, Limits, new_requests
from sim.yaml_nodes import ConfigError
from workloads.trace import Trace


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
    limits in seconds; seed draws beams; check verifies every allocator operation. Raises
    ConfigError if a part is wrong, or needs what the trace does not provide; ValueError if the
    allocator cannot use the pool.

    >>> import sim
    >>> import numpy as np
    >>> trace = sim.Trace(np.array([0, 0]), np.array([25, 47]), np.array([5, 9]))
    >>> done = sim.simulate(trace, {"kind": "paged", "block_size": 16}, num_slots=1024)
    >>> done.status, done.summary["num_finished"], done.requests["output_tokens"].tolist()
    ('finished', 2, [5, 9])
    """
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
