"""A table whose columns have names of their own: any CSV, JSON lines or Parquet with lengths.

The parameters say which column is which. What a cell may hold is as in workloads.table, but for
times: they are in the unit that is given, counted from anything, and the first arrival becomes
time zero.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from workloads import checks
from workloads.readers import READERS
from workloads.rows import Column, Rows
from workloads.rules import (
    DECIMAL,
    PRIORITY,
    SECONDS,
    TIMESTAMP,
    TOKENS,
    WHOLE,
    Rule,
    whole_numbers,
)
from workloads.table import check_format, suffix_format
from workloads.trace import MAX_NS, NANOSECONDS, IntColumn
from workloads.tracefile import TraceFile


def time_in(name: str, unit_ns: int) -> Rule:
    """A time in units of so many nanoseconds; whole numbers are exact."""

    def parse(cell: object) -> int:
        text = cell.strip() if isinstance(cell, str) else repr(cell)
        if WHOLE.fullmatch(text):
            time_ns = int(text.split(".")[0]) * unit_ns
        elif DECIMAL.fullmatch(text):
            time_ns = round(float(text) * unit_ns)
        else:
            raise ValueError
        if not 0 <= time_ns <= MAX_NS:
            raise ValueError
        return time_ns

    def shortcut(cells: Any) -> IntColumn | None:
        units = whole_numbers(cells, MAX_NS // unit_ns)
        return None if units is None else units * unit_ns

    return Rule(f"{name}, a number from 0 to {MAX_NS // unit_ns}", parse, shortcut)


UNITS = {
    "s": SECONDS,
    "ms": time_in("milliseconds", NANOSECONDS // 1000),
    "us": time_in("microseconds", 1000),
    "ns": time_in("nanoseconds", 1),
    "timestamp": TIMESTAMP,
}


@dataclass(frozen=True)
class Columns(TraceFile):
    """A table with columns of any name: path, prompt_column, output_column, arrival_column.

    prompt_column and output_column name the columns with the lengths.
    arrival_column names the column with the arrivals. Without it the file has lengths only, which
    'kind: lengths' gives generated arrivals.
    priority_column names the column with priorities, whole numbers of which the lowest come first.
    arrival_unit is what arrivals are counted in: s, ms, us or ns, or timestamp for dates such as
    2023-11-16 18:15:46.68.
    format is csv, jsonl or parquet; auto goes by the file's suffix, .gz and .zst aside.
    """

    prompt_column: str = "prompt_tokens"
    output_column: str = "output_tokens"
    arrival_column: str | None = None
    arrival_unit: Literal["s", "ms", "us", "ns", "timestamp"] = "s"
    format: Literal["auto", "csv", "jsonl", "parquet"] = "auto"
    priority_column: str | None = None

    kind: ClassVar[str] = "columns"
    absolute_times: ClassVar[bool] = True
    columns: ClassVar[Sequence[Column]] = ()  # each instance has its own

    def __post_init__(self) -> None:
        super().__post_init__()
        checks.one_of("arrival_unit", self.arrival_unit, UNITS)
        check_format(self.format, self.path)
        columns: list[Column] = []
        for parameter, field, rule in (
            ("prompt_column", "prompt_tokens", TOKENS),
            ("output_column", "output_tokens", TOKENS),
            ("arrival_column", "arrival_ns", UNITS[self.arrival_unit]),
            ("priority_column", "priority", PRIORITY),
        ):
            name = getattr(self, parameter)
            if name is None and parameter in {"arrival_column", "priority_column"}:
                continue
            if not isinstance(name, str) or not name or name != name.strip():
                raise ValueError(f"{parameter}: must be the name of a column, got {name!r}")
            if any(name == column.name for column in columns):
                raise ValueError(f"{parameter}: must be another column than the others")
            columns.append(Column(name, field, rule))
        object.__setattr__(self, "columns", columns)

    @classmethod
    def recognizes(cls, path: str, start: bytes) -> bool:
        return False

    def read(self, columns: Sequence[Column]) -> Rows:
        form = self.format if self.format != "auto" else suffix_format(self.path)
        return READERS[str(form)](self.path, columns, self.on_bad_row)
