"""All lines of an experiment, searched one after the other."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from sim.config.runspec import RunSpec, load_trace
from sim.runs.runner import RunOptions
from sim.slo.capacity import Prices, capacity_row
from sim.slo.lines import START_RATE, Line, at_rate, num_windows, own_rate
from sim.slo.objectives import Objective, num_measured
from sim.slo.rates import Bench, Rates, Row, RunError, Sampling
from sim.slo.search import ladder
from sim.slo.steady import num_with_warm_up
from workloads.trace import TraceError

OnRun = Callable[[int, int], None]


class TooFewError(Exception):
    """A workload with too few requests for what is asked: one sentence."""


@dataclass(frozen=True)
class Question:
    """What is asked of every line.

    A rate is sustained if at least agree of so many seeds sustain it; rates are found up to a
    factor of 1 + tolerance. num_measured is how many requests are measured in a run, what the
    percentiles need if it is None. price_per_hour is that of one GPU.
    """

    objectives: tuple[Objective, ...]
    seeds: int
    agree: int
    tolerance: float
    num_measured: int | None = None
    price_per_hour: float | None = None

    @property
    def needed(self) -> int:
        """How many requests the percentiles and a growing queue need."""
        return num_measured(self.objectives)

    @property
    def measured(self) -> int:
        """How many requests are measured in a run, at least."""
        return self.num_measured or self.needed


def survey(
    question: Question, lines: Sequence[Line], folder: Path, jobs: int, on_run: OnRun
) -> tuple[list[Row], list[Row]]:
    """A row for each line, and all points behind them. Runs are kept, and found, in folder.

    on_run is told which line is searched and how many runs there were. A line whose trace is too
    short, or cannot be read, is a row with the reason; if no line can be searched, that is raised:
    TooFewError, TraceError.
    """
    total = 0
    rows: list[Row] = []
    points: list[Row] = []
    unsearched: list[TooFewError | TraceError] = []

    def count(runs: int) -> None:
        nonlocal total
        total += runs
        on_run(len(rows), total)

    bench = Bench(folder, RunOptions(jobs), count)
    for line in lines:
        try:
            row, found = _search(question, line, bench)
        except (TooFewError, TraceError) as error:
            unsearched.append(error)
            row, found = {"status": "skipped", "reason": str(error)}, []
        begin = {**line.cells, "offline": line.offline, "label": line.label}
        rows.append({**begin, **row})
        points += [{**begin, **point} for point in found]
    if unsearched and not points:
        raise unsearched[0]
    return rows, points


def _search(question: Question, line: Line, bench: Bench) -> tuple[Row, list[Row]]:
    if line.spec is None:
        return {"status": "skipped", "reason": line.skip}, []
    sampling = _sampling(question, line.spec)
    spec, config = line.spec, line.spec.config
    start = own_rate(config["workload"]) or START_RATE
    rates = Rates(line, ladder(start, question.tolerance), sampling, bench)
    prices = None
    if question.price_per_hour is not None:
        num_gpus = config["tensor_parallel_size"] * num_replicas(spec)
        prices = Prices(question.price_per_hour, num_gpus)
    agree = math.ceil(question.agree * len(sampling.seeds) / question.seeds)
    try:
        row = capacity_row(rates, agree, prices)
    except RunError as error:
        row = {"status": "error", "reason": str(error)}
    if num_replicas(spec) > 1:
        row["num_replicas"] = num_replicas(spec)
    return row, rates.table()


def num_replicas(spec: RunSpec) -> int:
    """How many engines share the rate of a run."""
    replicas = spec.config.get("replicas")
    return 1 if replicas is None else int(replicas["count"])


def _sampling(question: Question, spec: RunSpec) -> Sampling:
    """The seeds and requests of a line."""
    needed = question.measured
    count = num_with_warm_up(needed)
    paced = at_rate(spec, START_RATE, 0, count)
    found = len(load_trace(paced.config["workload"], Path(spec.folder), 0))
    if found < count:
        raise TooFewError(
            f"{needed:,} requests are to be measured after a warm-up of {count - needed:,}, and "
            f"the workload has {found:,}; accepted: a longer trace, a lower percentile, or "
            f"--requests {max(1, found * needed // count - 1)}"
        )
    seeds = tuple(range(num_windows(spec, question.seeds, count)))
    return Sampling(seeds, found, question.objectives)
