"""Forks on memory that shares nothing: a new sequence gets memory of its own, and a copy.

Models the baseline of the PagedAttention paper (SOSP 2023 §6.3), in which every sample and every
beam has its whole KV. A request that will fork takes the memory of all its sequences when it is
admitted, so that it never runs short in between. Where sequences of a request end in the step in
which others fork, as beams do, the new ones take over their memory: a parent's first, with what is
in it, then that of others, into which the parent's tokens are copied.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from sim.allocators.base import Admission, Allocator
from sim.sequence import NUM_COMPUTED, NUM_SLOTS, IntArray, SequenceTable


class CopiedForks(Allocator):
    """An allocator whose rows share nothing. A subclass says how memory is handed over."""

    forks: Literal["no", "copied", "shared"] = "copied"

    def bind(self, num_slots: int, sequences: SequenceTable, max_model_len: int) -> None:
        super().bind(num_slots, sequences, max_model_len)
        self.num_forked_tokens = 0  # copied for new sequences

    @abstractmethod
    def _give_place(self, row: int, heir: int) -> None:
        """Let heir, an empty row, hold the memory of row; the caller moves the row's counts."""

    @abstractmethod
    def _layout(self) -> tuple[NDArray[Any], ...]:
        """The arrays that say what is taken, and what has been counted."""

    def _restore(self, layout: tuple[NDArray[Any], ...]) -> None:
        """Undo what placing some rows has moved, after they have been freed again."""
        for array, old in zip(self._layout(), layout, strict=True):
            array[:] = old

    def admit_all(self, rows: IntArray, counts: IntArray) -> Admission:
        before = tuple(array.copy() for array in self._layout())
        verdict = super().admit_all(rows, counts)
        if verdict is not Admission.OK:
            self._restore(before)
        return verdict

    def admit_copies(self, row: int, copies: IntArray, count: int) -> Admission:
        rows = np.concatenate([[row], copies])
        verdict = self.admit_all(rows, np.full(len(rows), count))
        if verdict is Admission.OK:
            self.num_forked_tokens += count * len(copies)
        return verdict

    def fork(self, parents: IntArray, children: IntArray, ending: IntArray) -> bool:
        cells = self.sequences.rows
        heirs: dict[int, int] = {}  # whose memory goes to which child
        fresh = []
        dead = [row for row in ending.tolist() if row not in set(parents.tolist())]
        ends = set(ending.tolist())
        for parent, child in zip(parents.tolist(), children.tolist(), strict=True):
            if parent in ends and parent not in heirs:
                heirs[parent] = child
            elif dead:
                heirs[dead.pop(0)] = child
            else:
                fresh.append((parent, child))
        rows = np.array([child for _, child in fresh], np.int64)
        counts = cells[[parent for parent, _ in fresh], NUM_COMPUTED]
        before = tuple(array.copy() for array in self._layout()) if fresh else ()
        served = self.append(rows, counts) if fresh else 0
        if served < len(fresh):
            self.free(rows[:served][::-1])
            self._restore(before)
            return False
        num_moved = sum(parent in heirs for parent in set(parents.tolist()))
        if len(children) > num_moved:
            length = cells.item(int(parents[0]), NUM_COMPUTED)
            self.num_forked_tokens += (len(children) - num_moved) * length
        for row, heir in heirs.items():
            self._give_place(row, heir)
            cells[heir, [NUM_COMPUTED, NUM_SLOTS]] = cells[row, [NUM_COMPUTED, NUM_SLOTS]]
            cells[row, [NUM_COMPUTED, NUM_SLOTS]] = 0
        self.free(np.array([row for row in ending.tolist() if row not in heirs], np.int64))
        return True
