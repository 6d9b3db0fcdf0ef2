"""Compiled functions that are called without dispatch take the vectors they say they take."""

import numpy as np

from sim.jit import STRIDED, compiled, direct
from sim.sequence import IntArray


@compiled
def copy_into(vector: IntArray, target: IntArray) -> None:
    for i in range(len(vector)):
        target[i] = vector[i]


def test_a_direct_call_reads_vectors_of_any_layout() -> None:
    call = direct(copy_into, STRIDED, np.zeros(3, np.int64))
    numbers = np.arange(9)
    for vector in (numbers[:3], numbers[:3][::-1], numbers[::4], numbers[6:7]):
        target = np.full(3, -1)
        call(vector, target)
        assert target[: len(vector)].tolist() == vector.tolist()
