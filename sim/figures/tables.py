"""Runs grouped by what they are called in a figure, and their tables made ready to draw."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

TERMS = ("token_states", "reserved", "internal", "external", "cached", "free")
TERM_TITLES = {
    "token_states": "token states",
    "reserved": "reservation",
    "internal": "internal fragmentation",
    "external": "external fragmentation",
    "cached": "cached",
    "free": "free",
}
NO_PARAMETERS = {"experiment", "run", "seed", "status", "reason", "allocator"}
MAX_BUCKETS = 250  # more steps than this cannot be told apart at README width


@dataclass(frozen=True)
class Group:
    """The runs that differ in their seed only."""

    label: str
    runs: pd.DataFrame

    @property
    def first_run(self) -> str:
        return str(self.runs["run"].iloc[0])


def parameters(summary: pd.DataFrame) -> list[str]:
    """The columns that tell runs apart: dotted ones, and those between `allocator` and `reason`.

    Keys at the top of an experiment, such as engine, have no dot.
    """
    columns = [str(column) for column in summary.columns]
    between: list[str] = []
    if {"allocator", "reason"} <= set(columns):
        between = columns[columns.index("allocator") : columns.index("reason")]
    return [
        column
        for column in columns
        if column not in NO_PARAMETERS and ("." in column or column in between)
    ]


def groups(summary: pd.DataFrame, without: Collection[str] = ()) -> list[Group]:
    """Runs by label, in order of appearance; parameters in `without` are left out of it."""
    names = parameters(summary)
    shown = [name for name in names if name not in without]
    labels = [_label(row, shown, _short_names(names)) for _, row in summary.iterrows()]
    keys = pd.Series(labels, index=summary.index, dtype=object)
    return [
        Group(str(label) + _unfinished(runs), runs)
        for label, runs in summary.groupby(keys, sort=False)
    ]


def _short_names(names: Sequence[str]) -> dict[str, str]:
    ends = [name.rsplit(".", 1)[-1] for name in names]
    return {
        name: end if ends.count(end) == 1 else name for name, end in zip(names, ends, strict=True)
    }


def _label(row: pd.Series, names: Sequence[str], short: dict[str, str]) -> str:
    kind = row.get("allocator")
    parts = [_part(short[name], row[name]) for name in names if not is_empty(row[name])]
    return ", ".join(filter(None, [str(kind) if not is_empty(kind) else "run", *parts]))


def _part(name: str, value: object) -> str:
    """A parameter in a label: its name alone if it is a switch that is on, nothing if off."""
    if isinstance(value, bool | np.bool_) or value in {"True", "False"}:
        return name if str(value) == "True" else ""
    return f"{name}={value_text(value)}"


def _unfinished(runs: pd.DataFrame) -> str:
    """Runs that ended early are never shown as if they had not."""
    if "status" not in runs:
        return ""
    ended = [str(status) for status in runs["status"] if status != "finished"]
    if not ended:
        return ""
    if len(ended) == len(runs) and len(set(ended)) == 1:
        return f" ({ended[0]})"
    return f" ({len(ended)} of {len(runs)} not finished)"


def is_empty(value: object) -> bool:
    """Whether a cell of the summary has no value."""
    return value is None or value is pd.NA or (isinstance(value, float) and bool(np.isnan(value)))


def value_text(value: object) -> str:
    """A parameter's value as it was written: 16, not 16.0."""
    return f"{value:.12g}" if isinstance(value, float) else str(value)


def numbers(table: pd.DataFrame, column: str) -> pd.Series:
    """A column as finite floats; everything else is NaN."""
    if column not in table:
        return pd.Series(np.nan, index=table.index, dtype=float)
    cells = pd.to_numeric(table[column], errors="coerce").astype(float)
    return cells.where(np.isfinite(cells))


def mean_sd(values: pd.Series) -> tuple[float, float, int]:
    """Mean, standard deviation between seeds and count of the values there are."""
    known = values.dropna()
    if not len(known):
        return float("nan"), float("nan"), 0
    spread = float(known.std(ddof=1)) if len(known) > 1 else float("nan")
    return float(known.mean()), spread, len(known)


def buckets(timeline: pd.DataFrame, columns: Sequence[str]) -> pd.DataFrame:
    """A timeline in at most MAX_BUCKETS steps: neighbours merged into their mean over time."""
    timeline = timeline[timeline["width_s"] > 0].reset_index(drop=True)
    step = -(-len(timeline) // MAX_BUCKETS)
    kept = timeline[["start_s", "width_s", *columns]].astype(float)
    if step <= 1:
        return kept
    by = kept.index // step
    width = kept["width_s"].groupby(by).sum()
    merged = kept[list(columns)].mul(kept["width_s"], axis=0).groupby(by).sum().div(width, axis=0)
    merged.insert(0, "start_s", kept["start_s"].groupby(by).first())
    merged.insert(1, "width_s", width)
    return merged


def edges(points: pd.DataFrame, column: str) -> tuple[list[float], list[float]]:
    """x and y of a line in steps (`steps-post`) through buckets, with the last one's end."""
    starts, values = points["start_s"].tolist(), points[column].tolist()
    end = float(points["start_s"].iloc[-1] + points["width_s"].iloc[-1])
    return [*starts, end], [*values, values[-1]]
