"""Arrivals whose rate changes with time: bursts that come and go, and the time of day."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from workloads import checks
from workloads.process import ArrivalProcess, times_from_gaps
from workloads.rules import MAX_S
from workloads.trace import NANOSECONDS, FloatColumn, IntColumn, TraceError, seconds_to_ns

MAX_CHANGES = 20_000_000  # of rate, until the last request
BLOCK = 1024
MAX_STATES = 1000


@dataclass(frozen=True)
class Modulated(ArrivalProcess):
    """Markov-modulated Poisson arrivals: the rate jumps between the rates of states, in turn.

    rates are requests per second in each state; one may be 0, not all.
    dwell_s is how many seconds a stay in each state lasts on average; stays are exponential. The
    first state is the one at time 0, and the last is followed by the first.
    The mean rate is that of rates weighted by dwell_s. Two states far apart make bursts.
    """

    rates: Sequence[float]
    dwell_s: Sequence[float]

    kind: ClassVar[str] = "mmpp"

    def __post_init__(self) -> None:
        check_states("rates", self.rates)
        check_states("dwell_s", self.dwell_s)
        for rate in self.rates:
            checks.number("rates", rate, 0)
        for dwell_s in self.dwell_s:
            checks.number("dwell_s", dwell_s, 0.001, MAX_S)
        if len(self.dwell_s) != len(self.rates):
            count = len(self.dwell_s)
            raise ValueError(f"dwell_s: must be as many as rates, {len(self.rates)}, got {count}")
        if not any(self.rates):
            raise ValueError(f"rates: must not all be 0, got {list(self.rates)!r}")

    def times_ns(self, num_requests: int, rng: np.random.Generator) -> IntColumn:
        # in a time that runs as fast as the rate, arrivals are Poisson of rate 1
        stays = rng.spawn(1)[0]
        expected = np.cumsum(rng.standard_exponential(num_requests))
        ends_s, ends = self._clocks(expected[-1:].sum(), stays)
        times_s = np.interp(expected, ends, ends_s)
        return np.maximum.accumulate(seconds_to_ns(times_s))

    def _clocks(self, last: float, rng: np.random.Generator) -> tuple[FloatColumn, FloatColumn]:
        """Ends of stays in seconds and in expected arrivals, until these are last or more."""
        states = len(self.rates)
        block = BLOCK * states
        stays_s: list[FloatColumn] = [np.zeros(1)]
        arrivals: list[FloatColumn] = [np.zeros(1)]
        total = total_s = 0.0
        while total < last:
            stays = np.tile(self.dwell_s, BLOCK) * rng.standard_exponential(block)
            stays_s.append(stays)
            arrivals.append(stays * np.tile(self.rates, BLOCK))
            total += float(arrivals[-1].sum())
            total_s += float(stays.sum())
            if total < last and (total_s > MAX_S or len(stays_s) * block > MAX_CHANGES):
                raise TraceError(
                    f"arrivals: after {total_s:g} s and {len(stays_s) * block} changes of the rate "
                    f"there are {total:g} of {last:g} requests; accepted: higher rates"
                )
        return np.cumsum(np.concatenate(stays_s)), np.cumsum(np.concatenate(arrivals))


@dataclass(frozen=True)
class Diurnal(ArrivalProcess):
    """Poisson arrivals whose rate goes up and down like a sine, as between day and night.

    rate is the mean, in requests per second.
    amplitude is the height of the wave as a share of the mean, 0 to 1: at 1, the rate at night
    falls to 0.
    period_s is the length of a day, in seconds.
    phase is where in the day time 0 is, as a share of it: at 0 the rate is the mean and rises, at
    0.25 it is highest, at 0.75 lowest.
    Drawn by thinning (Lewis and Shedler 1979): candidates at the highest rate, each kept with
    the share that the rate at its time has of that.
    """

    rate: float
    amplitude: float
    period_s: float = 86_400.0
    phase: float = 0.0

    kind: ClassVar[str] = "diurnal"

    def __post_init__(self) -> None:
        checks.number("rate", self.rate, above=True)
        checks.number("amplitude", self.amplitude, 0, 1)
        checks.number("period_s", self.period_s, 0.001, MAX_S)
        checks.number("phase", self.phase, 0, 1)

    def times_ns(self, num_requests: int, rng: np.random.Generator) -> IntColumn:
        gap_rng, coin_rng = rng.spawn(2)
        gaps, coins = np.empty(0), np.empty(0)
        highest = 1 + self.amplitude
        while True:
            gaps = np.concatenate([gaps, gap_rng.standard_exponential(num_requests + BLOCK)])
            coins = np.concatenate([coins, coin_rng.random(num_requests + BLOCK)])
            times = times_from_gaps(gaps * (NANOSECONDS / (self.rate * highest)))
            kept = times[coins * highest < self.relative_rate(times / NANOSECONDS)]
            if len(kept) >= num_requests:
                return kept[:num_requests]

    def relative_rate(self, seconds: FloatColumn) -> FloatColumn:
        """The rate at these times, as a multiple of the mean."""
        angle = 2 * math.pi * (seconds / self.period_s + self.phase)
        return 1 + self.amplitude * np.sin(angle)


def check_states(name: str, values: object) -> None:
    """Refuse what is no list of numbers of at least two states."""
    is_list = isinstance(values, Sequence) and not isinstance(values, str | bytes)
    if not is_list or not 2 <= len(values) <= MAX_STATES:  # type: ignore[arg-type]
        raise ValueError(f"{name}: must be a list of 2 to {MAX_STATES} numbers, got {values!r}")
