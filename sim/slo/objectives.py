"""Service level objectives as text: "p99 ttft < 1 s, p99 tpot < 50 ms"."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from sim.config.plugins import guess

Floats = NDArray[np.float64]

METRICS = {"ttft": "ttft_s", "tpot": "tpot_s", "e2e": "e2e_s"}
UNITS = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6}
STATISTICS = ("mean", "median")
EXAMPLE = '"p99 ttft < 1 s, p99 tpot < 50 ms"; mean and median, e2e, <= and us as well'

# requests that must lie beyond a percentile, so that it is no accident of a few of them
NUM_BEYOND = 20
# and enough to tell a queue that grows by 5 % of the arrivals from chance (sim.slo.steady)
MIN_MEASURED = 2000
MAX_MEASURED = 10_000_000

_CLAUSE = re.compile(
    r"(?P<statistic>\S+)\s+(?P<metric>\S+?)\s*(?P<sign><=?|≤)\s*"
    r"(?P<number>[0-9]+\.?[0-9]*|\.[0-9]+)\s*(?P<unit>[^\s\d.]+)"
)
_PERCENTILE = re.compile(r"p([0-9]{1,2}(?:\.[0-9]{1,6})?)")


@dataclass(frozen=True)
class Objective:
    """One limit: a statistic of a metric of requests, below limit_s seconds, or at most that.

    percentile is None for the mean. metric is ttft_s, tpot_s or e2e_s.
    """

    metric: str
    percentile: Fraction | None
    limit_s: float
    is_inclusive: bool

    @property
    def name(self) -> str:
        """What is limited, as a column: ttft_s_p99."""
        end = "mean" if self.percentile is None else f"p{float(self.percentile):g}"
        return f"{self.metric}_{end}"

    @property
    def text(self) -> str:
        """As a user would write it, in seconds."""
        sign = "<=" if self.is_inclusive else "<"
        metric, _, end = self.name.rpartition("_")
        return f"{end} {metric.removesuffix('_s')} {sign} {self.limit_s:g} s"

    @property
    def num_measured(self) -> int:
        """How many requests there must be for it to be judged."""
        if self.percentile is None:
            return MIN_MEASURED
        return max(MIN_MEASURED, -(-NUM_BEYOND * 100 // (100 - self.percentile)))

    def value(self, latencies: Floats) -> float:
        """The statistic, in seconds; infinite latencies are those of requests that never ended.

        A percentile is the smallest latency that so many requests do not exceed. NaN without any.
        """
        if not len(latencies):
            return float("nan")
        if self.percentile is None:
            return float(latencies.mean())
        rank = -(-len(latencies) * self.percentile // 100)
        return float(np.partition(latencies, rank - 1)[rank - 1])

    def holds(self, value: float) -> bool:
        """Whether a statistic is within the limit; a statistic of nothing (NaN) is."""
        return not (value > self.limit_s or (value == self.limit_s and not self.is_inclusive))


def read_objectives(text: str) -> tuple[Objective, ...]:
    """The objectives between commas. Raises ValueError with one sentence."""
    found: list[Objective] = []
    for clause in text.split(","):
        objective = _read(" ".join(clause.split()))
        if any(objective.name == other.name for other in found):
            raise ValueError(f"{clause.strip()!r}: {objective.name} has a limit already")
        found.append(objective)
    return tuple(found)


def _read(clause: str) -> Objective:
    match = _CLAUSE.fullmatch(clause.lower())
    if match is None:
        raise ValueError(f"{clause!r} is no objective; accepted: {EXAMPLE}")
    statistic, metric, unit = match["statistic"], match["metric"], match["unit"]
    percentile = _PERCENTILE.fullmatch(statistic)
    if percentile is None and statistic not in STATISTICS:
        raise ValueError(f"{clause!r}: unknown statistic {statistic!r}; accepted: {EXAMPLE}")
    if metric not in METRICS:
        raise ValueError(f"{clause!r}: unknown metric {metric!r}{guess(metric, list(METRICS))}")
    if unit not in UNITS:
        raise ValueError(f"{clause!r}: unknown unit {unit!r}; accepted: s, ms, us")
    limit_s = float(match["number"]) * UNITS[unit]
    if not 0 < limit_s < 1e9:
        raise ValueError(f"{clause!r}: must be above 0 and below 1e9 seconds")
    share = None if statistic == "mean" else Fraction(percentile[1] if percentile else "50")
    objective = Objective(METRICS[metric], share, limit_s, match["sign"] != "<")
    if share is not None and not (share > 0 and objective.num_measured <= MAX_MEASURED):
        raise ValueError(f"{clause!r}: accepted: p0.01 to p99.9998")
    return objective


def num_measured(objectives: Sequence[Objective]) -> int:
    """How many requests must be measured to judge all of them."""
    return max(objective.num_measured for objective in objectives)
