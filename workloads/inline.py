"""Requests written out in the experiment itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

from workloads import checks
from workloads.base import Workload
from workloads.beams import MAX_WIDTH, recorded_parents
from workloads.intake import Reading
from workloads.rows import Column, Rows
from workloads.rules import whole_number_rule
from workloads.table import Table
from workloads.trace import IntColumn, Trace

OPTIONAL = [column.name for column in Table.columns if column.optional]
WIDTHS = ("num_samples", "beam_width")
COLUMNS = [
    *Table.columns,
    *(Column(name, name, whole_number_rule(1, MAX_WIDTH), optional=True) for name in WIDTHS),
]
PARENTS = "beam_parents"
KNOWN = [*(column.name for column in COLUMNS), PARENTS]
DEFAULTS = {"arrival_s": 0, "num_samples": 1, "beam_width": 1}
MAX_PROBLEMS = 20

Cell = int | float | Sequence[Sequence[int]]


@dataclass(frozen=True)
class Inline(Workload):
    """Requests listed one by one, each {arrival_s, prompt_tokens, output_tokens, …}.

    arrival_s is in seconds and 0 if it is left out. max_tokens and priority (the lower, the sooner)
    may stand beside, each in all requests or in none. num_samples is how many outputs are sampled
    for the prompt, beam_width how many beams a search keeps; 1 if they are left out. A request with
    beam_width may say which beams live on, in beam_parents: for each output token but the last a
    list of the beams before that the beams continue, [0, 0] for two that begin at the prompt.
    Without it a model draws them.
    Rules are those of a table: arrivals out of order need unsorted "sort". Each request that
    breaks one is named, in a line of its own.
    """

    requests: Sequence[Mapping[str, Cell]]
    unsorted: Literal["error", "sort"] = "error"

    kind: ClassVar[str] = "inline"
    item_keys: ClassVar[Mapping[str, Sequence[str]]] = {"requests": KNOWN}

    def __post_init__(self) -> None:
        checks.one_of("unsorted", self.unsorted, ["error", "sort"])
        if isinstance(self.requests, str | bytes) or not isinstance(self.requests, Sequence):
            raise ValueError(f"requests: must be a list of requests, got {self.requests!r}")
        self.load(0)  # every mistake shows when the experiment is read

    def load(self, seed: int) -> Trace:
        """The requests in order of arrival; the seed plays no part."""
        rows, recorded = self._rows()
        rows.order(self.unsorted)
        numbers = rows.numbers.tolist()
        parents = {i: recorded[n] for i, n in enumerate(numbers) if n in recorded}
        return replace(rows.to_trace(), source="inline", beam_parents=parents or None)

    def _rows(self) -> tuple[Rows, dict[int, IntColumn]]:
        """The requests as they are listed, and the recorded searches among them, by number."""
        listed = [request for request in self.requests if isinstance(request, Mapping)]
        first = self.requests[0] if self.requests else {}
        given = set(first) if isinstance(first, Mapping) else set()
        given |= {name for name in WIDTHS if any(name in request for request in listed)}
        wanted = [c.name for c in COLUMNS if not c.optional or c.name in given]
        reading = Reading("requests", COLUMNS, place="request")
        reading.header(wanted)
        problems = []
        recorded = {}
        for number, request in enumerate(self.requests):
            try:
                reading.add_row(number, _cells(number, request, wanted))
                if PARENTS in request:
                    recorded[number] = _parents(number, request)
            except ValueError as error:
                problems.append(str(error))
        if len(problems) > MAX_PROBLEMS:
            more = len(problems) - MAX_PROBLEMS
            problems[MAX_PROBLEMS:] = [f"requests: {more:,} more requests are not accepted either"]
        if problems:
            raise ValueError("\n".join(problems))
        return reading.rows(), recorded


def _cells(number: int, request: object, wanted: Sequence[str]) -> list[object]:
    """The wanted values of one request. Raises ValueError for what is no request or has others."""
    if not isinstance(request, Mapping):
        raise ValueError(f"requests: request {number} must be a mapping, got {request!r}")
    for key in request:
        checks.one_of(f"requests: request {number}", key, KNOWN)
    cells = {**DEFAULTS, **request}
    for name in wanted:
        if name not in cells:
            raise ValueError(f"requests: request {number} has no {name}")
    for name in (name for name in OPTIONAL if name in cells and name not in wanted):
        raise ValueError(
            f"requests: request {number} has {name}, request 0 has none; "
            "accepted: all have it or none has"
        )
    if all(name in request for name in WIDTHS):
        raise ValueError(
            f"requests: request {number} has num_samples and beam_width; accepted: one of the two"
        )
    return [cells[name] for name in wanted]


def _parents(number: int, request: Mapping[str, Any]) -> IntColumn:
    """The recorded search of a request whose other values are good. Raises ValueError."""
    width = request.get("beam_width", 1)
    if width == 1:
        raise ValueError(f"requests: request {number} has {PARENTS}, but no beam_width above 1")
    try:
        return recorded_parents(request[PARENTS], width, int(request["output_tokens"]))
    except ValueError as error:
        raise ValueError(f"requests: request {number}: {PARENTS} {error}") from None
