"""A request trace: columns of arrivals and lengths, what it provides, and where it came from."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

IntColumn = NDArray[np.int64]
FloatColumn = NDArray[np.float64]

NANOSECONDS = 1_000_000_000
MAX_TOKENS = 2**31 - 1  # one length; far above any context window, far below an overflow
MAX_NS = 2**62  # one time, 146 years; two of them still add up without an overflow


class TraceError(ValueError):
    """A trace that cannot be used as it is. The message names the file, the row and the rule."""


def seconds_to_ns(seconds: FloatColumn) -> IntColumn:
    """Seconds as whole nanoseconds, each rounded once, half to even.

    The whole seconds are split off first, so nothing but the resolution of the double itself is
    lost: any whole number of nanoseconds survives the way to seconds and back up to 52 days.
    """
    whole = np.floor(seconds)
    fraction = np.rint((seconds - whole) * NANOSECONDS)
    return whole.astype(np.int64) * NANOSECONDS + fraction.astype(np.int64)


@dataclass(frozen=True, eq=False)
class Trace:
    """Requests in order of arrival, as columns of equal length.

    arrival_ns counts nanoseconds from the trace's own time zero: the first arrival where the
    source stamps absolute times, the source's zero otherwise. A request's id is its row.
    prompt_tokens and output_tokens are at least 1. max_tokens is what the client asked for,
    or None where the format does not say. notes counts, by reason, every row that reading
    dropped, altered, moved or cut. Columns are views that cannot be written to; whoever passes
    an array in leaves it alone afterwards.

    Raises TraceError if a column is not whole numbers or has the wrong length, a value is out of
    range, the trace is empty, or arrivals go backwards.
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
            object.__setattr__(self, name, self._column(name))
        object.__setattr__(self, "notes", dict(self.notes))
        self._check(columns)

    def _column(self, name: str) -> IntColumn:
        """The named column as int64 that cannot be written to, whatever was passed in."""
        given = np.asarray(getattr(self, name))
        if given.ndim != 1:
            raise TraceError(f"{self.source}: {name} has {given.ndim} dimensions; accepted: 1")
        if len(given) and (given.dtype.kind not in "iu" or not np.can_cast(given.dtype, np.int64)):
            raise TraceError(f"{self.source}: {name} holds {given.dtype}; accepted: integers")
        # a view, so that the caller's own array is not frozen
        column = np.ascontiguousarray(given, dtype=np.int64).view()
        column.setflags(write=False)
        return column

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
        self._check_range("arrival_ns", self.arrival_ns, 0, MAX_NS)
        backwards = np.flatnonzero(np.diff(self.arrival_ns) < 0)
        if len(backwards):
            row = int(backwards[0]) + 1
            raise TraceError(f"{self.source}: request {row} arrives before request {row - 1}")

    def _check_range(self, name: str, column: IntColumn, low: int, high: int) -> None:
        bad = np.flatnonzero((column < low) | (column > high))
        if len(bad):
            row = int(bad[0])
            raise TraceError(
                f"{self.source}: request {row}: {name} is {column[row]}; accepted: {low} to {high}"
            )

    def __len__(self) -> int:
        return len(self.arrival_ns)

    @property
    def arrival_s(self) -> FloatColumn:
        """Arrival times in seconds."""
        return self.arrival_ns / NANOSECONDS

    def digest(self) -> str:
        """A hash of the contents, independent of file names: hex, 32 characters."""
        state = hashlib.blake2b(digest_size=16)
        for name in ("arrival_ns", "prompt_tokens", "output_tokens", "max_tokens"):
            column = getattr(self, name)
            state.update(name.encode() + (b"-" if column is None else column.tobytes()))
        return state.hexdigest()
