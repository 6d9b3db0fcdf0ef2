"""Preemption of whole requests: to the host and back, or to the queue to be recomputed.

The rules of vLLM v0 (0.2.7): the request that arrived last goes first, and comes back last.
"""

from __future__ import annotations

from typing import Literal

import numpy as np

from sim.allocators.base import Admission, Allocator
from sim.schedulers.base import MAX_NUM_SEQS, MEMORY
from sim.schedulers.groups import GroupScheduler
from sim.sequence import ARRIVAL_NS, NUM_COMPUTED, NUM_PREEMPTIONS, REQUEST, IntArray, SequenceTable


class SwapSpaceError(MemoryError):
    """The host has no room for a request that must leave the device."""


class SwappingScheduler(GroupScheduler):
    """A scheduler that preempts requests, and orders those that run by arrival.

    A subclass sets max_num_seqs and preemption_mode. num_waiting counts who is swapped out, too.
    """

    max_num_seqs: int
    preemption_mode: Literal["auto", "recompute", "swap"]

    def bind(self, requests: IntArray, sequences: SequenceTable, allocator: Allocator) -> None:
        super().bind(requests, sequences, allocator)
        self._swapped: dict[int, list[int]] = {}  # rows by request, by arrival
        self._is_sorted = True  # the running list, by arrival
        self.preempted: list[int] = []  # by the last schedule(), in order, like returned
        self.returned: list[int] = []

    def swapped(self) -> dict[int, list[int]]:
        """The requests that are swapped out, and their rows, in order of arrival."""
        return dict(self._swapped)

    def _run(self, request: int, rows: list[int]) -> None:
        """A request's rows go to the end of the running list."""
        group = self._groups.get(request)
        if group is not None:
            group.is_running = True
            rows = group.rows
        if self.num_running:
            last = self.sequences.rows.item(self.running.item(self.num_running - 1), REQUEST)
            if self._arrival(request) < self._arrival(last):
                self._is_sorted = False
        for row in rows:
            self.run_row(row)

    def _arrival(self, request: int) -> tuple[int, int]:
        """When a request arrived; of those that came together, the lower one first."""
        return self.requests.item(request, ARRIVAL_NS), request

    def _sort(self) -> None:
        """Order the running requests by arrival; the rows of one stay together, in their order."""
        rows = self.running[: self.num_running]
        requests = self.sequences.rows[rows, REQUEST]
        rows[:] = rows[np.lexsort((requests, self.requests[requests, ARRIVAL_NS]))]
        self._is_sorted = True

    def _preempt_last(self) -> None:
        """Take the last running request out of service. Raises SwapSpaceError."""
        row = self.running.item(self.num_running - 1)
        request = self.sequences.rows.item(row, REQUEST)
        group = self._groups.get(request)
        rows = [row] if group is None else group.rows
        swaps = self.preemption_mode == "swap" or (
            self.preemption_mode == "auto" and self._max_running(request) > 1
        )
        if swaps and self.allocator.can_swap:
            self._swap_out(request, rows)
        else:
            # all have computed as much, but for a token of this step that some have got already
            self.tally.preempted(request, int(self.sequences.rows[rows, NUM_COMPUTED].min()))
            self.allocator.free(np.array(rows))
            self._put_back(request, rows[0])
        self.num_running -= len(rows)
        if group is not None:
            group.is_running = False
        self.requests[request, NUM_PREEMPTIONS] += 1
        self.num_preemptions += 1
        self.preempted.append(request)

    def _swap_out(self, request: int, rows: list[int]) -> None:
        array = np.array(rows)
        if not self.allocator.can_swap_out(array):
            raise SwapSpaceError(
                f"request {request} must leave the device, and the host's memory has no room for "
                "its blocks; enlarge swap_space or num_cpu_blocks"
            )
        self.allocator.swap_out(array)
        self._swapped[request] = rows
        by_arrival = sorted(self._swapped, key=self._arrival)
        self._swapped = {other: self._swapped[other] for other in by_arrival}
        self.num_waiting += 1

    def _swap_in(self, now_ns: int) -> None:
        """Bring requests back in order of arrival until one does not fit."""
        num_current = self._num_current()
        for request, rows in list(self._swapped.items()):
            array = np.array(rows)
            verdict = self.allocator.can_swap_in(array)
            if verdict is not Admission.OK and self.num_running == 0:
                self._fail_swapped(request, now_ns)
                continue
            if verdict is not Admission.OK:
                self.blocked = self._lacking(request, num_current)
                break
            if num_current + self._max_running(request) > self.max_num_seqs:
                self.blocked = MAX_NUM_SEQS
                break
            num_current += self._max_running(request)
            self.allocator.swap_in(array)
            self.allocator.append(array, np.ones(len(rows), np.int64))
            del self._swapped[request]
            self.num_waiting -= 1
            self._run(request, rows)
            self.returned.append(request)

    def _lacking(self, request: int, num_current: int) -> int:
        """Why a request for which there is no memory waits: for that, or it could not run anyway.

        Of the two the one that stays while others decode.
        """
        too_many = num_current + self._max_running(request) > self.max_num_seqs
        return MAX_NUM_SEQS if too_many else MEMORY

    def _fail_swapped(self, request: int, now_ns: int) -> None:
        """Nobody runs, and still the request cannot come back: it never will."""
        rows = self._swapped.pop(request)
        self.num_waiting -= 1
        self.allocator.drop_swapped(np.array(rows))
        self._fail_rows(rows, "has outgrown the memory of the whole pool", now_ns)

    def _fail_rows(self, rows: list[int], reason: str, now_ns: int) -> None:
        """End a request, all of whose rows hold nothing any more."""
        self._groups.pop(self.sequences.rows.item(rows[0], REQUEST), None)
        for row in rows[1:]:
            self.sequences.close(row)
        self.fail(rows[0], reason, now_ns)

    @property
    def head_row(self) -> int | None:
        if self._swapped:
            return next(iter(self._swapped.values()))[0] if self.blocked == MEMORY else None
        return super().head_row

    def open_rows(self) -> set[int]:
        held = [group.rows for group in self._groups.values()] + list(self._swapped.values())
        return super().open_rows().union(*held)
