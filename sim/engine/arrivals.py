"""Requests on their way into a simulation: at their own times, or after the turn before them."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from sim.sequence import ARRIVAL_NS, IntArray

FOREVER_NS = 1 << 62


@dataclass(frozen=True)
class FollowUps:
    """Turns of conversations: parent[i] is the request before request i, -1 if it is the first.

    Request i arrives max(think_ns[i], 1) ns after its parent has ended. If the parent does not
    finish, a request that needs its answer does not either: it is rejected when the parent is, or
    fails. needs_answer says which do; without it, all.
    """

    parent: IntArray
    think_ns: IntArray
    needs_answer: NDArray[np.bool_] | None = None


class Source(Protocol):
    """Where a replica pulls its requests from, and whom it tells that they have ended."""

    next_ns: int

    def pop(self) -> int:
        """Take the request that arrives at next_ns."""

    @property
    def has_follow_ups(self) -> bool:
        """Whether somebody wants to know which requests end."""

    def ended(self, request: int, end_ns: int, has_finished: bool) -> list[int]:
        """A request has ended. Return those that will never come for it."""


class Arrivals:
    """Requests that have not arrived yet, in order of (time, request id)."""

    def __init__(self, requests: IntArray, follow_ups: FollowUps | None = None) -> None:
        self._requests = requests
        self._think_ns: list[int] = []
        self._children: dict[int, list[int]] = {}
        self._free: frozenset[int] = frozenset()  # follow-ups that need no answer
        self._ids: Sequence[int] = range(len(requests) + 1)
        self._times = np.append(requests[:, ARRIVAL_NS], FOREVER_NS)
        if follow_ups is not None:
            first = np.flatnonzero(follow_ups.parent < 0)
            self._ids = [*first.tolist(), len(requests)]
            self._times = np.append(requests[first, ARRIVAL_NS], FOREVER_NS)
            self._think_ns = np.maximum(follow_ups.think_ns, 1).tolist()
            for child in np.flatnonzero(follow_ups.parent >= 0).tolist():
                self._children.setdefault(follow_ups.parent.item(child), []).append(child)
            if follow_ups.needs_answer is not None:
                self._free = frozenset(np.flatnonzero(~follow_ups.needs_answer).tolist())
        self._next = 0
        self._released: list[tuple[int, int]] = []  # follow-ups with a time: a heap
        self.next_ns: int = self._times.item(0)

    def pop(self) -> int:
        """Take the request that arrives at next_ns."""
        released = self._released
        if not released:  # the common case, and the only one without follow-ups
            i = self._next
            self._next = i + 1
            self.next_ns = self._times.item(i + 1)
            return self._ids[i]
        first = self._times.item(self._next), self._ids[self._next]
        if released[0] < first:
            request = heapq.heappop(released)[1]
        else:
            request = first[1]
            self._next += 1
        self.next_ns = self._times.item(self._next)
        if released and released[0][0] < self.next_ns:
            self.next_ns = released[0][0]
        return request

    @property
    def has_follow_ups(self) -> bool:
        return len(self._children) > 0

    def ended(self, request: int, end_ns: int, has_finished: bool) -> list[int]:
        """A request has ended: what follows it has a time. Return what will never come instead."""
        lost = []
        for child in self._children.get(request, ()):
            if not has_finished and child not in self._free:
                lost.append(child)
                continue
            time_ns = end_ns + self._think_ns[child]
            self._requests[child, ARRIVAL_NS] = time_ns
            heapq.heappush(self._released, (time_ns, child))
            self.next_ns = min(self.next_ns, time_ns)
        return lost
