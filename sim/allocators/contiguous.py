"""Contiguous KV memory: each sequence reserves one range of slots when it is admitted.

Models the systems before PagedAttention as its paper's evaluation does (SOSP 2023 §6.1: Orca with
reservation `max`, `pow2` and `oracle`, FasterTransformer with `max`), which had to know the
longest a sequence could become. `max_tokens` reserves what the client allowed.

The paper assumes a buddy system for Orca and says nothing more. Two things are left open, and
both are parameters: what blocks the pool is cut into at first (`arena`), and the smallest block.
With `greedy` they are the powers of two of the pool's size, largest first: 15,728 slots are 8,192
+ 4,096 + 2,048 + 1,024 + 256 + 64 + 32 + 16. With `max_len_chunks` they all have the size of the
longest sequence, rounded up to a power of two: seven of 2,048, and 1,392 slots are lost. Of equal
free blocks the lowest is taken; real ones often take the last freed.
"""

from __future__ import annotations

from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from sim.allocators import arena as ops
from sim.allocators import holes as hole_ops
from sim.allocators.base import ADMISSIONS, Admission, BoolArray
from sim.allocators.copied_forks import CopiedForks
from sim.allocators.terms import (
    EXTERNAL,
    FREE,
    NUM_RECORDED,
    ConservationError,
    check_terms,
    recount,
)
from sim.jit import STRIDED, direct
from sim.sequence import NUM_SLOTS, IntArray, SequenceTable


class Contiguous(CopiedForks):
    """One reservation a sequence, rounded up to granularity slots.

    reservation is how long it is: `max` (max_model_len), `pow2` (prompt + next power of two of
    the output), `oracle` (prompt + output), `max_tokens` (prompt + max_tokens). placement is
    where it goes: `buddy`, `first_fit`, `best_fit` or `next_fit` (see sim.allocators.holes).
    arena (`greedy` or `max_len_chunks`) and min_block are the buddy system's.

    compaction slides reservations together, from the bottom of the pool up, when the free slots
    would do but no hole does. The tokens that are copied are counted, and take the time that the
    cost model says.
    """

    kind: ClassVar[str] = "contiguous"

    def __init__(
        self,
        reservation: Literal["max", "pow2", "oracle", "max_tokens"] = "max",
        placement: Literal["buddy", "first_fit", "best_fit", "next_fit"] = "first_fit",
        granularity: int = 1,
        arena: Literal["greedy", "max_len_chunks"] = "greedy",
        min_block: int = 16,
        compaction: bool = False,
    ) -> None:
        _require_known("reservation", reservation, list(ops.RESERVATIONS))
        _require_known("placement", placement, list(hole_ops.PLACEMENTS))
        _require_known("arena", arena, ["greedy", "max_len_chunks"])
        if granularity < 1:
            raise ValueError(f"granularity: must be at least 1 slot, got {granularity}")
        if min_block < 1 or min_block & (min_block - 1):
            raise ValueError(f"min_block: must be a power of two of slots, got {min_block}")
        if placement == "buddy" and compaction:
            raise ValueError(
                "compaction: a buddy system's blocks cannot slide; accepted with first_fit, "
                "best_fit and next_fit"
            )
        if placement != "buddy" and arena != "greedy":
            raise ValueError(f"arena: only placement buddy has one, got {arena} with {placement}")
        self.reservation = reservation
        self.placement = placement
        self.granularity = granularity
        self.arena = arena
        self.min_block = min_block
        self.compaction = compaction
        self.copies_kv = compaction

    def bind(self, num_slots: int, sequences: SequenceTable, max_model_len: int) -> None:
        super().bind(num_slots, sequences, max_model_len)
        blocks = self._first_holes(num_slots, max_model_len)
        size = sum(blocks)
        state: IntArray = np.zeros(ops.NUM_CELLS, np.int64)
        state[hole_ops.SIZE] = size
        state[hole_ops.LARGEST] = max(blocks)
        state[hole_ops.PLACEMENT] = hole_ops.PLACEMENTS[self.placement]
        state[hole_ops.MIN_BLOCK] = self.min_block
        state[hole_ops.NUM_HOLES] = len(blocks)
        state[ops.GRANULARITY] = self.granularity
        state[ops.RESERVATION] = ops.RESERVATIONS[self.reservation]
        state[ops.MAX_MODEL_LEN] = max_model_len
        state[ops.COMPACTS] = self.compaction
        state[EXTERNAL] = num_slots - size
        state[FREE] = size
        self._arena = state
        self.recorded = state[:NUM_RECORDED]
        self._holes: IntArray = np.zeros((len(blocks), 2), np.int64)
        self._holes[:, 1] = blocks
        self._holes[1:, 0] = np.cumsum(blocks)[:-1]
        self._num_first_holes = len(blocks)
        self._starts: IntArray = np.zeros(0, np.int64)
        self._resize(len(sequences.rows))
        sequences.when_grown.append(self._resize)
        self._compile(sequences.rows)

    def _first_holes(self, num_slots: int, max_model_len: int) -> list[int]:
        """Sizes of the holes of an empty pool, in order of address. Raises ValueError."""
        if self.placement != "buddy":
            size = num_slots // self.granularity * self.granularity
            if size < 1:
                raise ValueError(
                    f"granularity: {self.granularity} slots are more than the pool of {num_slots}"
                )
            return [size]
        if self.arena == "max_len_chunks":
            chunk = max(self.min_block, 1 << (max_model_len - 1).bit_length())
            if chunk > num_slots:
                raise ValueError(
                    f"arena: one chunk of {chunk} slots is more than the pool of {num_slots}"
                )
            return [chunk] * (num_slots // chunk)
        if num_slots < self.min_block:
            raise ValueError(
                f"min_block: {self.min_block} slots are more than the pool of {num_slots}"
            )
        powers = [1 << bit for bit in range(num_slots.bit_length() - 1, -1, -1)]
        return [power for power in powers if power & num_slots and power >= self.min_block]

    def _compile(self, rows: IntArray) -> None:
        arrays = self._arena, rows, self._holes, self._starts
        self._admission = direct(ops.admission, self._arena, self._holes, rows, 0)
        self._append = direct(ops.append, *arrays, STRIDED, STRIDED)
        self._append_ahead = direct(
            ops.append_ahead, *arrays[:2], STRIDED, 1, np.zeros((1, 1), np.int64)
        )
        self._can_append = direct(ops.can_append, rows, STRIDED, 1)
        self._free = direct(ops.free, *arrays, STRIDED)

    def _resize(self, capacity: int) -> None:
        """Room for a start per row, and for all holes that so many ranges can leave.

        Beside those of the empty pool, one range leaves one hole behind it; in a buddy system
        one for every halving. One more lives for an instant while a range is given back.
        """
        self._rows = self.sequences.rows
        starts = np.zeros(capacity, np.int64)
        starts[: len(self._starts)] = self._starts
        self._starts = starts
        halvings = 1
        if self.placement == "buddy":
            halvings = int(self._arena[hole_ops.LARGEST] // self.min_block).bit_length()
        holes = np.zeros((capacity * halvings + self._num_first_holes + 1, 2), np.int64)
        holes[: len(self._holes)] = self._holes
        self._holes = holes

    def can_allocate(self, row: int) -> Admission:
        return ADMISSIONS[self._admission(self._arena, self._holes, self._rows, row)]

    def never_fits(self, requests: IntArray) -> BoolArray:
        # requests and sequences share the columns that a reservation depends on
        answer = np.zeros(len(requests), np.bool_)
        ops.exceed_arena(self._arena, requests, answer)
        return answer

    def append(self, rows: IntArray, counts: IntArray) -> int:
        return self._append(self._arena, self._rows, self._holes, self._starts, rows, counts)

    def can_append(self, rows: IntArray, num_iterations: int) -> int:
        return self._can_append(self._rows, rows, num_iterations)

    def append_ahead(self, rows: IntArray, num_iterations: int, log: IntArray) -> None:
        self._append_ahead(self._arena, self._rows, rows, num_iterations, log)

    def free(self, rows: IntArray) -> None:
        self._free(self._arena, self._rows, self._holes, self._starts, rows)

    def _layout(self) -> tuple[NDArray[Any], ...]:
        return self._arena, self._holes, self._starts

    def _give_place(self, row: int, heir: int) -> None:
        self._starts[heir] = self._starts[row]

    def copied_tokens(self) -> int:
        return self._arena.item(ops.NUM_COPIED) + self.num_forked_tokens

    def counters(self) -> dict[str, int]:
        return {
            "num_placements": self._arena.item(hole_ops.NUM_PLACED),
            "num_holes_inspected": self._arena.item(hole_ops.NUM_INSPECTED),
            "num_compactions": self._arena.item(ops.NUM_COMPACTIONS),
            "num_copied_tokens": self.copied_tokens(),
        }

    def fragmented_for(self, row: int) -> bool:
        return ops.is_fragmented(self._arena, self._holes, self._rows, row)

    def held_ranges(self, row: int) -> IntArray:
        num_slots = int(self._rows[row, NUM_SLOTS])
        if num_slots == 0:
            return np.empty((0, 2), np.int64)
        return np.array([[self._starts[row], num_slots]], np.int64)

    def holes(self) -> IntArray:
        """(start, size) of the holes in order of address."""
        return self._holes[: self._arena[hole_ops.NUM_HOLES]].copy()

    def free_ranges(self) -> IntArray:
        return self.holes()

    def refusal(self, row: int) -> str:
        size = ops.reservation_slots(self._arena, self._rows, row)
        piece = hole_ops.piece_slots(self._arena, size)
        block = f", a block of {piece}" if piece > size else ""
        largest = self._arena[hole_ops.LARGEST]
        has = "the largest block has" if self.placement == "buddy" else "the pool has"
        return f"needs a reservation of {size} slots{block}, {has} {largest}"

    def check(self, rows: IntArray) -> None:
        held = [self.held_ranges(int(row)) for row in rows]
        pieces = np.concatenate([self.holes(), *(self._pieces(ranges) for ranges in held)])
        pieces = pieces[np.argsort(pieces[:, 0])]
        ends = pieces[:, 0] + pieces[:, 1]
        size = int(self._arena[hole_ops.SIZE])
        if pieces[0, 0] != 0 or ends[-1] != size or (ends[:-1] != pieces[1:, 0]).any():
            raise ConservationError(f"{self.kind}: ranges overlap or leak: {pieces.tolist()}")
        self._check_holes()
        rounding = size - int(self.holes()[:, 1].sum()) - sum(int(r[:, 1].sum()) for r in held)
        external = self.num_slots - size + rounding
        expected = recount(self._rows[rows], external, int(self.holes()[:, 1].sum()))
        check_terms(self.terms, expected, self.kind)

    def _pieces(self, ranges: IntArray) -> IntArray:
        """What ranges take out of the holes."""
        pieces = ranges.copy()
        for piece in pieces:
            piece[1] = hole_ops.piece_slots(self._arena, int(piece[1]))
        return pieces

    def _check_holes(self) -> None:
        """No two holes that should have been merged; in a buddy system each is a block."""
        holes = self.holes()
        touch = holes[:-1].sum(axis=1) == holes[1:, 0]
        if self.placement == "buddy":
            starts, sizes = holes.T
            is_block = (sizes & (sizes - 1) == 0) & (starts % sizes == 0)
            if not is_block.all() or (sizes < self.min_block).any():
                raise ConservationError(f"{self.kind}: a hole is no block: {holes.tolist()}")
            is_pair = (sizes[:-1] == sizes[1:]) & (starts[:-1] // sizes[:-1] % 2 == 0)
            touch &= is_pair & (sizes[:-1] < self._arena[hole_ops.LARGEST])
        if touch.any():
            raise ConservationError(f"{self.kind}: holes should be one: {holes.tolist()}")


def _require_known(name: str, value: str, accepted: list[str]) -> None:
    if value not in accepted:
        raise ValueError(f"{name}: unknown value {value!r}; accepted: {', '.join(accepted)}")
