"""A request trace: columns of arrivals and lengths, what it provides, and where it came from."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

IntColumn = NDArray[np.int64]

NANOSECONDS = 1_000_000_000
MAX_TOKENS = 2**31 - 1  # one length; far above any context window, far below an overflow


class TraceError(ValueError):
    """A trace that cannot be used as it is. The message names the file, the row and the rule."""


@dataclass(frozen=True)
class Trace:
    """Requests in order of arrival, as columns of equal length.

    arrival_ns counts from the trace's own time zero; a request's id is its row.
    prompt_tokens and output_tokens are at least 1. max_tokens is what the client asked for,
    or None where the format does not say. notes counts, by reason, every row that reading
    dropped, altered or moved.

    Raises TraceError if a column has the wrong length, a value is out of range, the trace is
    empty, or arrivals go backwards.
    """

    arrival_ns: IntColumn
    prompt_tokens: IntColumn
    output_tokens: IntColumn
    max_tokens: IntColumn | None = None
    source: str = "memory"
    provides: frozenset[str] = frozenset({"arrivals"})
    notes: Mapping[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        columns = ["arrival_ns", "prompt_tokens", "output_tokens"]
        if self.max_tokens is not None:
            columns.append("max_tokens")
        for name in columns:
            column = np.ascontiguousarray(getattr(self, name), dtype=np.int64)
            column.setflags(write=False)
            object.__setattr__(self, name, column)
        self._check(columns)

    def _check(self, columns: list[str]) -> None:
        if len(self) == 0:
            raise TraceError(f"{self.source}: the trace has no requests; at least one is needed")
        for name in columns:
            column: IntColumn = getattr(self, name)
            if len(column) != len(self):
                raise TraceError(
                    f"{self.source}: {name} has {len(column)} rows, arrival_ns has {len(self)}"
                )
            if name != "arrival_ns":
                self._check_range(name, column, 1, MAX_TOKENS)
        self._check_range("arrival_ns", self.arrival_ns, 0, 2**62)
        backwards = np.flatnonzero(np.diff(self.arrival_ns) < 0)
        if len(backwards):
            row = int(backwards[0]) + 1
            raise TraceError(f"{self.source}: request {row} arrives before request {row - 1}")

    def _check_range(self, name: str, column: IntColumn, low: int, high: int) -> None:
        bad = np.flatnonzero((column < low) | (column > high))
        if len(bad):
            row = int(bad[0])
            raise TraceError(
                f"{self.source}: request {row}: {name} is {column[row]}; "
                f"accepted: {low} to {high}"
            )

    def __len__(self) -> int:
        return len(self.arrival_ns)

    @property
    def arrival_s(self) -> NDArray[np.float64]:
        """Arrival times in seconds."""
        return self.arrival_ns / NANOSECONDS

    def digest(self) -> str:
        """A hash of the contents, independent of file names: hex, 32 characters."""
        state = hashlib.blake2b(digest_size=16)
        for name in ("arrival_ns", "prompt_tokens", "output_tokens", "max_tokens"):
            column = getattr(self, name)
            state.update(name.encode() + (b"-" if column is None else column.tobytes()))
        return state.hexdigest()
