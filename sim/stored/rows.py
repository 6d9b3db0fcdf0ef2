"""Tables of a whole experiment, and what they must have to be those of kvsim.

A number of the table METRICS is empty, or finite and not negative: what is none would silently be
left out of a figure or a mean.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from sim.metrics.docs import METRICS
from sim.metrics.points import SUFFIXES
from sim.results.files import STATUSES, ResultsError
from sim.stored.files import AGAIN, read_table

MOST = 1e24  # no time, rate, count or size of a run is larger
OF_RATES = ("_req_s", "_tokens_s", "_per_request")  # how numbers of a search of capacities end
WORDS = {"run": "a text", "label": "a text", "status": f"one of {', '.join(STATUSES)}"}


def read_rows(path: Path, needed: Sequence[str]) -> pd.DataFrame:
    """A table with these columns, and at least one row. Raises ResultsError."""
    table = read_table(path)
    absent = [name for name in needed if name not in table]
    if absent:
        raise ResultsError(f"{path}: has no column {absent[0]}; {AGAIN}")
    if not len(table):
        raise ResultsError(f"{path}: has no rows; {AGAIN}")
    for name in map(str, table):
        if _is_number(name):
            least = 0 if name in METRICS else -MOST  # an interval's end may be below by rounding
            fine = _are_numbers(table[name], least)
            _check(path, name, table[name], fine, f"from {least:g} to {MOST:g}")
    for name in WORDS.keys() & set(needed):
        _check(path, name, table[name], table[name].notna(), WORDS[name])
    return table


def read_summary(path: Path, runs: Sequence[str]) -> pd.DataFrame:
    """summary.csv of these runs, a row each in their order; the file's may be another.

    A spreadsheet may have sorted it. Raises ResultsError.
    """
    table = read_rows(path, ("run", "status"))
    table["run"] = table["run"].astype(str)  # pandas takes a name of digits for a number
    _check(path, "status", table["status"], table["status"].isin(STATUSES), WORDS["status"])
    if sorted(table["run"]) != sorted(runs):
        raise ResultsError(f"{path}: has not the runs of experiment.json; {AGAIN}")
    return table.set_index("run", drop=False).loc[list(runs)].reset_index(drop=True)


def _is_number(column: str) -> bool:
    """Whether a column has numbers, of a run or over the seeds of a point."""
    names = [column.removesuffix(suffix) for suffix in SUFFIXES]
    metrics = [METRICS[name] for name in names if name in METRICS]
    return any(metric.unit for metric in metrics) or column.endswith(OF_RATES)


def _are_numbers(cells: pd.Series, least: float) -> pd.Series:
    """Which cells are empty, or numbers between least and MOST."""
    if pd.api.types.is_bool_dtype(cells):
        return pd.Series(data=False, index=cells.index)
    numbers = pd.to_numeric(cells, errors="coerce")
    return cells.isna() | numbers.between(least, MOST)


def _check(path: Path, name: str, cells: pd.Series, fine: pd.Series, accepted: str) -> None:
    """Raise ResultsError at the first cell that is not fine."""
    if not fine.all():
        row = int(np.argmin(fine.to_numpy(bool)))
        found = str(cells.iloc[row])
        raise ResultsError(
            f"{path}: row {row + 1}: {name}: {found[:40]!r}; accepted: {accepted}; {AGAIN}"
        )
