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


@dataclass(frozen=True)
class Inline(Workload):
    """Requests listed one by one, each {arrival_s, prompt_tokens, output_tokens, max_tokens}.

    arrival_s is in seconds and 0 if it is left out; max_tokens stands in all requests or in none.
    Rules are those of a table: arrivals out of order need unsorted "sort".
    """

    requests: Sequence[Mapping[str, int | float]]
    unsorted: Literal["error", "sort"] = "error"

    kind: ClassVar[str] = "inline"

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
        known = [column.name for column in Table.columns]
        first = self.requests[0] if self.requests else {}
        wanted = known if isinstance(first, Mapping) and "max_tokens" in first else known[:-1]
        reading = Reading("requests", Table.columns, place="request")
        for number, request in enumerate(self.requests):
            if not isinstance(request, Mapping):
                raise ValueError(f"requests: request {number} must be a mapping, got {request!r}")
            if number == 0:
                reading.header(wanted)
            for key in request:
                checks.one_of(f"requests: request {number}", key, known)
            cells = {"arrival_s": 0, **request}
            for name in wanted:
                if name not in cells:
                    raise ValueError(f"requests: request {number} has no {name}")
            if len(cells) > len(wanted):
                raise ValueError(
                    f"requests: request {number} has max_tokens, request 0 has none; "
                    "accepted: all have it or none has"
                )
            reading.add_row(number, [cells[name] for name in wanted])
        return reading.rows()
