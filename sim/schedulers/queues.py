"""Waiting queues: request ids in the order in which they are admitted."""

from __future__ import annotations

import heapq
from collections import deque

from sim.sequence import ARRIVAL_NS, PRIORITY, IntArray

Urgency = tuple[int, int, int]
"""priority, arrival, request: the lower, the sooner"""


class Queue:
    """Waiting requests in order of arrival; who is put back stands in front."""

    def __init__(self) -> None:
        self._requests: deque[int] = deque()

    def push(self, request: int) -> None:
        self._requests.append(request)

    def put_back(self, request: int) -> None:
        self._requests.appendleft(request)

    @property
    def head(self) -> int:
        return self._requests[0]

    def pop(self) -> int:
        return self._requests.popleft()

    def remove(self, request: int) -> None:
        self._requests.remove(request)

    def in_order(self) -> list[int]:
        return list(self._requests)


class ByPriority(Queue):
    """Waiting requests by (priority, arrival)."""

    def __init__(self, requests: IntArray) -> None:
        super().__init__()
        self._table = requests
        self._heap: list[Urgency] = []

    def push(self, request: int) -> None:
        priority, arrival = self._table[request, [PRIORITY, ARRIVAL_NS]].tolist()
        heapq.heappush(self._heap, (priority, arrival, request))

    def put_back(self, request: int) -> None:
        self.push(request)

    @property
    def head(self) -> int:
        return self._heap[0][2]

    def pop(self) -> int:
        return heapq.heappop(self._heap)[2]

    def remove(self, request: int) -> None:
        self._heap = [urgency for urgency in self._heap if urgency[2] != request]
        heapq.heapify(self._heap)

    def in_order(self) -> list[int]:
        return [request for _, _, request in sorted(self._heap)]
