"""When requests arrive: arrival processes for generated workloads.

Extend by one class with a times_ns method, and one line in ARRIVALS.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from workloads import checks
from workloads.modulated import Diurnal, Modulated
from workloads.process import ArrivalProcess, times_from_gaps
from workloads.trace import NANOSECONDS, IntColumn
from workloads.tracetimes import TraceTimes


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


ARRIVALS: dict[str, type[ArrivalProcess]] = {
    "poisson": Poisson,
    "gamma": Gamma,
    "constant": Constant,
    "all_at_once": AllAtOnce,
    "mmpp": Modulated,
    "diurnal": Diurnal,
    "trace_times": TraceTimes,
}
