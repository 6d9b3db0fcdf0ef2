"""A trace file as it stands: what format it is, what it holds, and what is wrong with it.

Reading a trace for a run refuses what cannot be run. Looking at one does not: rows without tokens
and rows out of order are shown, and beside them what a run would refuse and how to ask for it.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from workloads.content import Content
from workloads.formats import open_file
from workloads.intake import NoRequestsError
from workloads.rows import Rows
from workloads.summary import hits_of, measure
from workloads.trace import COLUMNS, PROVIDED, IntColumn, Trace, TraceError
from workloads.tracefile import TraceFile

DROPPED = "dropped: "


@dataclass(frozen=True, eq=False)
class Inspection:
    """A trace file that was looked at.

    kind is the format it was taken for, about a phrase on that. columns and content are the
    requests in order of arrival, lengths of zero included. refusal is what a run would say of the
    file as it is, None if it would take it; read_with are the parameters with which it would,
    None if there are none. hits are as in workloads.summary.hits_of. digest is that of the trace
    as it would be run.
    """

    path: str
    kind: str
    about: str
    columns: Mapping[str, IntColumn]
    content: Content | None
    provides: list[str]
    notes: Mapping[str, int]
    hits: IntColumn | None
    digest: str | None
    refusal: str | None = None
    read_with: Mapping[str, str] | None = None

    def facts(self) -> dict[str, Any]:
        """Everything in numbers, ready for JSON: see workloads.summary.measure."""
        return {
            "file": self.path,
            "format": self.kind,
            "digest": self.digest,
            "provides": self.provides,
            **measure(self.columns, self.hits),
            "notes": dict(self.notes),
            "refusal": self.refusal,
            "read_with": None if self.read_with is None else dict(self.read_with),
        }


def inspect_file(path: str) -> Inspection:
    """Look at a trace file. Raises TraceError if it cannot be read at all."""
    opened = open_file(path)
    try:
        return _loaded(opened, opened.load(seed=0))
    except TraceError as error:
        return _as_it_stands(opened, str(error))


def about(opened: TraceFile) -> str:
    """What a format says of its files, up to its parameters."""
    line = (inspect.getdoc(type(opened)) or "").split("\n", maxsplit=1)[0]
    return line.split(": path", maxsplit=1)[0].removesuffix(".")


def _loaded(opened: TraceFile, trace: Trace) -> Inspection:
    columns = {name: getattr(trace, name) for name in COLUMNS}
    known = {name: column for name, column in columns.items() if column is not None}
    return Inspection(
        opened.path,
        opened.kind,
        about(opened),
        known,
        trace.content,
        sorted(trace.provides),
        trace.notes,
        hits_of(known, trace.content),
        trace.digest(),
    )


def _as_it_stands(opened: TraceFile, refusal: str) -> Inspection:
    """A file that a run would refuse. Raises TraceError if nothing of it can be read."""
    options: dict[str, str] = {}
    try:
        rows = opened.raw()
    except TraceError:
        options["on_bad_row"] = "drop"
        rows = replace(opened, on_bad_row="drop").raw()
    if opened.zero_tokens is None and _zeros(rows):
        options["zero_tokens"] = "one"
    if opened.unsorted == "error" and _backwards(rows):
        options["unsorted"] = "sort"
    try:
        digest: str | None = _with(opened, options).load(seed=0).digest()
    except TraceError as error:
        digest, refusal = None, str(error)
    if "arrival_ns" in rows.fields:
        rows.order("sort")
    provides = [name for name, field in PROVIDED.items() if field in rows.fields]
    return Inspection(
        opened.path,
        opened.kind,
        about(opened),
        rows.fields,
        rows.content,
        sorted(provides + ["prefix identity"] * (rows.content is not None)),
        rows.notes,
        hits_of(rows.fields, rows.content),
        digest,
        refusal,
        None if digest is None else options,
    )


def _with(opened: TraceFile, options: Mapping[str, Any]) -> TraceFile:
    return replace(opened, **options)


@dataclass(frozen=True)
class Problem:
    """One kind of problem: how many rows have it, and a sentence about the first."""

    reason: str
    count: int
    first: str


@dataclass(frozen=True)
class Validation:
    """What reading every row of a file strictly has found."""

    path: str
    kind: str
    num_good: int
    problems: list[Problem]


def validate_file(path: str) -> Validation:
    """Read every row of a file; find every kind of problem that a run would not pass over.

    Raises TraceError if the file cannot be read.
    """
    opened = open_file(path)
    try:
        rows: Rows | None = None
        rows = replace(opened, on_bad_row="drop").raw()
        notes, first_bad, num_good = rows.notes, rows.first_bad, len(rows)
    except NoRequestsError as error:
        if not error.notes:
            raise
        notes, first_bad, num_good = error.notes, error.first_bad, 0
    problems = [
        Problem(reason.removeprefix(DROPPED), count, first_bad.get(reason, "no row is named"))
        for reason, count in notes.items()
        if reason.startswith(DROPPED)
    ]
    if rows is not None:
        problems += _zeros(rows) if opened.zero_tokens is None else []
        problems += _backwards(rows) if opened.unsorted == "error" else []
        num_good -= _num_zero_rows(rows)
        if not problems and "arrival_ns" in rows.fields:  # lengths alone are no trace
            problems = _refusals(opened)
    return Validation(path, opened.kind, num_good, problems)


def _zeros(rows: Rows) -> list[Problem]:
    """Rows without a prompt, and rows without an output."""
    found = []
    for what in ("prompt", "output"):
        empty = np.flatnonzero(rows.fields[f"{what}_tokens"] == 0)
        if len(empty):
            first = f"{rows.place} {rows.numbers[empty[0]]}: {what} of 0 tokens"
            found.append(Problem(f"no {what}", len(empty), first))
    return found


def _num_zero_rows(rows: Rows) -> int:
    lengths = np.minimum(rows.fields["prompt_tokens"], rows.fields["output_tokens"])
    return int(np.count_nonzero(lengths == 0))


def _backwards(rows: Rows) -> list[Problem]:
    """Rows that arrive before the row ahead of them."""
    if "arrival_ns" not in rows.fields:
        return []
    arrivals = rows.fields["arrival_ns"]
    back = np.flatnonzero(np.diff(arrivals) < 0) + 1
    if not len(back):
        return []
    row = int(back[0])
    gap_s = int(arrivals[row - 1] - arrivals[row]) / 1e9
    first = f"{rows.place} {rows.numbers[row]}: arrives {gap_s:g} s before the row ahead of it"
    return [Problem("time goes backwards", len(back), first)]


def _refusals(opened: TraceFile) -> list[Problem]:
    """What remains that a run would refuse."""
    try:
        opened.load(seed=0)
    except TraceError as error:
        return [Problem("refused", 1, str(error).removeprefix(f"{opened.path}: "))]
    return []
