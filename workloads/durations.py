"""How long somebody takes: times to think, to type, or to run a tool.

Extend by one class with a method sample, and one line in DURATIONS.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from workloads import checks
from workloads.rules import MAX_S
from workloads.trace import FloatColumn, IntColumn, TraceError, seconds_to_ns


class Duration(ABC):
    """A rule for times in seconds."""

    kind: ClassVar[str]

    @abstractmethod
    def sample(self, count: int, rng: np.random.Generator) -> FloatColumn:
        """Independent times in seconds; a longer list begins with the shorter one."""

    def draw_ns(self, count: int, rng: np.random.Generator) -> IntColumn:
        """Times in nanoseconds, rounded once each. Raises TraceError if one is beyond MAX_S."""
        seconds = self.sample(count, rng)
        if seconds.max(initial=0.0) > MAX_S:
            raise TraceError(
                f"{self.kind}: a time of {seconds.max():g} s was drawn; accepted: up to {MAX_S:g}"
            )
        return seconds_to_ns(seconds)


@dataclass(frozen=True)
class FixedTime(Duration):
    """Always the same number of seconds; a bare number is short for this one."""

    seconds: float

    kind: ClassVar[str] = "fixed"
    shorthand: ClassVar[str] = "seconds"

    def __post_init__(self) -> None:
        checks.number("seconds", self.seconds, high=MAX_S)

    def sample(self, count: int, rng: np.random.Generator) -> FloatColumn:
        return np.full(count, float(self.seconds))


@dataclass(frozen=True)
class Exponential(Duration):
    """Exponential times, mean_s seconds on average."""

    mean_s: float

    kind: ClassVar[str] = "exponential"

    def __post_init__(self) -> None:
        checks.number("mean_s", self.mean_s, high=MAX_S, above=True)

    def sample(self, count: int, rng: np.random.Generator) -> FloatColumn:
        return rng.standard_exponential(count) * self.mean_s


@dataclass(frozen=True)
class LogNormalTime(Duration):
    """Lognormal times, mean_s seconds on average, with this cv: standard deviation over mean."""

    mean_s: float
    cv: float

    kind: ClassVar[str] = "lognormal"

    def __post_init__(self) -> None:
        checks.number("mean_s", self.mean_s, high=MAX_S, above=True)
        checks.variation("cv", self.cv)

    def sample(self, count: int, rng: np.random.Generator) -> FloatColumn:
        variance = math.log1p(self.cv**2)
        normal = rng.standard_normal(count)
        return np.exp(math.log(self.mean_s) - variance / 2 + math.sqrt(variance) * normal)


DURATIONS: dict[str, type[Duration]] = {
    "fixed": FixedTime,
    "exponential": Exponential,
    "lognormal": LogNormalTime,
}
