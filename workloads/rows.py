"""Rows on their way from a file to a trace: ordered, cut, and every change of them counted."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from workloads.content import Content
from workloads.rules import Rule
from workloads.trace import IntColumn, Trace, TraceError

CUT = "cut: "
ORPHANS = "follow-ups whose turn before is not there"


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
