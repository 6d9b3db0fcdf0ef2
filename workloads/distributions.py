"""How long requests are: distributions of token counts for generated workloads.

A draw is a real number, rounded to the nearest whole one. What then lies below min or above max
is set to min or max, and how often that happened stands in the trace's notes: lengths beyond a
limit pile up at it, as they do where a server cuts prompts and outputs. So other limits change
no request that lies within both, but they do move the mean: mean and cv are those before min
and max.

Extend by one class with a method sample, and one line in LENGTH_DISTRIBUTIONS.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from workloads import checks
from workloads.quantiles import check_table, read_table
from workloads.trace import MAX_TOKENS, FloatColumn, IntColumn

MAX_RANKS = 10_000_000


@dataclass(frozen=True, kw_only=True)
class LengthDistribution(ABC):
    """A rule for token counts.

    min and max limit them: a draw below min is set to min, one above max to max (None: no limit),
    and both are counted.
    """

    min: int = 1
    max: int | None = None

    kind: ClassVar[str]

    def __post_init__(self) -> None:
        checks.whole("min", self.min, 1, MAX_TOKENS)
        if self.max is not None:
            checks.whole("max", self.max, self.min, MAX_TOKENS)

    @abstractmethod
    def sample(self, count: int, rng: np.random.Generator) -> FloatColumn:
        """Independent draws in tokens, neither rounded nor limited.

        A longer list begins with the shorter one of the same generator state. Raises TraceError
        if a file cannot be used.
        """

    def draw(
        self, name: str, count: int, rng: np.random.Generator, notes: Counter[str]
    ) -> IntColumn:
        """Token counts within the limits; notes count, under the column's name, what was changed.

        Raises TraceError as sample.
        """
        return self.limited(name, self.sample(count, rng), notes)

    def limited(self, name: str, draws: FloatColumn, notes: Counter[str]) -> IntColumn:
        """Draws rounded and set to the limits beyond them, which is counted."""
        tokens = np.rint(draws)
        high = MAX_TOKENS if self.max is None else self.max
        below = int(np.count_nonzero(tokens < self.min))
        above = int(np.count_nonzero(tokens > high))
        if below:
            notes[f"clipped: {name} raised to {self.min}"] += below
        if above:
            notes[f"clipped: {name} lowered to {high}"] += above
        return np.clip(tokens, self.min, high).astype(np.int64)


LENGTH_DISTRIBUTIONS: dict[str, type[LengthDistribution]] = {}  # filled below


@dataclass(frozen=True)
class Fixed(LengthDistribution):
    """Always the same number of tokens; a bare number is short for this one."""

    tokens: int

    kind: ClassVar[str] = "fixed"
    shorthand: ClassVar[str] = "tokens"

    def __post_init__(self) -> None:
        super().__post_init__()
        checks.whole("tokens", self.tokens, 1, MAX_TOKENS)

    def sample(self, count: int, rng: np.random.Generator) -> FloatColumn:
        return np.full(count, float(self.tokens))


@dataclass(frozen=True)
class Uniform(LengthDistribution):
    """Every whole number of tokens from low to high is equally likely."""

    low: int
    high: int

    kind: ClassVar[str] = "uniform"

    def __post_init__(self) -> None:
        super().__post_init__()
        checks.whole("low", self.low, 1, MAX_TOKENS)
        checks.whole("high", self.high, self.low, MAX_TOKENS)

    def sample(self, count: int, rng: np.random.Generator) -> FloatColumn:
        return np.floor(self.low + rng.random(count) * (self.high - self.low + 1))


@dataclass(frozen=True)
class LogNormal(LengthDistribution):
    """Lognormal lengths of this mean, in tokens, and this cv: standard deviation over mean.

    The logarithm is normal with variance ln(1 + cv²) and mean ln(mean) less half of that.
    """

    mean: float
    cv: float

    kind: ClassVar[str] = "lognormal"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_mean_and_cv(self.mean, self.cv)

    def sample(self, count: int, rng: np.random.Generator) -> FloatColumn:
        variance = math.log1p(self.cv**2)
        normal = rng.standard_normal(count)
        return np.exp(math.log(self.mean) - variance / 2 + math.sqrt(variance) * normal)


@dataclass(frozen=True)
class Gamma(LengthDistribution):
    """Gamma lengths of this mean, in tokens, and this cv: standard deviation over mean.

    cv 1 is the exponential distribution. Shape 1 / cv², scale mean cv².
    """

    mean: float
    cv: float

    kind: ClassVar[str] = "gamma"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_mean_and_cv(self.mean, self.cv)

    def sample(self, count: int, rng: np.random.Generator) -> FloatColumn:
        scale = self.cv**2
        return rng.standard_gamma(1 / scale, count) * (self.mean * scale)


@dataclass(frozen=True)
class Quantiles(LengthDistribution):
    """Lengths by their quantiles, straight lines between: levels and tokens, or path of a table.

    levels ascend from 0, the shortest length, to 1, the longest; tokens are the lengths at them
    and do not descend. A share of 0.4 of the lengths lies between the tokens at levels 0.5 and
    0.9, equally likely everywhere in between. path is a CSV file with the columns level and
    tokens instead, under the same rules.
    """

    levels: Sequence[float] | None = None
    tokens: Sequence[float] | None = None
    path: str | None = None

    kind: ClassVar[str] = "quantiles"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.path is not None:
            if self.levels is not None or self.tokens is not None:
                raise ValueError("path: stands beside levels or tokens; accepted: one of the two")
            if not isinstance(self.path, str) or not self.path:
                raise ValueError(f"path: must be the name of a file, got {self.path!r}")
        else:
            check_table(self.levels, self.tokens)

    def sample(self, count: int, rng: np.random.Generator) -> FloatColumn:
        levels, tokens = (self.levels, self.tokens) if self.path is None else read_table(self.path)
        assert levels is not None  # checked when this was made
        assert tokens is not None
        return np.interp(rng.random(count), levels, tokens)


@dataclass(frozen=True)
class Zipf(LengthDistribution):
    """Whole numbers of tokens from low to high, short ones the likelier: Zipf's law.

    The first length, low, has rank 1, and a length of rank r is drawn in proportion to
    1 / r ** exponent; exponent 0 draws all alike.
    """

    low: int
    high: int
    exponent: float = 1.0

    kind: ClassVar[str] = "zipf"

    def __post_init__(self) -> None:
        super().__post_init__()
        checks.whole("low", self.low, 1, MAX_TOKENS)
        checks.whole("high", self.high, self.low, self.low + MAX_RANKS - 1)
        checks.number("exponent", self.exponent, 0, 10)

    def sample(self, count: int, rng: np.random.Generator) -> FloatColumn:
        ranks = np.arange(1, self.high - self.low + 2, dtype=np.float64)
        ends = np.cumsum(ranks**-self.exponent)
        place = rng.random(count) * ends[-1]
        tokens: FloatColumn = np.searchsorted(ends[:-1], place, side="right") + float(self.low)
        return tokens


@dataclass(frozen=True)
class Mixture(LengthDistribution):
    """Each length is of one of several distributions, drawn by weight.

    components is a list of {kind: …}, each a distribution with its own parameters and limits, or
    of bare numbers.
    weights is as long and says how likely each is, relative to the others.
    """

    components: Sequence[int | Mapping[str, object]]
    weights: Sequence[float]

    kind: ClassVar[str] = "mixture"
    nested_lists: ClassVar[Mapping[str, Mapping[str, type]]] = {"components": LENGTH_DISTRIBUTIONS}

    def __post_init__(self) -> None:
        super().__post_init__()
        self._parts()
        checks.weights("weights", self.weights, "components", len(self.components))

    def _parts(self) -> list[LengthDistribution]:
        return checks.build_list("components", self.components, LENGTH_DISTRIBUTIONS)

    def sample(self, count: int, rng: np.random.Generator) -> FloatColumn:
        return self._mix("", count, rng, Counter())

    def draw(
        self, name: str, count: int, rng: np.random.Generator, notes: Counter[str]
    ) -> IntColumn:
        return self.limited(name, self._mix(name, count, rng, notes), notes)

    def _mix(
        self, name: str, count: int, rng: np.random.Generator, notes: Counter[str]
    ) -> FloatColumn:
        """Draws within the limits of their components."""
        parts = self._parts()
        ends = np.cumsum(self.weights)
        which = np.searchsorted(ends[:-1], rng.random(count) * ends[-1], side="right")
        tokens = np.empty(count)
        for number, (part, part_rng) in enumerate(zip(parts, rng.spawn(len(parts)), strict=True)):
            rows = np.flatnonzero(which == number)
            tokens[rows] = part.draw(name, len(rows), part_rng, notes)
        return tokens


def check_mean_and_cv(mean: object, cv: object) -> None:
    """Check the two parameters that distributions without a natural limit have."""
    checks.number("mean", mean, 1, MAX_TOKENS)
    checks.variation("cv", cv)


LENGTH_DISTRIBUTIONS |= {
    "fixed": Fixed,
    "uniform": Uniform,
    "lognormal": LogNormal,
    "gamma": Gamma,
    "quantiles": Quantiles,
    "zipf": Zipf,
    "mixture": Mixture,
}
