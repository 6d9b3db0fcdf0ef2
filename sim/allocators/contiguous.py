"""Contiguous KV memory: each sequence reserves one range of slots when it is admitted.

Models the systems before PagedAttention as its paper's evaluation does (SOSP 2023 §6.1: Orca with
reservation `max`, `pow2` and `oracle`, FasterTransformer with `max`), which had to know the
longest a sequence could become. `max_tokens` reserves what the client allowed. Differs on
purpose: placement is first fit over all holes of the arena; a buddy allocator, which the paper
assumes for Orca, rounds the reservation up and is a placement of its own.
"""

from __future__ import annotations

from typing import ClassVar, Literal

import numpy as np

from sim.allocators import arena
from sim.allocators.base import (
    ADMISSIONS,
    EXTERNAL,
    FREE,
    NUM_TERMS,
    Admission,
    Allocator,
    BoolArray,
    ConservationError,
    check_terms,
    recount,
)
from sim.jit import STRIDED, direct
from sim.sequence import NUM_SLOTS, IntArray, SequenceTable


class Contiguous(Allocator):
    """One reservation a sequence, rounded up to granularity slots.

    reservation is how long it is: `max` (max_model_len), `pow2` (prompt + next power of two of
    the output), `oracle` (prompt + output), `max_tokens` (prompt + max_tokens).
    """

    kind: ClassVar[str] = "contiguous"

    def __init__(
        self,
        reservation: Literal["max", "pow2", "oracle", "max_tokens"] = "max",
        placement: Literal["first_fit"] = "first_fit",
        granularity: int = 1,
    ) -> None:
        if reservation not in arena.RESERVATIONS:
            raise ValueError(
                f"reservation: unknown value {reservation!r}; "
                f"accepted: {', '.join(arena.RESERVATIONS)}"
            )
        if placement != "first_fit":
            raise ValueError(f"placement: unknown value {placement!r}; accepted: first_fit")
        if granularity < 1:
            raise ValueError(f"granularity: must be at least 1 slot, got {granularity}")
        self.reservation = reservation
        self.placement = placement
        self.granularity = granularity

    def bind(self, num_slots: int, sequences: SequenceTable, max_model_len: int) -> None:
        super().bind(num_slots, sequences, max_model_len)
        size = num_slots // self.granularity * self.granularity
        if size < 1:
            raise ValueError(
                f"granularity: {self.granularity} slots are more than the pool of {num_slots}"
            )
        self._arena: IntArray = np.zeros(arena.NUM_CELLS, np.int64)
        self._arena[arena.SIZE] = size
        self._arena[arena.NUM_HOLES] = 1
        self._arena[arena.GRANULARITY] = self.granularity
        self._arena[arena.RESERVATION] = arena.RESERVATIONS[self.reservation]
        self._arena[arena.MAX_MODEL_LEN] = max_model_len
        self._arena[EXTERNAL] = num_slots - size
        self._arena[FREE] = size
        self.terms = self._arena[:NUM_TERMS]
        self._holes: IntArray = np.zeros((1, 2), np.int64)
        self._holes[0] = (0, size)
        self._starts: IntArray = np.zeros(0, np.int64)
        self._resize(len(sequences.rows))
        sequences.when_grown.append(self._resize)
        arrays = self._arena, sequences.rows, self._holes, self._starts
        self._admission = direct(arena.admission, self._arena, self._holes, sequences.rows, 0)
        self._append = direct(arena.append, *arrays, STRIDED, STRIDED)
        self._append_ahead = direct(
            arena.append_ahead, *arrays[:2], STRIDED, 1, np.zeros((1, 1), np.int64)
        )
        self._can_append = direct(arena.can_append, sequences.rows, STRIDED, 1)
        self._free = direct(arena.free, *arrays, STRIDED)

    def _resize(self, capacity: int) -> None:
        """Room for a start per row, and for a hole before, between and after all of them."""
        self._rows = self.sequences.rows
        starts = np.zeros(capacity, np.int64)
        starts[: len(self._starts)] = self._starts
        self._starts = starts
        holes = np.zeros((capacity + 2, 2), np.int64)
        holes[: len(self._holes)] = self._holes
        self._holes = holes

    def can_allocate(self, row: int) -> Admission:
        return ADMISSIONS[self._admission(self._arena, self._holes, self._rows, row)]

    def never_fits(self, requests: IntArray) -> BoolArray:
        # requests and sequences share the columns that a reservation depends on
        answer = np.zeros(len(requests), np.bool_)
        arena.exceed_arena(self._arena, requests, answer)
        return answer

    def append(self, rows: IntArray, counts: IntArray) -> int:
        return self._append(self._arena, self._rows, self._holes, self._starts, rows, counts)

    def can_append(self, rows: IntArray, num_iterations: int) -> int:
        return self._can_append(self._rows, rows, num_iterations)

    def append_ahead(self, rows: IntArray, num_iterations: int, log: IntArray) -> None:
        self._append_ahead(self._arena, self._rows, rows, num_iterations, log)

    def free(self, rows: IntArray) -> None:
        self._free(self._arena, self._rows, self._holes, self._starts, rows)

    def fragmented_for(self, row: int) -> bool:
        return arena.is_fragmented(self._arena, self._holes, self._rows, row)

    def held_ranges(self, row: int) -> IntArray:
        num_slots = int(self._rows[row, NUM_SLOTS])
        if num_slots == 0:
            return np.empty((0, 2), np.int64)
        return np.array([[self._starts[row], num_slots]], np.int64)

    def holes(self) -> IntArray:
        """(start, size) of the holes in order of address."""
        return self._holes[: self._arena[arena.NUM_HOLES]].copy()

    def refusal(self, row: int) -> str:
        size = arena.reservation_slots(self._arena, self._rows, row)
        return f"needs a reservation of {size} slots, the pool has {self._arena[arena.SIZE]}"

    def check(self, rows: IntArray) -> None:
        ranges = [self.holes(), *(self.held_ranges(int(row)) for row in rows)]
        pieces = np.concatenate(ranges)
        pieces = pieces[np.argsort(pieces[:, 0])]
        ends = pieces[:, 0] + pieces[:, 1]
        size = int(self._arena[arena.SIZE])
        if pieces[0, 0] != 0 or ends[-1] != size or (ends[:-1] != pieces[1:, 0]).any():
            raise ConservationError(f"{self.kind}: ranges overlap or leak: {pieces.tolist()}")
        holes = self.holes()
        if (holes[:-1].sum(axis=1) == holes[1:, 0]).any():
            raise ConservationError(f"{self.kind}: holes touch: {holes.tolist()}")
        expected = recount(self._rows[rows], self.num_slots - size, int(holes[:, 1].sum()))
        check_terms(self.terms, expected, self.kind)
