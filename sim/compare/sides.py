"""A side of a comparison: a folder that kvsim run has written, or rows that are chosen of it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from sim import results
from sim.figures.tables import is_empty, parameters, value_text
from sim.plugins import guess

ACCEPTED = "accepted: a folder that kvsim run has written"
OF_REPLAYS = ("trace", "policy", "block_size", "capacity_tokens")  # cells of replayed policies
ALSO_CHOSEN = ("seed", "run", "num_replicas", "router")  # by which rows may be chosen besides
EMPTY = "none"
UNMADE = ("error", "skipped")


class CompareError(Exception):
    """What cannot be compared: one sentence."""


@dataclass(frozen=True)
class Side:
    """Rows of one experiment's summary. cells are the columns that tell its points apart.

    letter is A or B. chosen are the columns by which rows were chosen, and their values. config is
    the resolved experiment.
    """

    letter: str
    folder: Path
    rows: pd.DataFrame
    cells: tuple[str, ...]
    config: Mapping[str, Any]
    chosen: Mapping[str, str]

    @property
    def label(self) -> str:
        """Its folder, and what was chosen of it."""
        parts = [f"{key}={value}" for key, value in self.chosen.items()]
        return ", ".join([str(self.folder), *parts])

    @property
    def made(self) -> pd.DataFrame:
        """The rows that have measurements."""
        return self.rows[~self.rows["status"].isin(UNMADE)]


def cell_text(value: object) -> str:
    """A cell as one would type it: 16 of 16.0, true of True, and none of an empty one."""
    if is_empty(value):
        return EMPTY
    text = value_text(value)
    return text.lower() if text in {"True", "False"} else text


def read_side(letter: str, folder: Path, choices: Sequence[str]) -> Side:
    """Read a folder and choose rows by KEY=VALUE. Raises CompareError."""
    rows = _summary(folder)
    if "allocator" in rows:
        cells = ("allocator", *parameters(rows))
    elif "policy" in rows:
        cells = tuple(name for name in OF_REPLAYS if name in rows)
    else:
        raise CompareError(f"{folder}/summary.csv: names neither allocators nor policies")
    side = Side(letter, folder, rows, cells, _config(folder), {})
    for choice in choices:
        side = _choose(side, choice)
    return side


def _summary(folder: Path) -> pd.DataFrame:
    path = folder / "summary.csv"
    if not folder.is_dir():
        raise CompareError(f"{folder}: no such folder; {ACCEPTED}")
    if not path.exists() and (folder / "capacity_rates.csv").exists():
        raise CompareError(f"{folder}: is a search of capacities; {ACCEPTED}")
    try:
        rows = results.read_table(path)
    except results.ResultsError as error:
        raise CompareError(f"{' '.join(str(error).split())}; {ACCEPTED}") from None
    for column in ("run", "status"):
        if column not in rows:
            raise CompareError(f"{path}: has no column {column}; {ACCEPTED}")
    if not len(rows):
        raise CompareError(f"{path}: has no rows; {ACCEPTED}")
    return rows


def _config(folder: Path) -> Mapping[str, Any]:
    path = folder / "experiment.json"
    try:
        config = json.loads(path.read_text(encoding="utf-8"))["config"]
    except OSError as error:
        raise CompareError(f"{path}: {error.strerror}; {ACCEPTED}") from None
    except (ValueError, KeyError, TypeError):
        raise CompareError(f"{path}: is not what kvsim run writes; {ACCEPTED}") from None
    if not isinstance(config, dict):
        raise CompareError(f"{path}: is not what kvsim run writes; {ACCEPTED}")
    return config


def column_of(name: str, accepted: Sequence[str], what: str) -> str:
    """The column of that name, or whose last part it is. Raises CompareError."""
    if name in accepted:
        return name
    ends = [column for column in accepted if column.rpartition(".")[2] == name]
    if len(ends) == 1:
        return ends[0]
    if ends:
        raise CompareError(f"{what}: {name!r} may be {' or '.join(ends)}")
    raise CompareError(f"{what}: unknown {name!r}{guess(name, list(accepted))}")


def _choose(side: Side, choice: str) -> Side:
    """The rows in which a column has a value."""
    option = f"--{side.letter.lower()}"
    key, sign, value = choice.partition("=")
    if not sign:
        raise CompareError(f"{option}: must be KEY=VALUE, got {choice!r}")
    accepted = [*side.cells, *(name for name in ALSO_CHOSEN if name in side.rows)]
    column = column_of(key.strip(), accepted, option)
    if column in side.chosen:
        raise CompareError(f"{option}: {column} is given twice")
    texts = [cell_text(cell) for cell in side.rows[column]]
    wanted = _as_typed(value.strip())
    rows = side.rows[[text == wanted for text in texts]]
    if not len(rows):
        there = list(dict.fromkeys(texts))
        shown = ", ".join(there[:20]) + (", …" if len(there) > 20 else "")
        raise CompareError(f"{option}: no row of {side.label} has {column}={value}; there: {shown}")
    chosen = {**side.chosen, column: wanted}
    return Side(side.letter, side.folder, rows, side.cells, side.config, chosen)


def _as_typed(value: str) -> str:
    """A value in the words of cell_text: 16.0 and 1.6e1 are 16."""
    if value.lower() in {"", EMPTY, "true", "false"}:
        return value.lower() or EMPTY
    try:
        return value_text(float(value))
    except ValueError:
        return value
