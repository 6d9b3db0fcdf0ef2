"""The runs of a finished experiment, and their tables on disk."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from sim import results
from sim.outcome import read_facts
from sim.recording.tables import COLUMNS, fault

SUFFIXES = (".parquet", ".csv")  # of a run's tables


@dataclass(frozen=True)
class Source:
    """A folder that kvsim run has written; runs are those that have tables.

    sampled are those of which not every iteration is recorded: one in how many is.
    """

    folder: Path
    name: str
    runs: tuple[str, ...]
    sampled: Mapping[str, int]

    def path(self, run: str, table: str) -> Path | None:
        """The file of a run's table; None if there is none."""
        paths = [self.folder / "runs" / run / f"{table}{suffix}" for suffix in SUFFIXES]
        return next((path for path in paths if path.exists()), None)

    def table(self, run: str, table: str) -> pd.DataFrame | None:
        """A run's table; None if there is none. Raises ResultsError if it cannot be read."""
        path = self.path(run, table)
        if path is None:
            return None
        found = results.read_table(path)
        if table in COLUMNS and fault(table, found) is not None:
            raise self.damaged(run, table)
        return found

    def record_every(self, run: str) -> int:
        """One in how many iterations of a run is recorded, if they are."""
        return self.sampled.get(run, 1)

    def damaged(self, run: str, table: str) -> results.ResultsError:
        """That a run's table is there and is not what kvsim run has written."""
        return results.ResultsError(
            f"{self.path(run, table)}: is not what kvsim run writes; run the experiment again"
        )

    def tables(self) -> list[str]:
        """The names of the tables that any run has."""
        folders = [self.folder / "runs" / run for run in self.runs]
        paths = [path for folder in folders for path in folder.iterdir()]
        found = {path.stem for path in paths if path.suffix in SUFFIXES}
        return sorted(name for name in found if not name.startswith("."))


def open_results(folder: Path, chosen: Sequence[str] = ()) -> Source:
    """The finished runs in a folder, or those of them that are chosen.

    Raises ResultsError if the folder holds no finished experiment, or a run is not among its.
    """
    facts = read_facts(folder)
    unknown = [run for run in chosen if run not in facts.made]
    if unknown:
        raise results.ResultsError(
            f"{folder}: has no finished run {unknown[0]!r}; accepted: {', '.join(facts.made)}"
        )
    runs = [run for run in facts.made if not chosen or run in chosen]
    return Source(folder, facts.name, tuple(runs), _sampled(facts.summary))


def _sampled(summary: pd.DataFrame) -> dict[str, int]:
    """The runs of which only one in so many iterations is recorded, by what the summary says."""
    if "record_every" not in summary:
        return {}
    counts = pd.to_numeric(summary["record_every"], errors="coerce")
    found = zip(summary["run"][counts > 1], counts[counts > 1], strict=True)
    return {str(run): int(every) for run, every in found}
