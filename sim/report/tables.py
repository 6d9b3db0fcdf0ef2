"""CSV files of results, and tables of a page."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from sim.report.text import Cell, number_text, parsed
from sim.stored.files import read_cells

Row = dict[str, Cell]

# what readers want first: its heading, what it is multiplied by, and digits
COLUMNS: dict[str, tuple[str, float, int]] = {
    "token_states_frac": ("token states, %", 100, 1),
    "reserved_frac": ("reserved, %", 100, 1),
    "internal_frac": ("internal, %", 100, 1),
    "external_frac": ("external, %", 100, 1),
    "cached_frac": ("cached, %", 100, 1),
    "free_frac": ("free, %", 100, 1),
    "hit_rate": ("hit rate, %", 100, 1),
    "num_running_mean": ("running, mean", 1, 1),
    "num_waiting_mean": ("waiting, mean", 1, 1),
    "queued_time_frac": ("queue, % of time", 100, 1),
    "num_requests": ("requests", 1, 0),
    "num_finished": ("finished", 1, 0),
    "num_preemptions": ("preemptions", 1, 0),
    "ttft_s_p50": ("TTFT p50, s", 1, 3),
    "ttft_s_p99": ("TTFT p99, s", 1, 3),
    "tpot_s_p50": ("TPOT p50, s", 1, 4),
    "tpot_s_p99": ("TPOT p99, s", 1, 4),
    "e2e_s_p50": ("end to end p50, s", 1, 2),
    "throughput_req_s": ("requests/s", 1, 2),
    "goodput_req_s": ("goodput, requests/s", 1, 2),
    "output_tokens_s": ("output tokens/s", 1, 0),
}
TERMS = ("token_states", "reserved", "internal", "external", "cached", "free")
NO_PARAMETERS = {"experiment", "run", "status", "reason", "allocator"}
OF_REPLAYS = {"trace", "policy", "block_size", "capacity_tokens"}


@dataclass(frozen=True)
class Table:
    """A CSV file: its columns, and its rows by column."""

    columns: list[str]
    rows: list[Row]

    def numbers(self, column: str) -> list[float]:
        """The numbers of a column."""
        found = (row.get(column) for row in self.rows)
        return [float(value) for value in found if isinstance(value, int | float)]

    def has_values(self, column: str) -> bool:
        """Whether any row has a value there."""
        return any(row.get(column) is not None for row in self.rows)

    def varies(self, column: str) -> bool:
        """Whether rows differ there."""
        return len({str(row.get(column)) for row in self.rows}) > 1

    def parameters(self) -> list[str]:
        """The columns that say what a run varies: dotted ones, those between allocator and reason,
        and those of replays."""
        names = self.columns
        between: list[str] = []
        if {"allocator", "reason"} <= set(names):
            between = names[names.index("allocator") : names.index("reason")]
        return [
            name
            for name in names
            if name not in NO_PARAMETERS and ("." in name or name in OF_REPLAYS or name in between)
        ]


@dataclass(frozen=True)
class Head:
    """A column's heading, and what it is called in the CSV file."""

    title: str
    column: str = ""
    is_number: bool = True


@dataclass(frozen=True)
class Line:
    """A row of a page's table: its heading, its cells, and where the slots are, as (term, %)."""

    head: str
    cells: list[str]
    bar: list[tuple[str, str]] = field(default_factory=list)


@dataclass(frozen=True)
class Grid:
    """A table of a page. note is a sentence below it."""

    caption: str
    first: str
    heads: list[Head]
    lines: list[Line]
    note: str = ""
    has_bars: bool = False

    @property
    def has_long_heads(self) -> bool:
        """Whether headings of rows need room."""
        return any(len(line.head) > 30 for line in self.lines)


def read_csv(path: Path) -> Table:
    """A CSV file as a table of numbers and texts. Raises ResultsError."""
    cells = read_cells(path)
    names = cells.columns
    rows = [dict(zip(names, map(parsed, row), strict=True)) for row in cells.rows]
    return Table(names, rows)


def useful(table: Table, without: Collection[str] = ()) -> list[str]:
    """The columns of COLUMNS that have values here."""
    return [name for name in COLUMNS if name not in without and table.has_values(name)]


def head_of(column: str) -> Head:
    """The heading of a column of COLUMNS; of any other, its own name."""
    return Head(COLUMNS[column][0] if column in COLUMNS else column, column)


def cell_text(row: Mapping[str, Cell], column: str) -> str:
    """A cell as its column is shown."""
    value = row.get(column)
    if column in COLUMNS:
        _, factor, digits = COLUMNS[column]
        return number_text(value, factor, digits)
    return number_text(value)


def whole_grid(
    table: Table, caption: str, first: Sequence[str], most_rows: int, without: Collection[str] = ()
) -> Grid:
    """All columns that have values, as they are; first are those of a row's heading."""
    columns = [name for name in table.columns if table.has_values(name)]
    shown = [name for name in columns if name not in first and name not in without]
    empty = [name for name in table.columns if name not in columns]
    lines = [
        Line(heading(row, first), [number_text(row.get(name)) for name in shown])
        for row in table.rows[:most_rows]
    ]
    notes = []
    if empty:
        notes.append(f"Without any value: {', '.join(empty)}.")
    if len(table.rows) > most_rows:
        notes.append(f"The first {most_rows:,} of {len(table.rows):,} rows.")
    heads = [Head(name, name, bool(table.numbers(name))) for name in shown]
    return Grid(caption, ", ".join(first), heads, lines, " ".join(notes))


def heading(row: Mapping[str, Cell], columns: Iterable[str]) -> str:
    """A row's heading: the values of these columns."""
    return ", ".join(number_text(row.get(name)) for name in columns if row.get(name) is not None)


def bar_of(row: Mapping[str, Cell]) -> list[tuple[str, str]]:
    """Where the slots are in a row: (term, % of the width); nothing if that is not known."""
    shares = [(term, row.get(f"{term}_frac")) for term in TERMS]
    known = [(t, float(share)) for t, share in shares if isinstance(share, int | float)]
    if not known or not all(0 <= share <= 1 for _, share in known):
        return []
    return [(term, f"{100 * share:.1f}") for term, share in known if share >= 0.0005]
