"""The highest rate at which something holds, on a ladder of rates.

A ladder's rungs are a constant factor apart, so that every search on it asks for the same rates
and a rate asked for twice is simulated once. From the first rung the search doubles the rate until
the answer is no (or halves it until yes), then halves the bracket down to one rung. It assumes
that what holds at a rate holds at all lower ones; where it does not, the bracket is still one
between a yes and a no that were both seen. Of two conditions one of which holds wherever the other
does, the stricter one is never found to hold at a higher rate: both searches ask for the same rungs
until the first answer that differs.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

MAX_DOUBLINGS = 12  # up and down from the first rate


@dataclass(frozen=True)
class Ladder:
    """Rungs of rates: rung 0 is start, in requests per second; rungs_per_doubling is 2^n."""

    start: float
    rungs_per_doubling: int

    def rate(self, rung: int) -> float:
        """Requests per second of a rung, in six digits."""
        return float(f"{self.start * 2 ** (rung / self.rungs_per_doubling):.6g}")

    @property
    def highest(self) -> int:
        """The last rung upwards; its negative is the last one downwards."""
        return MAX_DOUBLINGS * self.rungs_per_doubling


def ladder(start: float, tolerance: float) -> Ladder:
    """Rungs so close that one is at most (1 + tolerance) times the one below it."""
    rungs = math.log(2) / math.log1p(tolerance)
    return Ladder(start, 1 << max(0, math.ceil(math.log2(rungs))))


@dataclass(frozen=True)
class Bracket:
    """The highest rung on which something was seen to hold, and the next, on which it was not.

    holds is None if no rate was low enough, fails is None if none was too high.
    """

    holds: int | None
    fails: int | None


def highest_rung(ladder: Ladder, holds: Callable[[int], bool], highest: int) -> Bracket:
    """Search the rungs up to highest, which is at least 0."""
    step = ladder.rungs_per_doubling
    low = high = 0
    if holds(0):
        high = step
        while high <= highest and holds(high):
            low, high = high, high + step
        if high > highest:
            return Bracket(low, None)
    else:
        low = -step
        while low >= -ladder.highest and not holds(low):
            low, high = low - step, low
        if low < -ladder.highest:
            return Bracket(None, high)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if holds(middle) else (low, middle)
    return Bracket(low, high)
