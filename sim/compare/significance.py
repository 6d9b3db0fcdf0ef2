"""Tests that assume no distribution, and a correction for many of them.

sign_flip      pairs: were the two sides exchangeable, each difference would be as likely with
               the other sign. p is the share of all 2^n ways to flip signs whose mean is at least
               as far from 0 as the one seen (Fisher's randomisation test). Of n pairs p is at
               least 2 / 2^n: 0.06 of five, 0.002 of ten.
two_samples    no pairs: the values are dealt out to the sides anew, and Welch's t compared, which
               allows for unequal variances (Janssen 1997; Chung and Romano 2013).
holm           the smallest of m p-values times m, the next one times m - 1, and so on (Holm 1979):
               the chance that any of the differences shown is found by accident stays below 5 %,
               however they depend on each other.

All ways are tried where there are at most MAX_EXACT, else NUM_DRAWS of them are drawn, the same
every time, and the one seen is counted among them (Phipson and Smyth 2010).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

MAX_EXACT = 1 << 14
NUM_DRAWS = 20_000
ALPHA = 0.05
SAME, ROUNDING = 1 - 1e-9, 1e-12  # statistics this near to each other, or to 0, are equal

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]


@dataclass(frozen=True)
class Tested:
    """p, and the smallest one that these values could have given in any order."""

    p: float
    smallest: float


def sign_flip(differences: Floats) -> Tested:
    """Whether the mean of paired differences is 0. differences has at least one, all finite."""
    farthest = float(np.abs(differences).max())
    scaled = differences / farthest if farthest > 0 else differences
    return _tested(np.abs(_signs(len(scaled)) @ scaled))


def two_samples(first: Floats, second: Floats) -> Tested:
    """Whether the means of two independent samples, of two values or more each, are equal."""
    values = np.concatenate([first, second])
    centered = values - values.mean()
    spread = float(np.abs(centered).max())
    scaled = centered / spread if spread > 0 else centered
    return _tested(_welch(scaled, _deals(len(first), len(second))))


def _tested(statistics: Floats) -> Tested:
    """From the statistics of all ways, of which the first is the one that was seen."""
    as_far, farthest = (
        int((statistics >= least * SAME - ROUNDING).sum())
        for least in (statistics[0], statistics.max())
    )
    return Tested(as_far / len(statistics), farthest / len(statistics))


@lru_cache(maxsize=16)
def _signs(num_pairs: int) -> Floats:
    """Ways to flip signs, a row each; the first flips none."""
    if 1 << num_pairs <= MAX_EXACT:
        bits = np.arange(1 << num_pairs)[:, None] >> np.arange(num_pairs) & 1
    else:
        bits = np.random.default_rng(0).integers(0, 2, (NUM_DRAWS, num_pairs))
        bits[0] = 0
    return (1 - 2 * bits).astype(np.float64)


@lru_cache(maxsize=16)
def _deals(num_first: int, num_second: int) -> Bools:
    """Ways to deal values out: which go to the first side, a row each. First what was seen."""
    total = num_first + num_second
    if math.comb(total, num_first) <= MAX_EXACT:
        chosen = np.array(list(itertools.combinations(range(total), num_first)))
    else:
        order = np.argsort(np.random.default_rng(0).random((NUM_DRAWS, total)), axis=1)
        chosen = order[:, :num_first]
        chosen[0] = np.arange(num_first)
    is_first = np.zeros((len(chosen), total), np.bool_)
    np.put_along_axis(is_first, chosen, True, axis=1)
    return is_first


def _welch(values: Floats, is_first: Bools) -> Floats:
    """|t| of each way to deal out values of at most 1; infinite where both sides are constant."""
    difference = np.zeros(len(is_first))
    squared_error = np.zeros(len(is_first))
    for sign, own in ((1, is_first), (-1, ~is_first)):
        count = int(own[0].sum())
        mean = own @ values / count
        deviations = np.where(own, values - mean[:, None], 0.0)
        difference += sign * mean
        squared_error += (deviations**2).sum(axis=1) / (count - 1) / count
    difference = np.where(np.abs(difference) < ROUNDING, 0.0, np.abs(difference))
    error = np.sqrt(np.where(squared_error < ROUNDING**2, 0.0, squared_error))
    constant = np.where(difference > 0, np.inf, 0.0)
    return np.divide(difference, error, out=constant, where=error > 0)


def holm(values: Sequence[float]) -> list[float]:
    """The p-values corrected for their number, in their order."""
    order = sorted(range(len(values)), key=lambda place: values[place])
    corrected = [0.0] * len(values)
    largest = 0.0
    for rank, place in enumerate(order):
        largest = max(largest, min(1.0, (len(values) - rank) * values[place]))
        corrected[place] = largest
    return corrected


def num_pairs_needed(num_tests: int) -> int:
    """How many pairs can show one difference among so many tests."""
    return 1 + math.ceil(math.log2(max(1, num_tests) / ALPHA))
