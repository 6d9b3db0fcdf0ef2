"""A file being read: good rows are taken, bad ones refused or counted."""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from workloads.checks import did_you_mean
from workloads.rows import Column, Rows
from workloads.trace import IntColumn, TraceError

SHOWN_CHARACTERS = 40


class NoRequestsError(TraceError):
    """A file without a single good row; first_bad is as in Rows, notes count the bad rows."""

    def __init__(self, sentence: str, notes: Counter[str], first_bad: dict[str, str]) -> None:
        super().__init__(sentence)
        self.notes = notes
        self.first_bad = first_bad


@dataclass
class Reading:
    """One file being read: takes good rows, and refuses or counts bad ones.

    on_bad_row "error" raises TraceError at the first bad row; "drop" counts it by reason, and
    keeps the sentence about the first one of each.
    """

    source: str
    columns: Sequence[Column]
    on_bad_row: str = "error"
    place: str = "line"
    notes: Counter[str] = field(default_factory=Counter)
    first_bad: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._header: list[str] = []
        self._parts: list[list[IntColumn]] = []  # blocks of rows: numbers, then each column
        self._single_rows = array("q")  # rows taken one by one, cell after cell

    def header(self, names: Sequence[str]) -> list[int]:
        """Match the names found with the columns wanted; where in names each column stands.

        Afterwards columns holds only those the file has. Raises TraceError for a name that
        stands twice or a column that is missing.
        """
        twice = [name for name, count in Counter(names).items() if count > 1]
        if twice:
            raise TraceError(
                f"{self.source}: column {shown(twice[0])} stands more than once; "
                "accepted: each name once"
            )
        missing = [c for c in self.columns if not c.optional and c.name not in names]
        if missing:
            name = missing[0].name
            known = {column.name for column in self.columns}
            others = [shown(other) for other in names if other not in known]
            found = ", ".join(shown(other) for other in names[:20])
            raise TraceError(
                f"{self.source}: no column {name}{did_you_mean(repr(name), others)}; "
                f"found: {found}{missing[0].hint}"
            )
        self.columns = [column for column in self.columns if column.name in names]
        self._header = list(names)
        return [names.index(column.name) for column in self.columns]

    def add_arrays(self, first_number: int, arrays: Sequence[Any]) -> bool:
        """Take a block of rows, one Arrow array a column, if every cell is plainly good."""
        parsed = [c.rule.shortcut(cells) for c, cells in zip(self.columns, arrays, strict=True)]
        good = [values for values in parsed if values is not None]
        if len(good) < len(parsed):
            return False
        self._end_single_rows()
        self._parts.append([np.arange(first_number, first_number + len(good[0])), *good])
        return True

    def add_row(self, number: int, cells: Sequence[object]) -> bool:
        """Take one row, a cell a column; False if it was counted as bad."""
        row = [number]
        for column, cell in zip(self.columns, cells, strict=True):
            value = column.rule.value(cell)
            if value is None:
                sentence = f"{column.name} is {shown(cell)}; accepted: {column.rule.accepts}"
                self.bad_row(number, sentence, f"{column.name} not accepted")
                return False
            row.append(value)
        self._single_rows.extend(row)
        return True

    def _end_single_rows(self) -> None:
        """Turn the rows taken one by one into a part of their own."""
        if self._single_rows:
            width = len(self.columns) + 1
            table = np.array(self._single_rows, np.int64).reshape(-1, width)
            self._parts.append(list(table.T))
            self._single_rows = array("q")

    def bad_row(self, number: int, sentence: str, reason: str) -> None:
        """Refuse a row, or count it under its reason."""
        if self.on_bad_row == "error":
            raise TraceError(f"{self.source}: {self.place} {number}: {sentence}")
        self.notes[f"dropped: {reason}"] += 1
        self.first_bad.setdefault(f"dropped: {reason}", f"{self.place} {number}: {sentence}")

    def rows(self) -> Rows:
        """All rows taken. Raises NoRequestsError if there is none."""
        self._end_single_rows()
        if not self._parts:
            dropped = sum(n for reason, n in self.notes.items() if reason.startswith("dropped"))
            what = f"all {dropped} rows were dropped" if dropped else "there are no rows"
            sentence = f"{self.source}: {what}; at least one request is needed"
            if self.first_bad:
                sentence += f"; the first: {next(iter(self.first_bad.values()))}"
            raise NoRequestsError(sentence, self.notes, self.first_bad)
        numbers, *values = (np.concatenate(parts) for parts in zip(*self._parts, strict=True))
        wanted = {column.name for column in self.columns}
        for name in self._header:
            if name not in wanted:
                self.notes[f"ignored: column {shown(name)}"] += len(numbers)
        fields = {c.field: column for c, column in zip(self.columns, values, strict=True)}
        return Rows(self.source, fields, numbers, self.place, self.notes, first_bad=self.first_bad)


def shown(cell: object) -> str:
    """A cell in a message: as Python writes it, shortened."""
    text = repr(cell)
    return text if len(text) <= SHOWN_CHARACTERS else text[: SHOWN_CHARACTERS - 1] + "…"
