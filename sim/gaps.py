"""A histogram of bounded size: exact sum and count, cells 0.1 % wide.

Of gaps between tokens in ns, and of other whole numbers that may be large.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sim.jit import compiled

IntArray = NDArray[np.int64]

# cells: the exact sum (whole seconds, ns beyond), the count, and then the histogram's own
GAP_SUM_S, GAP_SUM_NS, GAP_COUNT, GAP_FIRST = range(4)
GAP_BITS = 10
_SECOND = 1_000_000_000


def new_gaps() -> IntArray:
    """An empty histogram of gaps in ns. A cell is 1 ns wide below 2,048 ns, then 0.1 %."""
    return np.zeros(GAP_FIRST + 54 * (1 << GAP_BITS), np.int64)


@compiled
def count_gaps(gaps: IntArray, gap_ns: int, count: int) -> None:
    """Count `count` gaps of gap_ns."""
    shift = 0
    while (gap_ns >> shift) >= 2 << GAP_BITS:
        shift += 1
    gaps[GAP_FIRST + (shift << GAP_BITS) + (gap_ns >> shift)] += count
    gaps[GAP_COUNT] += count
    nanoseconds = gaps[GAP_SUM_NS] + (gap_ns % _SECOND) * count
    gaps[GAP_SUM_S] += (gap_ns // _SECOND) * count + nanoseconds // _SECOND
    gaps[GAP_SUM_NS] = nanoseconds % _SECOND
