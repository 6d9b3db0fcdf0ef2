"""What all trace files share: row policy, order, slicing."""

# annotations stay objects here: readers in other modules inherit these parameters, and whoever
# resolves the annotations of a reader looks names up in the reader's own module
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

from workloads import checks
from workloads.base import Workload
from workloads.rows import Column, Rows
from workloads.rules import LENGTH, MAX_S
from workloads.trace import MAX_NS, NANOSECONDS, Trace, TraceError

GENERATE_THEM = "for a file without arrival times use 'kind: lengths', which generates them"


@dataclass(frozen=True, kw_only=True)
class FileOptions(Workload):
    """Which rows of a file are taken, whatever its format.

    limit keeps the first requests (None: all).
    on_bad_row is "error" (the first bad row ends it) or "drop" (bad rows are counted in notes).
    zero_tokens is what happens to a row without a prompt or without an output: "drop" it, or take
    it as "one" token, because a request computes and samples at least one; without it such a row
    is a bad row.
    unsorted is "error", or "sort" to sort stably by arrival and count the rows that moved.
    start_s and duration_s keep the arrivals from start_s up to start_s + duration_s, in seconds
    of the trace's time; a slice that starts later than 0 is rebased to its first arrival.
    What is dropped, moved or cut stands in the trace's notes.
    """

    limit: int | None = None
    on_bad_row: Literal["error", "drop"] = "error"
    unsorted: Literal["error", "sort"] = "error"
    start_s: float = 0.0
    duration_s: float | None = None
    zero_tokens: Literal["drop", "one"] | None = None

    def __post_init__(self) -> None:
        check_limit(self.limit, self.on_bad_row)
        checks.one_of("unsorted", self.unsorted, ["error", "sort"])
        checks.number("start_s", self.start_s, high=MAX_S)
        if self.duration_s is not None:
            checks.number("duration_s", self.duration_s, above=True, high=MAX_S)
        if self.zero_tokens is not None:
            checks.one_of("zero_tokens", self.zero_tokens, ["drop", "one"])


@dataclass(frozen=True)
class TraceFile(FileOptions):
    """A file of requests: path is the file, plain, gzip or zstd.

    Extend it by a class with columns, read and recognizes.
    """

    path: str

    columns: ClassVar[Sequence[Column]]
    absolute_times: ClassVar[bool] = False  # stamped by a clock: rebased to the first arrival

    def __post_init__(self) -> None:
        check_path(self.path)
        super().__post_init__()

    @abstractmethod
    def read(self, columns: Sequence[Column]) -> Rows:
        """These columns of the file, in its order."""

    @classmethod
    @abstractmethod
    def recognizes(cls, path: str, start: bytes) -> bool:
        """Whether a file of this name that starts like this is of this format."""

    def lengths(self) -> Rows:
        """The first limit rows without their times, for a generator to give them others."""
        rows = self._read([column for column in self.columns if column.field != "arrival_ns"])
        rows.limit(self.limit)
        return rows

    def raw(self) -> Rows:
        """The rows as they stand in the file, those without tokens included.

        Arrival times are there if the file has them. Content is what the file's own ids say,
        without what `complete` concludes.
        """
        columns = [
            replace(column, optional=True) if column.field == "arrival_ns" else column
            for column in self.columns
        ]
        return self.read(with_zeros(columns))

    def complete(self, rows: Rows) -> None:
        """What the rows together let one conclude beyond their cells; by default nothing."""

    def _read(self, columns: Sequence[Column]) -> Rows:
        rows = self.read(columns if self.zero_tokens is None else with_zeros(columns))
        self.complete(rows)
        if self.zero_tokens is not None:
            rows.zeros(self.zero_tokens)
        return rows

    def load(self, seed: int) -> Trace:
        """The requests of the file; the seed plays no part."""
        return self.requests().to_trace()

    def requests(self) -> Rows:
        """The rows of the trace: in order of arrival, and only those that the parameters keep."""
        if not any(column.field == "arrival_ns" for column in self.columns):
            raise TraceError(f"{self.path}: has no arrival times; {GENERATE_THEM}")
        rows = self._read(self.columns)
        rows.order(self.unsorted)
        if self.absolute_times:
            rows.rebase()
        start_ns = round(self.start_s * NANOSECONDS)
        if self.duration_s is not None:
            rows.cut(start_ns, start_ns + round(self.duration_s * NANOSECONDS))
        elif start_ns:
            rows.cut(start_ns, MAX_NS + 1)
        if start_ns:
            rows.rebase()
        rows.limit(self.limit)
        return rows


def with_zeros(columns: Sequence[Column]) -> list[Column]:
    """Columns whose lengths may be zero."""
    lengths = {"prompt_tokens", "output_tokens"}
    return [replace(c, rule=LENGTH) if c.field in lengths else c for c in columns]


def check_rows(path: object, limit: object, on_bad_row: object) -> None:
    """Check the parameters that say which rows of a file are read."""
    check_path(path)
    check_limit(limit, on_bad_row)


def check_path(path: object) -> None:
    """Refuse anything but the name of a file."""
    if not isinstance(path, str) or not path:
        raise ValueError(f"path: must be the name of a file, got {path!r}")


def check_limit(limit: object, on_bad_row: object) -> None:
    """Check limit and on_bad_row."""
    if limit is not None:
        checks.whole("limit", limit)
    checks.one_of("on_bad_row", on_bad_row, ["error", "drop"])
