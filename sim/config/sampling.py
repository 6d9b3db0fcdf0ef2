"""Points of a sweep that are drawn: independently, or as a Latin hypercube.

A Latin hypercube (McKay, Beckman and Conover 1979) cuts the range of each key into as many equal
parts as there are points and takes one value out of each part, in an order of chance: few points
cover every key evenly. numpy is enough for that; the optimised designs of scipy.stats.qmc are not
used.

The values of a key depend on the seed and on its own name alone: another key beside it changes
nothing.
"""

from __future__ import annotations

import hashlib
import math
from typing import Annotated, Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from sim.config.plugins import Report, Strict, validate
from sim.config.yaml_nodes import KeyPath

RANDOM, LATIN_HYPERCUBE = "random", "latin_hypercube"
SAMPLERS = (RANDOM, LATIN_HYPERCUBE)
MAX_SAMPLES = 100_000
DIGITS = 6  # significant digits of a drawn number: names and tables stay readable


class SampleKeys(Strict):
    """Points that are drawn.

    num_points is how many.
    seed makes them the same every time.
    keys maps what is swept to a list of values that are equally likely, or to {min, max}.
    """

    num_points: Annotated[int, Field(ge=1, le=MAX_SAMPLES)]
    seed: Annotated[int, Field(ge=0, le=(1 << 63) - 1)] = 0
    keys: Any


class RangeKeys(Strict):
    """A range that numbers are drawn from.

    min and max are its ends; drawn numbers have six significant digits.
    scale says whether equal steps, or equal factors (log), are equally likely.
    whole draws whole numbers, min and max among them.
    """

    min: float
    max: float
    scale: Literal["linear", "log"] = "linear"
    whole: bool = False


def draw(
    what: tuple[str, str], sample: SampleKeys, spec: Any, path: KeyPath, report: Report
) -> list[Any] | None:
    """The values of a key, one a point; None if spec is wrong, which is reported at path.

    what is the sampler and the key.
    """
    form, key = what
    if isinstance(spec, list):
        if not spec:
            report(path, "must be a list of at least one value, or a range like {min: 1, max: 8}")
            return None
        shares = _shares(form, sample, key)
        return [spec[int(share * len(spec))] for share in shares]
    if not isinstance(spec, dict):
        report(path, "must be a list of values, or a range like {min: 1, max: 8}")
        return None
    keys = validate(RangeKeys, spec, path, report)
    if not isinstance(keys, RangeKeys) or not _is_range(keys, path, report):
        return None
    return [_number(keys, share) for share in _shares(form, sample, key)]


def _is_range(keys: RangeKeys, path: KeyPath, report: Report) -> bool:
    if not keys.min < keys.max:
        report((*path, "max"), f"must be above min {keys.min:g}, got {keys.max:g}")
    elif keys.scale == "log" and keys.min <= 0:
        report((*path, "min"), f"must be above 0 on a log scale, got {keys.min:g}")
    elif keys.whole and not (keys.min.is_integer() and keys.max.is_integer()):
        report((*path, "whole"), "needs a min and a max that are whole")
    else:
        return True
    return False


def _shares(form: str, sample: SampleKeys, key: str) -> NDArray[np.float64]:
    """A number in [0, 1) for each point."""
    name = int.from_bytes(hashlib.blake2b(key.encode(), digest_size=8).digest(), "little")
    generator = np.random.default_rng([sample.seed, name])
    shares = generator.random(sample.num_points)
    if form == LATIN_HYPERCUBE:
        shares = (generator.permutation(sample.num_points) + shares) / sample.num_points
    return np.minimum(shares, np.nextafter(1.0, 0.0))


def _number(keys: RangeKeys, share: float) -> float | int:
    """The value at a share of the range; whole numbers are as wide as the way to the next one."""
    high = keys.max + 1 if keys.whole else keys.max
    if keys.scale == "log":
        value = keys.min * math.exp(share * math.log(high / keys.min))
    else:
        value = keys.min + share * (high - keys.min)
    if keys.whole:
        return int(min(max(math.floor(value), keys.min), keys.max))
    return min(max(float(f"{value:.{DIGITS}g}"), keys.min), keys.max)
