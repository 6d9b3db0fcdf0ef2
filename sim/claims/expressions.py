"""From the rows of an experiment to the values of a claim.

Rows are picked by the values of their columns and stand under a name as a table with one row a
seed; values are expressions over these names, evaluated by pandas.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

import pandas as pd

from sim.claims.statement import Knee
from sim.config.plugins import guess

Frames = dict[str, pd.DataFrame]
Values = dict[str, list[Any]]

MIN_QUEUED = 0.5  # of the time: what an average over queued iterations needs to mean anything


class MeasureError(Exception):
    """A claim that cannot be measured as it is stated: one sentence."""


def pick(table: pd.DataFrame, where: Mapping[str, Any]) -> pd.DataFrame:
    """The rows of a summary in which each column has the value asked for, or one of a list's.

    null picks empty cells. Raises MeasureError for unknown columns, no rows, or unfinished runs.
    """
    found = table
    for column, wanted in where.items():
        if column not in found:
            raise MeasureError(
                f"unknown column {column!r}{guess(column, list(map(str, table)))[:300]}"
            )
        cells = found[column]
        if wanted is None:
            found = found[cells.isna()]
        else:
            found = found[cells.isin(wanted if isinstance(wanted, list) else [wanted])]
    if found.empty:
        raise MeasureError(f"no run has {_said(where)}")
    for _, row in found[~found["status"].isin(["finished"])].iterrows():
        raise MeasureError(f"run {row['run']} is {row['status']}: {row['reason']}")
    return found


def frames(table: pd.DataFrame, rows: Mapping[str, Mapping[str, Any]], knee: Knee | None) -> Frames:
    """For every name the rows it picks, one a seed, by seed. Raises MeasureError."""
    result = {}
    for name, where in rows.items():
        found = pick(table, where)
        if knee is not None:
            found = _knees(found, knee)
        elif found["seed"].duplicated().any():
            raise MeasureError(f"{name} ({_said(where)}) picks several runs of a seed")
        result[name] = found.set_index("seed").sort_index()
    return result


def evaluate(expression: str, found: Frames) -> list[Any]:
    """An expression's value for every seed, in order. Raises MeasureError."""
    try:
        value = pd.eval(expression, local_dict=found, engine="python")
    except Exception as error:  # pandas raises whatever its parser meets
        raise MeasureError(f"{expression!r}: {' '.join(str(error).split())}") from None
    listed = value.tolist() if isinstance(value, pd.Series) else [value]
    if any(pd.isna(item) for item in listed):
        raise MeasureError(f"{expression!r}: has no value for some seed")
    return listed


def queued_time_frac(expressions: list[str], found: Frames) -> float | None:
    """How much of the time requests waited, at least, where an expression averages over that.

    None if none does.
    """
    if not any("_queued" in expression for expression in expressions):
        return None
    return min(float(frame["queued_time_frac"].fillna(0).min()) for frame in found.values())


def too_little_queued(queued: float | None) -> str:
    """Why an average over the time that requests waited says nothing; "" if it does."""
    if queued is None or queued >= MIN_QUEUED:
        return ""
    return f"requests waited only {queued:.0%} of the time, too little for an average"


def _knees(rows: pd.DataFrame, knee: Knee) -> pd.DataFrame:
    """A table of one row a seed with its knee. Raises MeasureError where a curve has none."""
    for column in (knee.x, knee.y):
        if column not in rows:
            raise MeasureError(
                f"unknown column {column!r}{guess(column, list(map(str, rows)))[:300]}"
            )
    result = [
        {"seed": seed, "knee": _knee(curve.sort_values(knee.x), knee)}
        for seed, curve in rows.groupby("seed")
    ]
    return pd.DataFrame(result)


def _knee(curve: pd.DataFrame, knee: Knee) -> float:
    points = list(zip(curve[knee.x].tolist(), curve[knee.y].tolist(), strict=True))
    if points[0][1] > knee.limit:
        raise MeasureError(f"{knee.y} is above {knee.limit} at the smallest {knee.x}: no knee")
    for (x0, y0), (x1, y1) in itertools.pairwise(points):
        if y1 > knee.limit:
            return float(x0 + (x1 - x0) * (knee.limit - y0) / (y1 - y0))
    raise MeasureError(f"{knee.y} stays within {knee.limit} up to the largest {knee.x}: no knee")


def _said(where: Mapping[str, Any]) -> str:
    return ", ".join(f"{column} = {value}" for column, value in where.items())
