"""The sessions of a trace file under generated starts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import ClassVar, Literal

import numpy as np

from workloads import checks
from workloads.formats import open_file
from workloads.generator import Generator
from workloads.origin import check_origin, locate
from workloads.trace import Trace, TraceError
from workloads.tracefile import check_rows


@dataclass(frozen=True)
class Sessions(Generator):
    """The sessions of a file or folder, begun when arrivals say: path or name, arrivals.

    For sessions that were recorded one by one and all start at time zero. Within a session the
    times between requests stay as they are. Sessions begin in the order in which they did.
    limit, on_bad_row and zero_tokens are those of the file; its format is recognized. name is
    that of a public trace (see kvsim trace fetch).
    """

    path: str | None = None
    arrivals: Mapping[str, object] = field(kw_only=True)
    name: str | None = None
    limit: int | None = None
    on_bad_row: Literal["error", "drop"] = "error"
    zero_tokens: Literal["drop", "one"] | None = None

    kind: ClassVar[str] = "sessions"

    def __post_init__(self) -> None:
        check_origin(self.path, self.name)
        check_rows(self.path or self.name, self.limit, self.on_bad_row)
        if self.zero_tokens is not None:
            checks.one_of("zero_tokens", self.zero_tokens, ["drop", "one"])
        self.process()

    def load(self, seed: int) -> Trace:
        """The file's requests; the seed decides when sessions begin."""
        path = locate(self.path, self.name)
        file = replace(
            open_file(path),
            limit=self.limit,
            on_bad_row=self.on_bad_row,
            zero_tokens=self.zero_tokens,
            unsorted="sort",
        )
        rows = file.requests()
        if "session" not in rows.fields:
            raise TraceError(f"{path}: a {file.kind} file names no sessions")
        arrival_ns = rows.fields["arrival_ns"]
        _, first, session = np.unique(
            rows.fields["session"], return_index=True, return_inverse=True
        )
        start_ns = np.empty(len(first), np.int64)
        start_ns[np.argsort(first)] = self.arrival_times_ns(len(first), seed)
        rows.fields["arrival_ns"] = arrival_ns + (start_ns - arrival_ns[first])[session]
        rows.take(np.argsort(rows.fields["arrival_ns"], kind="stable"))
        return rows.to_trace()
