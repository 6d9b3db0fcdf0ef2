"""A folder of results: what it says of itself, and its tables, each read when it is asked for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import pandas as pd

from sim.results.files import UNMADE, ResultsError
from sim.stored.facts import Facts, read_facts
from sim.stored.files import AGAIN, read_json
from sim.stored.rows import read_rows, read_summary
from sim.stored.runs import Manifest, read_manifest, read_run_table, run_table_path, tables_of

ACCEPTED_RUN = "accepted: a folder that kvsim run has written"
RUNS = "runs"  # the folder of the tables of single runs, which is not committed
OF_RATES = ("label", "status", "offline", "rate_req_s")
OF_RATE_POINTS = ("label", "rate_req_s", "seed", "is_fresh")


@dataclass(frozen=True)
class Stored:
    """What kvsim has written into a folder. What is not there, or damaged, raises ResultsError."""

    folder: Path
    facts: Facts

    @cached_property
    def summary(self) -> pd.DataFrame:
        """One row a run, in the order of the runs."""
        return read_summary(self.path("summary"), self.facts.runs)

    @cached_property
    def points(self) -> pd.DataFrame | None:
        """One row a point: means over seeds; None of one seed, of which the summary has all."""
        path = self.path("points")
        return read_rows(path, ("num_seeds",)) if path.is_file() else None

    @cached_property
    def rates(self) -> pd.DataFrame:
        """Of a search of capacities: one row a kind of memory. offline is "" where it is none."""
        table = read_rows(self.path("capacity_rates"), OF_RATES)
        names = table["offline"].astype(object)
        return table.assign(offline=names.where(names.notna(), ""))

    @cached_property
    def rate_points(self) -> pd.DataFrame:
        """Of a search of capacities: one row a run."""
        return read_rows(self.path("capacity_points"), OF_RATE_POINTS)

    def path(self, table: str) -> Path:
        """The file of a table of the whole experiment."""
        return self.folder / f"{table}.csv"

    @property
    def has_runs(self) -> bool:
        """Whether there is a folder of single runs; without, the summary is all there is."""
        return (self.folder / RUNS).exists()

    @property
    def made(self) -> list[str]:
        """The runs that have measurements, and tables: those that neither failed nor were skipped.

        Of the others, older results may hold an earlier run's.
        """
        unmade = set(self.summary["run"][self.summary["status"].isin(UNMADE)])
        return [run for run in self.facts.runs if run not in unmade]

    @cached_property
    def manifests(self) -> dict[str, Manifest]:
        """Those of the runs that are here as they were when the summary was written."""
        found = {run: read_manifest(self._run(run)) for run in self.facts.runs}
        return {
            run: manifest
            for run, manifest in found.items()
            if manifest is not None and manifest["key"] == self._keys.get(run)
        }

    @property
    def lost(self) -> list[str]:
        """The runs that were removed, or made anew since the summary, or by another version."""
        return [
            run
            for run in self.facts.runs
            if self._keys.get(run) is not None and run not in self.manifests
        ]

    @cached_property
    def _keys(self) -> Mapping[str, object]:
        """The key of each run when the summary was written; null of one that failed."""
        path = self.folder / RUNS / "keys.json"
        return read_json(path, f"{AGAIN} to have its tables here")

    def check_kind(self) -> None:
        """Raise ResultsError of a search of capacities, which has no runs."""
        if self.facts.is_search:
            raise ResultsError(f"{self.folder}: is a search of capacities; {ACCEPTED_RUN}")

    def check_runs_if_any(self) -> None:
        """As check_runs, but the summary may be all there is: that is how results are committed."""
        self.check_kind()
        if self.has_runs:
            self.check_runs()

    def check_runs(self) -> None:
        """Raise ResultsError unless all runs are here, and those that the summary is of."""
        self.check_kind()
        lost = self.lost
        if lost:
            raise ResultsError(
                f"{self._run(lost[0])}: is missing, or made anew or by another version; {AGAIN}"
            )

    def choose(self, runs: Sequence[str]) -> list[str]:
        """The runs with tables that are asked for, all if none is. Raises ResultsError."""
        made = self.made
        unknown = [run for run in runs if run not in made]
        if unknown:
            raise ResultsError(
                f"{self.folder}: has no finished run {unknown[0]!r}; accepted: {', '.join(made)}"
            )
        return [run for run in made if not runs or run in runs]

    def table_names(self, run: str) -> list[str]:
        """The names of the tables that a run wrote."""
        return sorted(tables_of(self.manifests[run])) if run in self.manifests else []

    def table(self, run: str, name: str) -> pd.DataFrame | None:
        """A table of a run, None if it wrote none."""
        manifest = self.manifests.get(run)
        return None if manifest is None else read_run_table(self._run(run), manifest, name)

    def table_path(self, run: str, name: str) -> Path | None:
        """The file of a table of a run, None if it wrote none."""
        manifest = self.manifests.get(run)
        return None if manifest is None else run_table_path(self._run(run), manifest, name)

    def record_every(self, run: str) -> int:
        """One in how many iterations of a run is recorded, if they are."""
        if "record_every" not in self.summary:
            return 1
        counts = self.summary["record_every"][self.summary["run"] == run].dropna()
        return max([1, *map(int, counts)])

    def tables(self, name: str) -> Mapping[str, pd.DataFrame]:
        """One kind of table of the runs that have it, without the column run."""
        runs = [run for run in self.made if name in self.table_names(run)] if self.has_runs else []
        return _Tables(self, name, runs)

    def _run(self, run: str) -> Path:
        return self.folder / RUNS / run


def open_folder(folder: Path) -> Stored:
    """A folder that kvsim has written. Raises ResultsError if it holds no finished experiment."""
    return Stored(folder, read_facts(folder))


class _Tables(Mapping[str, pd.DataFrame]):
    """One kind of table of several runs, by run: each is read whenever it is asked for."""

    def __init__(self, stored: Stored, name: str, runs: Sequence[str]) -> None:
        self._stored, self._name, self._runs = stored, name, dict.fromkeys(runs)

    def __getitem__(self, run: str) -> pd.DataFrame:
        if run not in self._runs:
            raise KeyError(run)
        table = self._stored.table(run, self._name)
        if table is None:
            raise KeyError(run)
        return table.drop(columns="run", errors="ignore")

    def __contains__(self, run: object) -> bool:
        return run in self._runs

    def __iter__(self) -> Iterator[str]:
        return iter(self._runs)

    def __len__(self) -> int:
        return len(self._runs)
