"""Which points of one side belong to which of the other.

A point is all rows that differ in their seed alone. Points belong together if they have the same
values in the cells that both sides have. Left out of those: what was chosen by (--a, --b), what
one side has no value of at all, and what never varies, because that is what the sides are compared
in. Whatever has no partner, or several, is listed with the reason.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pandas as pd

from sim.compare.sides import EMPTY, CompareError, Side, cell_text, column_of
from sim.results.files import UNMADE

Key = tuple[str, ...]


@dataclass(frozen=True)
class Match:
    """Two points that belong together: their cells, and the rows of each, one a seed."""

    cells: dict[str, str]
    first: pd.DataFrame
    second: pd.DataFrame


@dataclass(frozen=True)
class Alone:
    """A run or point that is not compared: its side, what it is, and why not."""

    side: str
    point: str
    reason: str


def match(
    first: Side, second: Side, by: Sequence[str]
) -> tuple[list[str], list[Match], list[Alone]]:
    """The columns that rows are matched by, the matches, and all that is not compared.

    by names the columns; without, they are found as above. Raises CompareError if nothing matches.
    """
    columns = _named(first, second, by) if by else _found(first, second)
    alone = _unmade(first) + _unmade(second)
    mine, its = _points(first, columns), _points(second, columns)
    matches: list[Match] = []
    for key in dict.fromkeys([*mine, *its]):
        problems = [
            *_problem(first, mine.get(key), key in its),
            *_problem(second, its.get(key), key in mine),
        ]
        alone += [Alone(letter, _text(columns, key), reason) for letter, reason in problems]
        if not problems:
            matches.append(Match(dict(zip(columns, key, strict=True)), mine[key], its[key]))
    if not matches:
        raise CompareError(_nothing(columns, alone))
    return columns, matches, alone


def _named(first: Side, second: Side, by: Sequence[str]) -> list[str]:
    both = [column for column in first.cells if column in second.cells]
    columns = [column_of(name, both, "--by") for name in by]
    return list(dict.fromkeys(columns))


def _found(first: Side, second: Side) -> list[str]:
    """The columns that both sides have values of, and that vary in one of them."""
    columns = []
    for column in first.cells:
        if column not in second.cells or column in {*first.chosen, *second.chosen}:
            continue
        values = [{cell_text(cell) for cell in side.made[column]} for side in (first, second)]
        has_values = all(own - {EMPTY} for own in values)
        if has_values and any(len(own) > 1 for own in values):
            columns.append(column)
    return columns


def _points(side: Side, columns: Sequence[str]) -> dict[Key, pd.DataFrame]:
    made = side.made
    keys = [tuple(cell_text(row[column]) for column in columns) for _, row in made.iterrows()]
    found: dict[Key, list[int]] = {}
    for place, key in enumerate(keys):
        found.setdefault(key, []).append(place)
    return {key: made.iloc[places] for key, places in found.items()}


def _problem(side: Side, rows: pd.DataFrame | None, has_partner: bool) -> list[tuple[str, str]]:
    """Why rows of a side cannot be compared, if they cannot."""
    if rows is None:
        return []
    seeds = rows["seed"] if "seed" in rows else pd.Series(0, rows.index)
    if seeds.duplicated().any():
        varying = [c for c in side.cells if len({cell_text(cell) for cell in rows[c]}) > 1]
        values = len(rows) // seeds.nunique()
        what = f"differ in {', '.join(varying)}" if varying else "have the same cells"
        option = f"--{side.letter.lower()}"
        return [(side.letter, f"{values} points here {what}; choose one with {option} KEY=VALUE")]
    if not has_partner:
        return [(side.letter, f"no such point in {'B' if side.letter == 'A' else 'A'}")]
    return []


def _unmade(side: Side) -> list[Alone]:
    rows = side.rows[side.rows["status"].isin(UNMADE)]
    reasons = rows["reason"] if "reason" in rows else pd.Series("", rows.index)
    return [
        Alone(side.letter, str(run), f"{status}: {' '.join(str(reason).split())}")
        for run, status, reason in zip(rows["run"], rows["status"], reasons, strict=True)
    ]


def _text(columns: Sequence[str], key: Key) -> str:
    return ", ".join(f"{c}={value}" for c, value in zip(columns, key, strict=True)) or "all rows"


def _nothing(columns: Sequence[str], alone: Sequence[Alone]) -> str:
    how = f"matched by {', '.join(columns)}" if columns else "nothing to match by"
    first = f"; {alone[0].side}: {alone[0].point}: {alone[0].reason}" if alone else ""
    return f"no point of A can be compared with one of B ({how}){first}"
