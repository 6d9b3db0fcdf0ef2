"""The points of one line: runs at the rungs of a ladder, made once each and kept on disk."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sim.config.runspec import RunSpec
from sim.executors.local import Local
from sim.runs.runner import RunOptions, Work, code_digest
from sim.slo.lines import Line, at_rate
from sim.slo.objectives import Objective
from sim.slo.search import Ladder
from sim.slo.steady import Point, measure
from sim.stored.files import read_table

Row = dict[str, Any]
Holds = Callable[[Point], bool]


class RunError(Exception):
    """A run that raised: the sentence of its row."""


@dataclass(frozen=True)
class Bench:
    """Where runs are made and kept: the folder of results, and how many at a time."""

    folder: Path
    options: RunOptions
    on_run: Callable[[int], None] = lambda count: None
    code: str = field(default_factory=code_digest)

    def run(self, specs: Sequence[RunSpec]) -> list[Row]:
        """Make runs, or find them done; their summary rows.

        Raises ResultsError if files cannot be written, or a process is killed.
        """
        work = Work(self.folder, self.code, self.options)
        with closing(Local().ended([list(enumerate(specs))], work)) as ended:
            rows = dict(ended)
        self.on_run(len(specs))
        return [rows[number] for number in range(len(specs))]


@dataclass(frozen=True)
class Sampling:
    """What is simulated at each rate: these seeds, so many requests in each."""

    seeds: tuple[int, ...]
    num_requests: int
    objectives: tuple[Objective, ...]


class Rates:
    """The points of a line. holds of a search is asked here, and runs what has not been run."""

    def __init__(self, line: Line, ladder: Ladder, sampling: Sampling, bench: Bench) -> None:
        assert line.spec is not None
        self.line = line
        self.ladder = ladder
        self.sampling = sampling
        self._spec = line.spec
        self._bench = bench
        self._points: dict[int, dict[int, Point]] = {}

    @property
    def num_runs(self) -> int:
        """How many runs the points are from."""
        return sum(map(len, self._points.values()))

    def at(self, rung: int) -> list[Point]:
        """One point a seed. Raises RunError."""
        return self._of(rung, self.sampling.seeds)

    def of_seed(self, rung: int, seed: int) -> Point:
        """The point of one seed. Raises RunError."""
        return self._of(rung, (seed,))[0]

    def fresh(self, rung: int) -> list[Point]:
        """As many points of seeds that no search has looked at; none where seeds change nothing."""
        seeds = self.sampling.seeds
        if len(seeds) == 1:
            return []
        return self._of(rung, range(max(seeds) + 1, max(seeds) + 1 + len(seeds)))

    def count(self, rung: int, holds: Holds) -> int:
        """Of how many seeds something holds."""
        return sum(map(holds, self.at(rung)))

    def complete(self) -> dict[int, list[Point]]:
        """The points of all rungs that every seed was run at, by rung in rising order."""
        seeds = self.sampling.seeds
        return {
            rung: [points[seed] for seed in seeds]
            for rung, points in sorted(self._points.items())
            if points.keys() >= set(seeds)
        }

    def table(self) -> list[Row]:
        """Every point that there is, with its rate and seed, and whether a search looked at it."""
        own = self.sampling.seeds
        return [
            {
                "rate_req_s": self.ladder.rate(rung),
                "seed": seed,
                "is_fresh": seed not in own,
                **point,
            }
            for rung, points in sorted(self._points.items())
            for seed, point in sorted(points.items())
        ]

    def _of(self, rung: int, seeds: Sequence[int]) -> list[Point]:
        known = self._points.setdefault(rung, {})
        missing = [seed for seed in seeds if seed not in known]
        rate, number = self.ladder.rate(rung), self.sampling.num_requests
        specs = [at_rate(self._spec, rate, s, number, self.line.offline) for s in missing]
        if specs:
            for seed, spec, row in zip(missing, specs, self._bench.run(specs), strict=True):
                known[seed] = self._point(spec, row)
        return [known[seed] for seed in seeds]

    def _point(self, spec: RunSpec, row: Row) -> Point:
        if row["status"] == "error":
            raise RunError(f"at {spec.cells['rate']:g} requests/s: {row['reason']}")
        folder = self._bench.folder / "runs" / spec.run_id
        requests = read_table(folder / "requests.parquet")
        timeline = read_table(folder / "timeline.parquet")
        return measure(row, requests, timeline, self.sampling.objectives)
