"""The shortest prompt first; who is admitted can finish, so that nobody is ever preempted."""

from __future__ import annotations

import heapq
from typing import ClassVar

import numpy as np

from sim.parts import (
    MAX_NUM_SEQS,
    MEMORY,
    NOTHING,
    NUM_TOKENS,
    PROMPT_TOKENS,
    Admission,
    Allocator,
    IntArray,
    Scheduler,
    SequenceTable,
    describe,
    start_row,
)


class ShortestFirst(Scheduler):
    """Admit the shortest waiting prompt, if memory can hold all that may become of who runs.

    max_num_seqs is the most sequences that run at once.
    """

    kind: ClassVar[str] = "shortest_first"
    reorders_queue = True

    def __init__(self, max_num_seqs: int = 64) -> None:
        if max_num_seqs < 1:
            raise ValueError(f"max_num_seqs: must be at least 1, got {max_num_seqs}")
        self.max_num_seqs = max_num_seqs

    def bind(self, requests: IntArray, sequences: SequenceTable, allocator: Allocator) -> None:
        super().bind(requests, sequences, allocator)
        self._waiting: list[tuple[int, int]] = []  # (prompt tokens, request)
        self._rows: dict[int, int] = {}  # of the requests that have been at the head

    def add(self, request: int) -> None:
        heapq.heappush(self._waiting, (self.requests.item(request, PROMPT_TOKENS), request))
        self.num_waiting += 1

    def never_fits(self, requests: IntArray) -> np.ndarray:
        return super().never_fits(requests) | self.allocator.never_finishes(requests)

    def refusal(self, request: int) -> str:
        alone = self.requests[request : request + 1]
        if not Scheduler.never_fits(self, alone)[0]:
            return "may outgrow the whole pool"
        return super().refusal(request)

    @property
    def head_row(self) -> int | None:
        return self._head() if self._waiting and self.blocked == MEMORY else None

    def _head(self) -> int:
        request = self._waiting[0][1]
        if request not in self._rows:
            self._rows[request] = self.sequences.open(self.requests, request)
        return self._rows[request]

    def schedule(self, now_ns: int) -> bool:
        rows = self.running[: self.num_running]
        ones = np.ones(len(rows), np.int64)
        served = self.allocator.append(rows, ones)
        if served < len(rows):
            raise ValueError("memory that says can_finish ran out")
        describe(self.batch, self.sequences.rows, rows, ones)
        self.blocked = NOTHING
        while self._waiting and self.blocked == NOTHING:
            self.blocked = self._admit_head(now_ns)
        return self.num_running > 0

    def _admit_head(self, now_ns: int) -> int:
        """Admit the head of the queue; what it waits for, if it cannot be."""
        if self.num_running == self.max_num_seqs:
            return MAX_NUM_SEQS
        row = self._head()
        lacks = self.sequences.rows.item(row, NUM_TOKENS) - self.allocator.lookup(row)
        running = self.running[: self.num_running]
        if not self.allocator.can_finish(row, running):
            return MEMORY
        if self.allocator.admit(row, lacks) != Admission.OK:
            return MEMORY
        del self._rows[heapq.heappop(self._waiting)[1]]
        self.num_waiting -= 1
        self.run_row(row)
        start_row(self.batch, self.sequences.rows, self.requests, row, lacks, now_ns)
        return NOTHING
