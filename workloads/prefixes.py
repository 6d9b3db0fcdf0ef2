"""What prompts begin with and share: one text for all, or picks from a pool of texts.

Extend by one class with methods size and draw, and one line in PREFIXES.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from workloads import checks
from workloads.distributions import LENGTH_DISTRIBUTIONS, LengthDistribution
from workloads.streams import stream
from workloads.trace import MAX_TOKENS, FloatColumn, IntColumn

MAX_TEXTS = 10_000_000
MAX_PICKS = 1000
SHARES = 2**53  # popularity as whole numbers, so that picks are exact


class Prefix(ABC):
    """A part of the front of prompts. Its texts have the numbers 0 to size - 1.

    every_turn: it stands before the own text of follow-ups too, not only of first turns.
    """

    kind: ClassVar[str]
    nested: ClassVar[Mapping[str, Mapping[str, type]]] = {}
    every_turn: bool = False

    @abstractmethod
    def size(self) -> int:
        """How many texts there are."""

    @abstractmethod
    def draw(
        self, num_requests: int, seed: int, part: int, notes: Counter[str]
    ) -> tuple[IntColumn, IntColumn]:
        """The texts of each prompt in order, and the tokens of each text.

        Shapes (requests, texts a prompt) and (size,). part is the number of this part of the
        front, for a random stream of its own; notes count the lengths that were limited.
        """


@dataclass(frozen=True)
class Shared(Prefix):
    """One text that all prompts begin with, tokens long; a bare number is short for this one.

    The PagedAttention paper's translation examples (figure 16) are 80 tokens for one shot and 341
    for five.
    """

    tokens: int

    kind: ClassVar[str] = "shared"
    shorthand: ClassVar[str] = "tokens"

    def __post_init__(self) -> None:
        checks.whole("tokens", self.tokens, 1, MAX_TOKENS)

    def size(self) -> int:
        return 1

    def draw(
        self, num_requests: int, seed: int, part: int, notes: Counter[str]
    ) -> tuple[IntColumn, IntColumn]:
        return np.zeros((num_requests, 1), np.int64), np.array([self.tokens])


@dataclass(frozen=True)
class Pool(Prefix):
    """Different texts from a pool: a system prompt, few-shot examples, retrieved documents.

    texts is how many there are.
    tokens is how long each is, {kind: …}, a distribution (kvsim list lengths), or a bare number.
    pick is how many different ones a prompt gets.
    zipf is the exponent of their popularity: text i of 1, 2, … is picked in proportion to
    1 / i ** zipf, again among the rest for each further pick; 0 picks all alike.
    order is "drawn", the order of picking, in which the popular tend to come first and two prompts
    share what they begin with by chance only, or "sorted", by popularity, so that those that pick
    the same texts share them all.
    every_turn puts picks before the text of each follow-up too, as retrieval does; otherwise only
    first turns have them.
    """

    texts: int
    tokens: int | Mapping[str, object]
    pick: int = 1
    zipf: float = 1.0
    order: Literal["drawn", "sorted"] = "drawn"
    every_turn: bool = False

    kind: ClassVar[str] = "pool"
    nested: ClassVar[Mapping[str, Mapping[str, type]]] = {"tokens": LENGTH_DISTRIBUTIONS}

    def __post_init__(self) -> None:
        checks.whole("texts", self.texts, 1, MAX_TEXTS)
        checks.whole("pick", self.pick, 1, min(self.texts, MAX_PICKS))
        checks.number("zipf", self.zipf, 0, 10)
        checks.one_of("order", self.order, ["drawn", "sorted"])
        if not isinstance(self.every_turn, bool):
            raise ValueError(f"every_turn: must be true or false, got {self.every_turn!r}")
        self._tokens()

    def _tokens(self) -> LengthDistribution:
        return checks.build("tokens", self.tokens, LENGTH_DISTRIBUTIONS)

    def size(self) -> int:
        return self.texts

    def draw(
        self, num_requests: int, seed: int, part: int, notes: Counter[str]
    ) -> tuple[IntColumn, IntColumn]:
        rng = stream(seed, "prefix_tokens", part)
        tokens = self._tokens().draw(f"prefix.{part}.tokens", self.texts, rng, notes)
        uniform = stream(seed, "prefix_picks", part).random((num_requests, self.pick))
        picks = different_picks(uniform, zipf_shares(self.texts, self.zipf))
        return (np.sort(picks, axis=1) if self.order == "sorted" else picks), tokens


def zipf_shares(count: int, exponent: float) -> IntColumn:
    """Popularity 1 / i ** exponent of i = 1 to count, as whole numbers of at least 1."""
    popularity = np.arange(1, count + 1, dtype=np.float64) ** -exponent
    shares = np.rint(popularity * (SHARES / 2 / popularity.sum()))
    whole: IntColumn = np.maximum(shares, 1).astype(np.int64)
    return whole


def different_picks(uniform: FloatColumn, shares: IntColumn) -> IntColumn:
    """Picks of different numbers, each in proportion to its share among those left.

    uniform, of shape (rows, picks), decides: one number from 0 up to 1 a pick. What was picked
    is a gap in the line of shares, and a place behind it moves on by as much.
    """
    ends = np.cumsum(shares)
    left = np.full(len(uniform), ends[-1])
    picked = np.empty((len(uniform), 0), np.int64)  # ascending in each row
    picks = np.empty(uniform.shape, np.int64)
    for column in range(uniform.shape[1]):
        place = np.minimum((uniform[:, column] * left).astype(np.int64), left - 1)
        for gap in picked.T:
            place += np.where(place >= ends[gap] - shares[gap], shares[gap], 0)
        pick = np.searchsorted(ends, place, side="right")
        picks[:, column] = pick
        left = left - shares[pick]
        picked = np.sort(np.column_stack([picked, pick]), axis=1)
    return picks


PREFIXES: dict[str, type[Prefix]] = {
    "shared": Shared,
    "pool": Pool,
}
