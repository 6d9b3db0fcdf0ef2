"""Columns of names, such as sessions and models: each name becomes a number while a file is read.

A column of names has the rule NAME and is given a Names of its own for every reading. What is left
blank is -1.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from workloads.rows import Column
from workloads.rules import Rule
from workloads.trace import IntColumn

BLANK = -1


class Names:
    """Numbers for names, and names for numbers."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}

    def number(self, cell: object) -> int:
        """The number of a name, a text or a whole number."""
        if cell is None:
            return BLANK
        if not isinstance(cell, str | int) or isinstance(cell, bool):
            raise ValueError
        name = str(cell).strip()
        return self._numbers.setdefault(name, len(self._numbers)) if name else BLANK

    def numbers(self, cells: Any) -> IntColumn | None:
        """number of a whole array."""
        if not pa.types.is_string(cells.type) or cells.null_count:
            return None
        different = pc.unique(cells)
        numbers = [self.number(name) for name in different.to_pylist()]
        places = pc.index_in(cells, value_set=different).to_numpy()
        found: IntColumn = np.array(numbers, np.int64)[places]
        return found

    def find(self, name: str) -> int:
        """The number of a name; one that no row has if it was never seen."""
        return self._numbers.get(name.strip(), len(self._numbers))

    def __str__(self) -> str:
        return ", ".join(repr(name) for name in self._numbers)


NAME = Rule("text or a whole number", Names().number, lambda cells: None)


def with_names(columns: Sequence[Column]) -> tuple[list[Column], dict[str, Names]]:
    """Columns for one reading, and the names of each field that has them."""
    names = {column.field: Names() for column in columns if column.rule is NAME}
    rules = {
        field: replace(NAME, parse=mine.number, shortcut=mine.numbers)
        for field, mine in names.items()
    }
    return [replace(c, rule=rules.get(c.field, c.rule)) for c in columns], names


def sessions(numbers: IntColumn) -> IntColumn:
    """Sessions numbered from 0 in the order of the rows; a row without a name is one of its own."""
    blank = numbers == BLANK
    own = numbers.max(initial=BLANK) + 1 + np.arange(len(numbers))
    return by_appearance(np.where(blank, own, numbers))


def by_appearance(values: IntColumn) -> IntColumn:
    """Values replaced by 0, 1, … in the order in which they first stand."""
    _, firsts, inverse = np.unique(values, return_index=True, return_inverse=True)
    place = np.empty(len(firsts), np.int64)
    place[np.argsort(firsts)] = np.arange(len(firsts))
    return place[inverse]
