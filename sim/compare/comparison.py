"""From two sides to one row a point and metric: means, difference, interval, p-values, verdict.

Differences are B less A. How a row is tested:

pairs          the sides have seeds in common, so their workloads are drawn from the same random
               numbers: the differences between the runs of each seed (sim.compare.significance)
two samples    other seeds on each side
stretches      one run of the same trace on each side: sim.compare.stretches
one run        the same without tables of requests, or of another metric than the requests' means:
               nothing is known of chance, so no p

The interval is the 95 % bootstrap of the mean difference (sim.metrics.points), of each row by
itself. The verdicts are about all rows together, by Holm's correction of p. Rows without any
difference count for nothing there: whichever way they are flipped or dealt out, their p is 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from sim.compare.matching import Alone, Match, match
from sim.compare.metrics import OF_REQUESTS, SHOWN, better
from sim.compare.sides import CompareError, Side
from sim.compare.significance import Tested, sign_flip, two_samples
from sim.compare.stretches import NUM_STRETCHES, Stretches, requests_of, stretched
from sim.compare.verdicts import Row, judge
from sim.config.plugins import guess
from sim.figures.tables import numbers
from sim.metrics import points
from sim.results import files as results

PAIRS, TWO_SAMPLES, STRETCHES, ONE_RUN, NO_VALUE = (
    "pairs",
    "two samples",
    "stretches",
    "one run",
    "no value",
)

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Comparison:
    """What is shown. by are the columns that points were matched by; notes are sentences."""

    first: Side
    second: Side
    by: list[str]
    rows: list[Row]
    alone: list[Alone]
    notes: list[str] = field(default_factory=list)


def compare(
    first: Side,
    second: Side,
    by: Sequence[str] = (),
    metrics: Sequence[str] = (),
    besides: Sequence[str] = (),
) -> Comparison:
    """Compare two sides in the metrics that are named, or in those of sim.compare.metrics; and in
    besides. Raises CompareError.
    """
    columns, matches, alone = match(first, second, by)
    has_one_run = any(len(found.first) == len(found.second) == 1 for found in matches)
    names = _metrics(first, second, has_one_run, metrics)
    names += [name for name in _named(first, second, besides) if name not in names]
    notes: dict[str, None] = {}
    rows: list[Row] = []
    for found in matches:
        rows += _rows(found, names, (first, second), notes)
    if not metrics:  # what has no value anywhere is left out where nobody has named it
        known = {row["metric"] for row in rows if row["method"] != NO_VALUE} | {*besides}
        rows = [row for row in rows if row["metric"] in known]
    if not rows:
        raise CompareError("the points that match have no metric in common; accepted: --metric")
    judge(rows)
    return Comparison(first, second, columns, rows, alone, list(notes))


def _metrics(first: Side, second: Side, has_one_run: bool, named: Sequence[str]) -> list[str]:
    """The columns that are shown: those named, or the usual ones that both sides have."""
    if named:
        return _named(first, second, named)
    usual = [*SHOWN, *(OF_REQUESTS if has_one_run else ())]
    return [name for name in usual if name in _numeric(first, second)]


def _named(first: Side, second: Side, names: Sequence[str]) -> list[str]:
    both = _numeric(first, second)
    for name in names:
        if name not in both:
            raise CompareError(f"--metric: unknown {name!r}{guess(name, both)}")
    return list(dict.fromkeys(names))


def _numeric(first: Side, second: Side) -> list[str]:
    """The columns of numbers that both summaries have."""
    return [
        str(name)
        for name in first.rows
        if name in second.rows
        and name not in {*first.cells, *second.cells, "seed", "reason"}
        and all(_is_numeric(side.rows[name]) for side in (first, second))
    ]


def _is_numeric(column: pd.Series) -> bool:
    return pd.api.types.is_numeric_dtype(column) and not pd.api.types.is_bool_dtype(column)


def _rows(
    found: Match, names: Sequence[str], sides: tuple[Side, Side], notes: dict[str, None]
) -> list[Row]:
    """One row a metric of two points that belong together."""
    tables = [rows.set_index(_seeds(rows)) for rows in (found.first, found.second)]
    common = tables[0].index.intersection(tables[1].index)
    is_paired = len(common) > 1
    if is_paired:
        left_out = sum(len(table) - len(common) for table in tables)
        if left_out:
            notes[f"{left_out} runs have a seed that the other side lacks, and are left out"] = None
        tables = [table.loc[common] for table in tables]
    for side, table in zip(sides, tables, strict=True):
        _note_unfinished(side, table, notes)
    by_request: dict[str, Stretches] = {}
    if max(map(len, tables)) == 1 and set(names) & set(OF_REQUESTS):
        by_request = _by_request(sides, [str(t["run"].iloc[0]) for t in tables], notes)
    rows = []
    for name in names:
        values = [numbers(table, name).to_numpy(float) for table in tables]
        if is_paired:
            row = _of_pairs(*values)
        elif name in by_request:
            row = _of_stretches(by_request[name])
        else:
            row = _of_samples(*values)
        rows.append({**found.cells, "metric": name, "better": better(name), **row})
    return rows


def _seeds(rows: pd.DataFrame) -> pd.Index:
    return pd.Index(rows["seed"] if "seed" in rows else [0] * len(rows))


def _note_unfinished(side: Side, table: pd.DataFrame, notes: dict[str, None]) -> None:
    for run, status in zip(table["run"], table["status"], strict=True):
        if status != "finished":
            notes[f"{side.letter}: {run} is {status}: what it measured covers less"] = None


def _by_request(
    sides: tuple[Side, Side], runs: Sequence[str], notes: dict[str, None]
) -> dict[str, Stretches]:
    """What the requests of two single runs differ in; a note says why, if that is not known."""
    try:
        (mine, my_trace), (its, its_trace) = (
            requests_of(side.stored, run) for side, run in zip(sides, runs, strict=True)
        )
        if my_trace != its_trace:
            raise results.ResultsError("the runs have different requests")
        return stretched(mine, its)
    except results.ResultsError as error:
        notes[f"requests are not compared one by one: {error}"] = None
        return {}


def _of_pairs(first: Floats, second: Floats) -> Row:
    known = np.isfinite(first) & np.isfinite(second)
    first, second = first[known], second[known]
    if len(first) < 2:
        return _of_samples(first, second)
    differences = second - first
    ends = points.bootstrap(differences[:, None])[:, 0]
    row = _measured(float(first.mean()), float(second.mean()), ends)
    counts = {"num_a": len(first), "num_b": len(second), "num_agree": _num_agree(differences)}
    return {"method": PAIRS, **counts, **row, **_p(sign_flip(differences))}


def _of_samples(first: Floats, second: Floats) -> Row:
    first, second = first[np.isfinite(first)], second[np.isfinite(second)]
    counts: Row = {"num_a": len(first), "num_b": len(second), "num_agree": None}
    mine, its = (
        float(values.mean()) if len(values) else float("nan") for values in (first, second)
    )
    if not counts["num_a"] or not counts["num_b"]:
        return {"method": NO_VALUE, **counts, **_measured(mine, its, None), **_p(None)}
    if len(first) < 2 or len(second) < 2:
        return {"method": ONE_RUN, **counts, **_measured(mine, its, None), **_p(None)}
    row = _measured(mine, its, points.bootstrap_difference(first, second))
    return {"method": TWO_SAMPLES, **counts, **row, **_p(two_samples(first, second))}


def _of_stretches(found: Stretches) -> Row:
    differences = found.differences
    counts: Row = {"num_a": NUM_STRETCHES, "num_b": NUM_STRETCHES, "num_agree": None}
    if not np.isfinite(differences).all():
        return {"method": NO_VALUE, **counts, **_measured(np.nan, np.nan, None), **_p(None)}
    row = _measured(found.mean_first, found.mean_second, None)
    if found.depend:
        return {"method": STRETCHES, **counts, **row, **_p(None)}
    ends = points.bootstrap(differences[:, None])[:, 0]
    row = _measured(found.mean_first, found.mean_second, ends)
    counts["num_agree"] = _num_agree(differences)
    return {"method": STRETCHES, **counts, **row, **_p(sign_flip(differences))}


def _num_agree(differences: Floats) -> int:
    """How many differences have the sign of their mean."""
    return int((np.sign(differences) == np.sign(differences.mean())).sum())


def _measured(first: float, second: float, ends: Floats | None) -> Row:
    """Means, difference and interval; None for what there is not."""
    difference = second - first
    row: Row = {"mean_a": first, "mean_b": second, "difference": difference}
    for name, end in zip(("low", "high"), (None, None) if ends is None else ends, strict=True):
        row[name] = None if end is None else _snapped(float(end), max(abs(first), abs(second)))
    row["relative"] = difference / abs(first) if first else None
    return {k: None if value is not None and np.isnan(value) else value for k, value in row.items()}


def _snapped(value: float, scale: float) -> float:
    """0 for what is not 0 by rounding alone."""
    return 0.0 if abs(value) < 1e-12 * scale else value


def _p(tested: Tested | None) -> Row:
    if tested is None:
        return {"p": None, "smallest_p": None}
    return {"p": tested.p, "smallest_p": tested.smallest}
