"""Rows on their way from a file to a trace: taken, refused or counted, ordered, cut."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from workloads.checks import did_you_mean
from workloads.content import Content
from workloads.rules import Rule
from workloads.trace import IntColumn, Trace, TraceError

SHOWN_CHARACTERS = 40
CUT = "cut: "
ORPHANS = "follow-ups whose turn before is not there"


class NoRequestsError(TraceError):
    """A file without a single good row; first_bad is as in Rows, notes count the bad rows."""

    def __init__(self, sentence: str, notes: Counter[str], first_bad: dict[str, str]) -> None:
        super().__init__(sentence)
        self.notes = notes
        self.first_bad = first_bad


@dataclass(frozen=True)
class Column:
    """A column that a format has: its name in the file, the trace's field, and its rule.

    hint is what to do about a file without it.
    """

    name: str
    field: str
    rule: Rule
    optional: bool = False
    hint: str = ""


@dataclass
class Rows:
    """Columns as read, in the order of the file.

    fields maps a trace's field to its values; numbers holds where each row stands in the file,
    counted in place ("line" or "row"). content is what the prompts contain, if the format knows.
    fields["parent"] holds indices of rows, and follows them when rows move. Lengths may be zero
    here. Whatever removes or moves rows says so in notes. Of the rows that were altered or moved
    after reading only those count that are still there; other notes are about all that was read,
    and say so once it is cut: "in the whole file", or whatever whole is. first_bad has, for each
    reason why rows were dropped while reading, the sentence about the first of them.
    """

    source: str
    fields: dict[str, IntColumn]
    numbers: IntColumn
    place: str
    notes: Counter[str]
    content: Content | None = None
    has_output_identity: bool = False
    first_bad: dict[str, str] = field(default_factory=dict)
    whole: str = "file"
    _marked: dict[str, NDArray[np.bool_]] = field(default_factory=dict)  # rows that a note counts

    def __len__(self) -> int:
        return len(self.numbers)

    def mark(self, note: str, mask: NDArray[np.bool_]) -> None:
        """Count rows in a note for as long as they are there."""
        if mask.any():
            before = self._marked.get(note, np.zeros_like(mask))
            self._marked[note] = mask | before
            self.notes[note] += int((mask & ~before).sum())

    def take(self, rows: Any) -> None:
        """Keep the rows that an index, a mask or a slice selects, in its order."""
        kept = np.arange(len(self))[rows]
        orphans = self._move_parents(kept) if "parent" in self.fields else np.zeros(0, np.bool_)
        self.fields = {name: values[kept] for name, values in self.fields.items()}
        self.numbers = self.numbers[kept]
        for note, mask in self._marked.items():
            self._marked[note] = mask[kept]
            self.notes[note] += int(mask[kept].sum()) - int(mask.sum())
        self.notes += Counter()  # without those that are zero now
        self.mark(ORPHANS, orphans)
        if self.content is not None:
            self.content = self.content.take(kept)

    def _move_parents(self, kept: IntColumn) -> NDArray[np.bool_]:
        """Let parents be the indices that their rows are about to have.

        Returns which of the kept rows lose theirs.
        """
        parents = self.fields["parent"]
        place = np.full(len(self) + 1, -1)  # the last cell is where -1 leads
        place[kept] = np.arange(len(kept))
        moved = place[parents]
        self.fields["parent"] = moved
        orphans: NDArray[np.bool_] = (parents[kept] >= 0) & (moved[kept] < 0)
        return orphans

    def zeros(self, rule: str) -> None:
        """Drop the rows without a prompt or without an output, or take them as one token.

        rule is "drop" or "one". Raises TraceError if no row is left.
        """
        for name, what in (("prompt_tokens", "prompt"), ("output_tokens", "output")):
            empty = np.flatnonzero(self.fields[name] == 0)
            if not len(empty):
                continue
            if rule == "drop":
                self.notes[f"dropped: no {what}"] += len(empty)
                if len(empty) == len(self):
                    raise TraceError(
                        f"{self.source}: no row is left that has a {what}; "
                        "at least one request is needed"
                    )
                self.take(self.fields[name] > 0)
            else:
                self.mark(f"altered: no {what}, taken as one token", self.fields[name] == 0)
                self.fields[name] = np.maximum(self.fields[name], 1)
                if self.content is not None and name == "prompt_tokens":
                    self.content = self.content.filled()

    def check_total(self, name: str) -> None:
        """Count the rows whose total is not prompt and output together, and forget the totals.

        name is what the file calls them.
        """
        total = self.fields.pop("total", None)
        if total is None:
            return
        lengths = self.fields["prompt_tokens"] + self.fields["output_tokens"]
        wrong = int(np.count_nonzero(total != lengths))
        if wrong:
            self.notes[f"kept: {name} is not the sum of prompt and output"] += wrong

    def order(self, unsorted: str) -> None:
        """Make arrivals nondecreasing: refuse a file that is not, or sort it stably.

        Raises TraceError that names the first row out of order.
        """
        arrivals = self.fields["arrival_ns"]
        backwards = np.flatnonzero(np.diff(arrivals) < 0)
        if not len(backwards):
            return
        if unsorted == "error":
            row = int(backwards[0]) + 1
            gap_s = int(arrivals[row - 1] - arrivals[row]) / 1e9
            raise TraceError(
                f"{self.source}: {self.place} {self.numbers[row]} arrives {gap_s:g} s before "
                f"{self.place} {self.numbers[row - 1]}; accepted: rows in order of arrival, "
                "or any order with 'unsorted: sort'"
            )
        order = np.argsort(arrivals, kind="stable")
        self.take(order)
        self.mark("moved by sorting", order != np.arange(len(order)))

    def rebase(self) -> None:
        """Let time start at the first arrival."""
        self.fields["arrival_ns"] = self.fields["arrival_ns"] - self.fields["arrival_ns"][0]

    def cut(self, start_ns: int, end_ns: int) -> None:
        """Keep arrivals from start_ns up to, but not at, end_ns. Raises TraceError if none is."""
        arrivals = self.fields["arrival_ns"]
        first, last = (bisect_left(arrivals, bound) for bound in (start_ns, end_ns))
        if first >= last:
            raise TraceError(
                f"{self.source}: no request arrives from {start_ns / 1e9:g} s to "
                f"{end_ns / 1e9:g} s; the last one arrives at {arrivals[-1] / 1e9:g} s"
            )
        if last - first < len(self):
            self._cut_to(slice(first, last), "outside start_s and duration_s")

    def limit(self, count: int | None, first: int = 0) -> None:
        """Keep so many rows from one on: the first ones."""
        if count is not None and count < len(self):
            self._cut_to(slice(first, first + count), "beyond limit")

    def _cut_to(self, rows: slice, why: str) -> None:
        """Keep some rows; what was counted before, of others too, says so from now on."""
        all_rows = len(self)
        self.notes = Counter({self._said_of_all(note): n for note, n in self.notes.items()})
        self.take(rows)
        self.notes[f"{CUT}{why}"] += all_rows - len(self)

    def _said_of_all(self, note: str) -> str:
        if note in self._marked or note.startswith(CUT) or ", in the whole " in note:
            return note
        return f"{note}, in the whole {self.whole}"

    def to_trace(self) -> Trace:
        """The trace of these rows; they need arrivals and must be in order."""
        return Trace(
            **self.fields,
            source=self.source,
            notes=dict(self.notes),
            content=self.content,
            beam_parents=None,
            has_output_identity=self.has_output_identity,
        )


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
