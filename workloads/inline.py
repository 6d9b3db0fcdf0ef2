"""Requests written out in the experiment itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

from workloads import checks
from workloads.base import Workload
from workloads.rows import Reading, Rows
from workloads.table import Table
from workloads.trace import Trace

KNOWN = [column.name for column in Table.columns]
OPTIONAL = [column.name for column in Table.columns if column.optional]
MAX_PROBLEMS = 20


@dataclass(frozen=True)
class Inline(Workload):
    """Requests listed one by one, each {arrival_s, prompt_tokens, output_tokens}.

    arrival_s is in seconds and 0 if it is left out. max_tokens and priority (the lower, the sooner)
    may stand beside, each in all requests or in none.
    Rules are those of a table: arrivals out of order need unsorted "sort". Each request that
    breaks one is named, in a line of its own.
    """

    requests: Sequence[Mapping[str, int | float]]
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
        rows = self._rows()
        rows.order(self.unsorted)
        return replace(rows.to_trace(), source="inline")

    def _rows(self) -> Rows:
        first = self.requests[0] if self.requests else {}
        given = first if isinstance(first, Mapping) else {}
        wanted = [name for name in KNOWN if name not in OPTIONAL or name in given]
        reading = Reading("requests", Table.columns, place="request")
        reading.header(wanted)
        problems = []
        for number, request in enumerate(self.requests):
            try:
                reading.add_row(number, _cells(number, request, wanted))
            except ValueError as error:
                problems.append(str(error))
        if len(problems) > MAX_PROBLEMS:
            more = len(problems) - MAX_PROBLEMS
            problems[MAX_PROBLEMS:] = [f"requests: {more:,} more requests are not accepted either"]
        if problems:
            raise ValueError("\n".join(problems))
        return reading.rows()


def _cells(number: int, request: object, wanted: Sequence[str]) -> list[object]:
    """The wanted values of one request. Raises ValueError for what is no request or has others."""
    if not isinstance(request, Mapping):
        raise ValueError(f"requests: request {number} must be a mapping, got {request!r}")
    for key in request:
        checks.one_of(f"requests: request {number}", key, KNOWN)
    cells = {"arrival_s": 0, **request}
    for name in wanted:
        if name not in cells:
            raise ValueError(f"requests: request {number} has no {name}")
    for name in sorted(cells.keys() - wanted):
        raise ValueError(
            f"requests: request {number} has {name}, request 0 has none; "
            "accepted: all have it or none has"
        )
    return [cells[name] for name in wanted]
