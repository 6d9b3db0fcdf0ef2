"""One contiguous range a sequence, as long as it may become, in the largest hole (worst fit)."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from sim.parts import (
    MAX_FINAL_TOKENS,
    NUM_COMPUTED,
    NUM_SLOTS,
    Admission,
    Allocator,
    ConservationError,
    IntArray,
    SequenceTable,
    check_terms,
    recount,
    resize_row,
)

Range = tuple[int, int]  # first slot, slots


class OneRange(Allocator):
    """A range for prompt and max_tokens, in the largest hole.

    granularity is what the length of a range is a multiple of, in slots.
    """

    kind: ClassVar[str] = "one_range"

    def __init__(self, granularity: int = 1) -> None:
        if granularity < 1:
            raise ValueError(f"granularity: must be at least 1 slot, got {granularity}")
        self.granularity = granularity

    def bind(self, num_slots: int, sequences: SequenceTable, max_model_len: int) -> None:
        super().bind(num_slots, sequences, max_model_len)
        self._holes: list[Range] = [(0, num_slots)]
        self._ranges: dict[int, Range] = {}  # by row

    def _needs(self, row: int) -> int:
        """The slots of a range: the last token is never written."""
        longest = self.sequences.rows.item(row, MAX_FINAL_TOKENS) - 1
        return -(-longest // self.granularity) * self.granularity

    def _largest(self) -> Range:
        return max(self._holes, key=lambda hole: hole[1], default=(0, 0))

    def can_allocate(self, row: int) -> Admission:
        if self._needs(row) > self.num_slots:
            return Admission.NEVER
        return Admission.OK if self._needs(row) <= self._largest()[1] else Admission.LATER

    def refusal(self, row: int) -> str:
        return f"needs a range of {self._needs(row)} slots, the pool has {self.num_slots}"

    def append(self, rows: IntArray, counts: IntArray) -> int:
        for i, (row, count) in enumerate(zip(rows.tolist(), counts.tolist(), strict=True)):
            if row not in self._ranges:
                if self.can_allocate(row) != Admission.OK:
                    return i
                self._take(row)
            written = self.sequences.rows.item(row, NUM_COMPUTED) + count
            resize_row(self.terms, self.sequences.rows, row, written, self._ranges[row][1])
        return len(rows)

    def _take(self, row: int) -> None:
        start, size = self._largest()
        needs = self._needs(row)
        self._holes.remove((start, size))
        if size > needs:
            self._holes.append((start + needs, size - needs))
        self._ranges[row] = start, needs

    def free(self, rows: IntArray) -> None:
        for row in rows.tolist():
            if row in self._ranges:
                self._holes.append(self._ranges.pop(row))
            resize_row(self.terms, self.sequences.rows, row, 0, 0)
        self._merge()

    def _merge(self) -> None:
        """Neighbouring holes become one."""
        merged: list[Range] = []
        for start, size in sorted(self._holes):
            if merged and sum(merged[-1]) == start:
                merged[-1] = merged[-1][0], merged[-1][1] + size
            else:
                merged.append((start, size))
        self._holes = merged

    def can_append(self, rows: IntArray, num_iterations: int) -> int:
        return num_iterations  # a range is long enough for all that its sequence may become

    def holes(self) -> IntArray:
        """(first slot, slots) of every hole, in order of place."""
        return np.array(sorted(self._holes), np.int64).reshape(-1, 2)

    def held_ranges(self, row: int) -> IntArray:
        held = [self._ranges[row]] if row in self._ranges else []
        return np.array(held, np.int64).reshape(-1, 2)

    def fragmented_for(self, row: int) -> bool:
        free = sum(size for _, size in self._holes)
        return self._largest()[1] < self._needs(row) <= free

    def check(self, rows: IntArray) -> None:
        places = sorted([*self._holes, *self._ranges.values()])
        ends = [start + size for start, size in places]
        if [0, *ends] != [*(start for start, _ in places), self.num_slots]:
            raise ConservationError(f"{self.kind}: ranges and holes do not tile the pool: {places}")
        held = {row for row in rows.tolist() if self.sequences.rows.item(row, NUM_SLOTS)}
        if held != set(self._ranges):
            raise ConservationError(f"{self.kind}: {held} hold slots, ranges are {self._ranges}")
        free = sum(size for _, size in self._holes)
        check_terms(self.terms, recount(self.sequences.rows[rows], 0, free), self.kind)
