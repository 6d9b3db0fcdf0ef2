"""A side of a comparison: a folder that kvsim run has written, or rows that are chosen of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from sim.config.plugins import guess
from sim.figures.tables import is_empty, parameters, value_text
from sim.results.files import UNMADE
from sim.stored import Stored, open_folder

OF_REPLAYS = ("trace", "policy", "block_size", "capacity_tokens")  # cells of replayed policies
ALSO_CHOSEN = ("seed", "run", "num_replicas", "router")  # by which rows may be chosen besides
EMPTY = "none"


class CompareError(Exception):
    """What cannot be compared: one sentence."""


@dataclass(frozen=True)
class Side:
    """Rows of one experiment's summary. cells are the columns that tell its points apart.

    letter is A or B. chosen are the columns by which rows were chosen, and their values.
    """

    letter: str
    stored: Stored
    rows: pd.DataFrame
    cells: tuple[str, ...]
    chosen: Mapping[str, str]

    @property
    def folder(self) -> Path:
        """Where its results are."""
        return self.stored.folder

    @property
    def config(self) -> Mapping[str, Any]:
        """The resolved experiment."""
        return self.stored.facts.config

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
    """Read a folder and choose rows by KEY=VALUE. Raises CompareError, ResultsError."""
    stored = open_folder(folder)
    stored.check_kind()
    rows = stored.summary
    if "allocator" in rows:
        cells = ("allocator", *parameters(rows))
    elif "policy" in rows:
        cells = tuple(name for name in OF_REPLAYS if name in rows)
    else:
        raise CompareError(f"{folder}/summary.csv: names neither allocators nor policies")
    side = Side(letter, stored, rows, cells, {})
    for choice in choices:
        side = _choose(side, choice)
    return side


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
    return Side(side.letter, side.stored, rows, side.cells, chosen)


def _as_typed(value: str) -> str:
    """A value in the words of cell_text: 16.0 and 1.6e1 are 16."""
    if value.lower() in {"", EMPTY, "true", "false"}:
        return value.lower() or EMPTY
    try:
        return value_text(float(value))
    except ValueError:
        return value
