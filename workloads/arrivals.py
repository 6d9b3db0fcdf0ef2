"""When requests arrive: arrival processes for generated workloads.

Extend by one class with a times_ns method, and one line in ARRIVALS.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from workloads import checks
from workloads.trace import MAX_NS, NANOSECONDS, FloatColumn, IntColumn, TraceError


class ArrivalProcess(ABC):
    """A rule for the times of requests, counted from the trace's time zero."""

    kind: ClassVar[str]

    @abstractmethod
    def times_ns(self, num_requests: int, rng: np.random.Generator) -> IntColumn:
        """Nondecreasing times in nanoseconds, one a request.

        A longer list begins with the shorter one of the same generator state.
        """


@dataclass(frozen=True)
class Poisson(ArrivalProcess):
    """Independent exponential gaps, rate requests per second on average.

    The first request waits for a gap, too. The same seed at another rate gives the same
    pattern, stretched, so runs along a sweep of rates differ in nothing else.
    """

    rate: float

    kind: ClassVar[str] = "poisson"

    def __post_init__(self) -> None:
        checks.number("rate", self.rate, above=True)

    def times_ns(self, num_requests: int, rng: np.random.Generator) -> IntColumn:
        gaps = rng.standard_exponential(num_requests)
        return times_from_gaps(gaps * (NANOSECONDS / self.rate))


@dataclass(frozen=True)
class Gamma(ArrivalProcess):
    """Independent gamma gaps, rate requests per second on average, cv the spread of the gaps.

    cv is the coefficient of variation, standard deviation over mean: above 1 requests come in
    bursts, below 1 more evenly than by chance; 1 is a Poisson process. The first request waits for
    a gap, too. The same seed at another rate gives the same pattern, stretched.
    """

    rate: float
    cv: float

    kind: ClassVar[str] = "gamma"

    def __post_init__(self) -> None:
        checks.number("rate", self.rate, above=True)
        checks.variation("cv", self.cv)

    def times_ns(self, num_requests: int, rng: np.random.Generator) -> IntColumn:
        scale = self.cv**2  # with shape 1 / scale, the mean is 1
        gaps = rng.standard_gamma(1 / scale, num_requests) * scale
        return times_from_gaps(gaps * (NANOSECONDS / self.rate))


@dataclass(frozen=True)
class Constant(ArrivalProcess):
    """Equal gaps, rate requests per second; the first request arrives at 0."""

    rate: float

    kind: ClassVar[str] = "constant"

    def __post_init__(self) -> None:
        checks.number("rate", self.rate, above=True)

    def times_ns(self, num_requests: int, rng: np.random.Generator) -> IntColumn:
        gaps = np.full(num_requests, NANOSECONDS / self.rate)
        gaps[:1] = 0
        return times_from_gaps(gaps)


@dataclass(frozen=True)
class AllAtOnce(ArrivalProcess):
    """Every request arrives at 0."""

    kind: ClassVar[str] = "all_at_once"

    def times_ns(self, num_requests: int, rng: np.random.Generator) -> IntColumn:
        return np.zeros(num_requests, np.int64)


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
    fractions = np.cumsum(gaps_ns - whole)
    return np.cumsum(whole.astype(np.int64)) + np.rint(fractions).astype(np.int64)


ARRIVALS: dict[str, type[ArrivalProcess]] = {
    "poisson": Poisson,
    "gamma": Gamma,
    "constant": Constant,
    "all_at_once": AllAtOnce,
}
