"""What every arrival process is, and sums of gaps that do not drift."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

import numpy as np

from workloads.trace import MAX_NS, FloatColumn, IntColumn, TraceError


class ArrivalProcess(ABC):
    """A rule for the times of requests, counted from the trace's time zero."""

    kind: ClassVar[str]

    @abstractmethod
    def times_ns(self, num_requests: int, rng: np.random.Generator) -> IntColumn:
        """Nondecreasing times in nanoseconds, one a request.

        A longer list begins with the shorter one of the same generator state.
        """


def times_from_gaps(gaps_ns: FloatColumn) -> IntColumn:
    """Cumulative sums of gaps in nanoseconds, rounded once each.

    Whole and fractional nanoseconds are added up apart: the whole ones exactly, as integers, so
    the sum does not drift however many there are.

    Raises TraceError if the last time is beyond 146 years.
    """
    with np.errstate(over="ignore"):
        total_ns = gaps_ns.sum()
    if not total_ns < MAX_NS:
        raise TraceError(
            f"arrivals: the last of {len(gaps_ns)} requests would arrive after 146 years; "
            "accepted: a higher rate"
        )
    whole = np.floor(gaps_ns)
    times: IntColumn = np.cumsum(whole.astype(np.int64))
    fractions = np.subtract(gaps_ns, whole, out=whole)
    np.rint(np.cumsum(fractions, out=fractions), out=fractions)
    times += fractions.astype(np.int64)
    return times
