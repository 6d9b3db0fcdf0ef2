"""The recorded runs of an experiment, from its folder of results."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from sim.figures.tables import groups, is_empty
from sim.recording.tables import NAMES
from sim.report.player.packing import TERMS
from sim.report.player.recordings import Recording
from sim.results import read_table


def recordings(folder: Path) -> list[Recording]:
    """Of runs that differ in their seed only, the first; in the order of the summary.

    Runs that recorded nothing are left out. Raises ResultsError if a file cannot be read.
    """
    if not (folder / "summary.csv").is_file():
        return []  # a search for a capacity has none
    summary = read_table(folder / "summary.csv")
    if "run" not in summary:
        return []
    runs = folder / "runs"
    there = {path.name for path in runs.iterdir()} if runs.is_dir() else set()
    found = []
    for group in groups(summary):
        if group.first_run not in there:
            continue  # a name that leads elsewhere, or is none of a folder, neither
        run = runs / group.first_run
        if all((run / f"{name}.parquet").is_file() for name in NAMES):
            found.append(_recording(run, group.label, group.runs.iloc[0]))
    return found


def _recording(run: Path, label: str, row: pd.Series) -> Recording:
    tables = {name: read_table(run / f"{name}.parquet") for name in NAMES}
    every = _number(row, "record_every") or 1
    iterations = tables["iterations"]
    return Recording(
        label=label,
        allocator="" if is_empty(row.get("allocator")) else str(row["allocator"]),
        num_slots=_number(row, "num_slots") or _slots(iterations),
        block_size=_number(row, "record_block_size") or None,
        iterations=iterations,
        phases=tables["phases"],
        events=tables["block_events"],
        tables=tables["table_events"],
        num_moments_recorded=every * len(iterations) if every > 1 else None,
    )


def _number(row: pd.Series, name: str) -> int:
    value = row.get(name)
    return 0 if is_empty(value) else int(float(str(value)))


def _slots(iterations: pd.DataFrame) -> int:
    """The pool of any iteration: its terms together."""
    return int(iterations[list(TERMS)].iloc[0].sum()) if len(iterations) else 0
