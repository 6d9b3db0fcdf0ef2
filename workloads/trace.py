"""A request trace: columns of arrivals and lengths, what it provides, and where it came from."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from workloads.content import Content

IntColumn = NDArray[np.int64]
FloatColumn = NDArray[np.float64]

NANOSECONDS = 1_000_000_000
MAX_TOKENS = 2**31 - 1  # one length; far above any context window, far below an overflow
MAX_NS = 2**62  # one time, 146 years; two of them still add up without an overflow


# the columns of a trace, and the values that they may have
COLUMNS = {
    "arrival_ns": (0, MAX_NS),
    "prompt_tokens": (1, MAX_TOKENS),
    "output_tokens": (1, MAX_TOKENS),
    "max_tokens": (1, MAX_TOKENS),
    "namespace": (0, MAX_TOKENS),
    "session": (0, MAX_TOKENS),
    "parent": (-1, MAX_TOKENS),
    "think_ns": (0, MAX_NS),
    "num_samples": (1, MAX_TOKENS),
    "beam_width": (1, MAX_TOKENS),
    "priority": (-MAX_TOKENS, MAX_TOKENS),
}
REQUIRED = ("arrival_ns", "prompt_tokens", "output_tokens")
# what a trace can provide, and the column that then is there
PROVIDED = {
    "arrivals": "arrival_ns",
    "max_tokens": "max_tokens",
    "prefix identity": "content",
    "namespaces": "namespace",
    "sessions": "session",
    "follow-ups": "think_ns",
    "samples": "num_samples",
    "beams": "beam_width",
    "priority": "priority",
}
# columns that came later: a trace without them keeps the digest that it had
LATER = frozenset({"priority"})


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
    prompt_tokens and output_tokens are at least 1. Everything else is None where the source
    does not say:

    max_tokens      what the client asked for
    content         which tokens of the prompts are equal (see workloads.content)
    namespace       requests of different namespaces share nothing: adapters, salts
    session         a number for each conversation
    parent          the row of the turn before, -1 without one
    think_ns        with parent: the request arrives so long after its parent has finished, in
                    the simulation, and arrival_ns is only where the order comes from
    num_samples     parallel samples of one prompt
    beam_width      beams kept by a beam search
    priority        the lower, the sooner, as in vLLM, where who says nothing has 0
    beam_parents    beam searches that were recorded, by request: see workloads.beams

    has_output_identity: a prompt that contains an earlier output says so in its content.
    Without it, hits on outputs go unseen and hit rates are lower bounds. notes counts, by
    reason, every row that reading dropped, altered, moved or cut. Columns are views that cannot
    be written to; whoever passes an array in leaves it alone afterwards.

    Raises TraceError if a part is nothing of its kind, a column is not whole numbers or has the
    wrong length, a value is out of range, the trace is empty, arrivals go backwards, or content is
    not as long as the prompts.
    """

    arrival_ns: IntColumn
    prompt_tokens: IntColumn
    output_tokens: IntColumn
    max_tokens: IntColumn | None = None
    source: str = "memory"
    notes: Mapping[str, int] = field(default_factory=dict)
    content: Content | None = None
    namespace: IntColumn | None = None
    session: IntColumn | None = None
    parent: IntColumn | None = None
    think_ns: IntColumn | None = None
    num_samples: IntColumn | None = None
    beam_width: IntColumn | None = None
    priority: IntColumn | None = None
    beam_parents: Mapping[int, IntColumn] | None = None
    has_output_identity: bool = False

    def __post_init__(self) -> None:
        self._check_types()
        columns = [name for name in COLUMNS if getattr(self, name) is not None]
        for name in columns:
            object.__setattr__(self, name, self._column(name))
        object.__setattr__(self, "notes", dict(self.notes or {}))
        self._check(columns)

    def _check_types(self) -> None:
        """Raise TraceError for what is nothing of its kind; columns are looked at one by one."""
        if not isinstance(self.source, str):
            raise TraceError(f"a trace's source is {self.source!r}; accepted: text")
        for name in REQUIRED:
            if getattr(self, name) is None:
                raise TraceError(f"{self.source}: {name} is missing; accepted: integers")
        kinds = {"notes": Mapping, "content": Content, "beam_parents": Mapping}
        for name, kind in kinds.items():
            value = getattr(self, name)
            if value is not None and not isinstance(value, kind):
                given = type(value).__name__
                raise TraceError(f"{self.source}: {name} is a {given}; accepted: a {kind.__name__}")

    @property
    def provides(self) -> frozenset[str]:
        """What the trace knows beside lengths, in the words of an allocator's `needs`."""
        known = {name for name in PROVIDED if getattr(self, PROVIDED[name]) is not None}
        if self.has_output_identity:
            known.add("output identity")
        return frozenset(known)

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
            self._check_range(name, column, *COLUMNS[name])
        if self.parent is not None:
            late = np.flatnonzero(self.parent >= np.arange(len(self)))
            if len(late):
                raise TraceError(f"{self.source}: request {late[0]} comes before its parent")
        if self.content is not None:
            self._check_content(self.content)
        backwards = np.flatnonzero(np.diff(self.arrival_ns) < 0)
        if len(backwards):
            row = int(backwards[0]) + 1
            raise TraceError(f"{self.source}: request {row} arrives before request {row - 1}")

    def _check_content(self, content: Content) -> None:
        if len(content) != len(self):
            raise TraceError(f"{self.source}: content has {len(content)} rows, not {len(self)}")
        wrong = np.flatnonzero(content.prompt_tokens() != self.prompt_tokens)
        if len(wrong):
            row = int(wrong[0])
            raise TraceError(
                f"{self.source}: request {row}: content has "
                f"{content.prompt_tokens()[row]} tokens, the prompt {self.prompt_tokens[row]}"
            )

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
        return self._digest

    @cached_property
    def _digest(self) -> str:
        state = hashlib.blake2b(digest_size=16)
        for name in COLUMNS:
            column = getattr(self, name)
            if column is None and name in LATER:
                continue
            state.update(name.encode())
            state.update(b"-" if column is None else column.data)
        for column in self.content.columns() if self.content is not None else ():
            state.update(np.ascontiguousarray(column).data)
        for request, parents in (self.beam_parents or {}).items():
            state.update(b"%d" % request + parents.tobytes())
        return state.hexdigest()
