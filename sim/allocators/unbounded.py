"""Unlimited KV memory: the ceiling that no real allocator passes.

Models no system. Every sequence holds exactly the slots it has written and none is ever refused,
so queueing, preemption and waste are zero by construction; what remains is the workload and the
cost model. When it holds more than the pool, its total grows with it: fractions are of that.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from sim.allocators.base import Admission, Allocator, BoolArray
from sim.allocators.terms import FREE, INTERNAL, TOKEN_STATES, KVUsage, check_terms
from sim.jit import compiled
from sim.sequence import NUM_COMPUTED, NUM_SLOTS, IntArray


class Unbounded(Allocator):
    """Memory without a limit."""

    kind: ClassVar[str] = "unbounded"

    def can_allocate(self, row: int) -> Admission:
        return Admission.OK

    def never_fits(self, requests: IntArray) -> BoolArray:
        return np.zeros(len(requests), np.bool_)

    def append(self, rows: IntArray, counts: IntArray) -> int:
        write(self.recorded, self.sequences.rows, rows, counts, self.num_slots)
        return len(rows)

    def can_append(self, rows: IntArray, num_iterations: int) -> int:
        return num_iterations

    def append_ahead(self, rows: IntArray, num_iterations: int, log: IntArray) -> None:
        write_ahead(self.recorded, self.sequences.rows, rows, num_iterations, log, self.num_slots)

    def free(self, rows: IntArray) -> None:
        write(self.recorded, self.sequences.rows, rows, None, self.num_slots)

    def refusal(self, row: int) -> str:
        raise NotImplementedError("unbounded memory refuses nothing")

    def check(self, rows: IntArray) -> None:
        written, held = self.sequences.rows[rows][:, [NUM_COMPUTED, NUM_SLOTS]].sum(axis=0).tolist()
        free = max(0, self.num_slots - held)
        check_terms(self.terms, KVUsage(written, 0, held - written, 0, 0, free), self.kind)


@compiled
def write(
    terms: IntArray, sequences: IntArray, rows: IntArray, counts: IntArray | None, num_slots: int
) -> None:
    """Write counts[i] tokens for rows[i]; without counts, forget all that the rows wrote."""
    for i in range(len(rows)):
        row = rows[i]
        if counts is None:
            # what a sequence holds and has not written is a retired one's
            terms[INTERNAL] -= sequences[row, NUM_SLOTS] - sequences[row, NUM_COMPUTED]
            change = -sequences[row, NUM_COMPUTED]
        else:
            change = counts[i]
        terms[TOKEN_STATES] += change
        sequences[row, NUM_COMPUTED] += change
        sequences[row, NUM_SLOTS] = sequences[row, NUM_COMPUTED]
    terms[FREE] = max(0, num_slots - terms[TOKEN_STATES] - terms[INTERNAL])


@compiled
def write_ahead(
    terms: IntArray,
    sequences: IntArray,
    rows: IntArray,
    num_iterations: int,
    log: IntArray,
    num_slots: int,
) -> None:
    """num_iterations iterations of one token a row."""
    for i in range(len(rows)):
        sequences[rows[i], NUM_COMPUTED] += num_iterations
        sequences[rows[i], NUM_SLOTS] = sequences[rows[i], NUM_COMPUTED]
    for i in range(num_iterations):
        terms[TOKEN_STATES] += len(rows)
        terms[FREE] = max(0, num_slots - terms[TOKEN_STATES] - terms[INTERNAL])
        for j in range(len(terms)):
            log[i, j] = terms[j]
