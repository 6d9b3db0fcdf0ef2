"""The lengths of a trace file under generated arrivals."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

from workloads.formats import open_file
from workloads.generator import Generator
from workloads.trace import Trace
from workloads.tracefile import check_rows


@dataclass(frozen=True)
class Lengths(Generator):
    """Requests as long as a file's, in its order, at generated times: path, arrivals.

    For files that have no arrival times, or to replay one at another rate. Times that the file
    has are neither read nor checked. The format is recognized from the file.
    """

    path: str
    arrivals: Mapping[str, object]
    limit: int | None = None
    on_bad_row: Literal["error", "drop"] = "error"

    kind: ClassVar[str] = "lengths"

    def __post_init__(self) -> None:
        check_rows(self.path, self.limit, self.on_bad_row)
        self.process()

    def load(self, seed: int) -> Trace:
        """The file's lengths; the seed decides the times."""
        file = replace(open_file(self.path), limit=self.limit, on_bad_row=self.on_bad_row)
        rows = file.lengths()
        rows.fields["arrival_ns"] = self.arrival_times_ns(len(rows), seed)
        return rows.to_trace()
