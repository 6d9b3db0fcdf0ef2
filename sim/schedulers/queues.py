"""Waiting queues, and what schedulers share that admit from the head of one."""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Iterator, Sequence

import numpy as np

from sim.allocators.base import Admission, Allocator, BoolArray
from sim.schedulers.base import MEMORY, OUTGREW, Scheduler
from sim.sequence import (
    ARRIVAL_NS,
    NUM_COMPUTED,
    NUM_PREEMPTIONS,
    NUM_TOKENS,
    PRIORITY,
    PROMPT_TOKENS,
    REQUEST,
    IntArray,
    SequenceTable,
)

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
        return list(self)

    def __iter__(self) -> Iterator[int]:
        return iter(self._requests)

    def reorder(self, requests: Sequence[int]) -> None:
        """Who waits waits in this order now."""
        self._requests = deque(requests)


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

    def __iter__(self) -> Iterator[int]:
        return (request for _, _, request in sorted(self._heap))


class QueueScheduler(Scheduler):
    """A scheduler whose requests wait in a queue, and are admitted from its head.

    A subclass sets max_num_batched_tokens, enable_chunked_prefill, and wait_forever: whether
    requests that can never be served wait all the same.
    """

    max_num_batched_tokens: int
    enable_chunked_prefill: bool
    wait_forever: bool

    def bind(self, requests: IntArray, sequences: SequenceTable, allocator: Allocator) -> None:
        super().bind(requests, sequences, allocator)
        self._waiting: Queue = ByPriority(requests) if self.reorders_queue else Queue()
        self._rows: dict[int, int] = {}  # rows of waiting requests, of those that have one

    @property
    def head_row(self) -> int | None:
        return self._open_head() if self.blocked == MEMORY and self.num_waiting else None

    def never_fits(self, requests: IntArray) -> BoolArray:
        if self.wait_forever:
            return np.greater_equal(requests[:, PROMPT_TOKENS], self.allocator.max_model_len)
        refused = super().never_fits(requests)
        if not self.enable_chunked_prefill:
            refused |= requests[:, PROMPT_TOKENS] > self.max_num_batched_tokens
        return refused

    def refusal(self, request: int) -> str:
        prompt = self.requests.item(request, PROMPT_TOKENS)
        fits_model = prompt < self.allocator.max_model_len
        if fits_model and not self.enable_chunked_prefill and prompt > self.max_num_batched_tokens:
            return self._exceeds_budget(prompt)
        return super().refusal(request)

    def _exceeds_budget(self, num_tokens: int) -> str:
        return (
            f"needs {num_tokens} tokens in one iteration without chunked prefill, "
            f"max_num_batched_tokens is {self.max_num_batched_tokens}"
        )

    def add(self, request: int) -> None:
        self._waiting.push(request)
        self.num_waiting += 1

    def waiting(self) -> list[int]:
        """The waiting requests, the next one first."""
        return self._waiting.in_order()

    def open_rows(self) -> set[int]:
        """The rows of running requests, and of the waiting ones that have one."""
        return set(self.running[: self.num_running].tolist()) | set(self._rows.values())

    def _put_back(self, request: int, row: int) -> None:
        """A request that ran waits again, with its row."""
        self._rows[request] = row
        self._waiting.put_back(request)
        self.num_waiting += 1

    def _recompute_later(self, row: int, now_ns: int) -> bool:
        """Take the memory of a row that has just been taken out of service; it waits again.

        False if it was alone: all memory was its own, and waiting cannot help, so it fails.
        """
        request, computed = self.sequences.rows[row, [REQUEST, NUM_COMPUTED]].tolist()
        self.tally.preempted(request, computed)
        self.allocator.free(np.array([row]))
        if self.num_running == 0:
            self.fail(row, OUTGREW, now_ns)
            return False
        self.requests[request, NUM_PREEMPTIONS] += 1
        self.num_preemptions += 1
        self._put_back(request, row)
        return True

    def _open_head(self) -> int:
        """The row of the first waiting request."""
        return self._open(self._waiting.head)

    def _open(self, request: int) -> int:
        """The row of a waiting request."""
        if request not in self._rows:
            self._rows[request] = self.sequences.open(self.requests, request)
        return self._rows[request]

    def _head_fits(self, most_tokens: int) -> bool:
        """Whether the allocator would admit the head, which was refused before others wrote.

        What they wrote may have made its hit longer. It computes most_tokens tokens at most.
        """
        row = self._open_head()
        lacks = self.sequences.rows.item(row, NUM_TOKENS) - self.allocator.lookup(row)
        return self.allocator.can_admit(row, min(lacks, most_tokens)) is not Admission.LATER

    def _pop_head(self) -> int:
        request = self._waiting.pop()
        del self._rows[request]
        self.num_waiting -= 1
        return request

    def _drop_head(self, row: int, reason: str, now_ns: int) -> None:
        """End a request that has run before and has grown too long to resume."""
        self._pop_head()
        self.fail(row, reason, now_ns)
