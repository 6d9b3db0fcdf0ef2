"""Which beams a beam search keeps: a model, as no logits are simulated.

Each step every beam has candidates for its next token, and the best of all candidates are the
next beams. A candidate's score is its beam's plus its logarithm of probability, as in any beam
search. What is modelled is the next-token distribution: probabilities broken off a stick of
length 1, each a fraction Beta(1, concentration) of what is left (Sethuraman 1994, the weights of
a Dirichlet process). Its mean entropy is digamma(concentration + 1) - digamma(1): 1 nat, a
perplexity of e, for concentration 1. Near 0 one token has almost all of the probability, so each
beam continues by itself; the larger it is, the more often one beam has several children and
others die. Distributions of different steps and beams are independent, and no beam ends before
the request does: all are output_tokens long.

The default of 0.3, 0.40 nat, is a fit: with blocks of 16 tokens and copy-on-write, widths 2, 4
and 6 then need 37, 52 and 57 % fewer blocks than without sharing for lengths of Alpaca, where the
PagedAttention paper (section 6.3) prints 37.6 to 55.2 %. For lengths of ShareGPT it gives 48, 71
and 78 % where the paper prints 44.3 to 66.3 %.

A recording may stand in a model's place: Trace.beam_parents, which recorded_parents checks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from workloads import checks
from workloads.streams import stream
from workloads.trace import FloatColumn, IntColumn

MAX_WIDTH = 10_000


@dataclass(frozen=True)
class BeamModel:
    """The searches of one run: each request's depends on the seed and its number alone."""

    seed: int = 0
    concentration: float = 0.3

    def __post_init__(self) -> None:
        checks.whole("seed", self.seed, 0)
        checks.number("concentration", self.concentration, 1e-3, 1e3)

    def search(self, request: int, width: int) -> BeamSearch:
        """The search of this request, from its first step on."""
        checks.whole("width", width, 1, MAX_WIDTH)
        return BeamSearch(width, self.concentration, stream(self.seed, "beams", request))


@dataclass
class BeamSearch:
    """One search; it remembers its steps, so that a request that starts over repeats them."""

    width: int
    concentration: float
    rng: np.random.Generator
    _steps: list[list[tuple[int, float]]] = field(default_factory=list)
    _scores: FloatColumn = field(default_factory=lambda: np.zeros(1))

    def parents(self, step: int) -> tuple[int, ...]:
        """The beam before that each beam of a step continues, the best beam first.

        Step 0 samples the first tokens, of width beams from the one prompt, whose number is 0.
        Beams that are no parent die in this step; one that stands more than once forks.
        """
        return tuple(parent for parent, _ in self.candidates(step)[: self.width])

    def candidates(self, step: int) -> list[tuple[int, float]]:
        """(beam before, score) of the best 2 * width candidates of a step, the best first."""
        while len(self._steps) <= step:
            self._advance()
        return self._steps[step]

    def _advance(self) -> None:
        # no more than width children of one beam can survive; twice as many sticks hold them
        sticks = log_sticks(self.rng, len(self._scores), 2 * self.width, self.concentration)
        candidates = self._scores[:, np.newaxis] + sticks
        best = np.argsort(-candidates, axis=None, kind="stable")[: 2 * self.width]
        scores = candidates.ravel()[best]
        scores -= scores[0]  # only differences matter
        self._scores = scores[: self.width]
        parents = (best // (2 * self.width)).tolist()
        self._steps.append(list(zip(parents, scores.tolist(), strict=True)))


def log_sticks(
    rng: np.random.Generator, rows: int, count: int, concentration: float
) -> FloatColumn:
    """Logarithms of the first count probabilities of rows distributions: shape (rows, count)."""
    # 1 - Beta(1, c) is a power of a uniform number: its logarithm is exponential
    log_rest = -rng.standard_exponential((rows, count)) / concentration
    log_left = np.cumsum(log_rest, axis=1) - log_rest
    tiny = np.finfo(np.float64).tiny
    sticks: FloatColumn = log_left + np.log(np.maximum(-np.expm1(log_rest), tiny))
    return sticks


def recorded_parents(given: object, width: int, output_tokens: int) -> IntColumn:
    """A search that somebody has written down: int64, shape (output_tokens - 1, width).

    given[i][k] is the beam before that beam k continues when it gets token i + 1 of the output;
    before the first token there is beam 0 alone. The last token ends all beams, so it has no list.
    Raises ValueError: a sentence about what is wrong.
    """
    if isinstance(given, str | bytes) or not isinstance(given, Sequence):
        raise ValueError(f"must be a list with one list of beams for each token, got {given!r}")
    if len(given) != output_tokens - 1:
        raise ValueError(
            f"must be {output_tokens - 1} lists, one for each output token but the last, "
            f"got {len(given)}"
        )
    for step, beams in enumerate(given):
        highest = width - 1 if step else 0
        is_list = isinstance(beams, Sequence) and not isinstance(beams, str | bytes)
        if not is_list or len(beams) != width or not all(_is_beam(b, highest) for b in beams):
            numbers = f"from 0 to {highest}" if highest else "that are 0, the prompt"
            raise ValueError(f"list {step} must be {width} beams {numbers}, got {beams!r}")
    return np.array(given, np.int64).reshape(-1, width)


def _is_beam(value: object, highest: int) -> bool:
    return type(value) is int and 0 <= value <= highest
