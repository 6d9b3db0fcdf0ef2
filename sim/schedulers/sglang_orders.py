"""The orders in which SGLang looks at waiting requests: SchedulePolicy of 0.5.x.

One line an order in the table of WaitingOrder. An order stays: the next one starts from it.
Rules: srt/managers/schedule_policy.py. Not here: priorities, routing keys and the orders that came
later (hrrn, shortest-prefill-first).
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple, get_args

from sim.schedulers.tree_steps import TreeSteps
from sim.sequence import NUM_TOKENS, IntArray, SequenceTable

PolicyName = Literal["fcfs", "lpm", "dfs-weight", "lof", "random"]
POLICIES: tuple[str, ...] = get_args(PolicyName)
MANY = 128  # above so many waiting requests, lpm leaves them as they are


class InBatch(NamedTuple):
    """When a request waits for another's prefix: it has hit check tokens or fewer, and begins
    with deprioritize tokens or more that one before it begins with.
    """

    check: int
    deprioritize: int


class WaitingOrder:
    """Puts waiting requests in order; those that match against the tree refresh it."""

    def __init__(self, policy: PolicyName, in_batch: InBatch, seed: int) -> None:
        self._in_batch = in_batch
        self._random = random.Random(seed)
        table: dict[str, Callable[[Sequence[int]], Sequence[int]]] = {
            "fcfs": lambda requests: requests,
            "lpm": self._by_longest_prefix,
            "dfs-weight": self._depth_first,
            "lof": self._by_longest_output,
            "random": self._shuffled,
        }
        self.sort = table[policy]

    def bind(
        self,
        memory: TreeSteps,
        sequences: SequenceTable,
        max_new: IntArray,
        open_row: Callable[[int], int],
    ) -> None:
        """Take what orders look at: max_new of every request, and rows of waiting ones."""
        self._memory, self._sequences = memory, sequences
        self._max_new, self._open_row = max_new, open_row

    def _by_longest_prefix(self, requests: Sequence[int]) -> Sequence[int]:
        if len(requests) > MANY:
            return requests
        rows = [self._open_row(request) for request in requests]
        hits = [self._memory.match(row, whole=True) for row in rows]
        unknown = [i for i, hit in enumerate(hits) if hit <= self._in_batch.check]
        least = self._in_batch.deprioritize
        repeats = self._memory.repeats([rows[i] for i in unknown], least)
        later = {i for i, is_repeat in zip(unknown, repeats, strict=True) if is_repeat}
        tokens = self._sequences.rows

        def rank(i: int) -> tuple[bool, int]:
            return (
                (True, 0) if i in later else (False, -min(hits[i], tokens[rows[i], NUM_TOKENS] - 1))
            )

        return [requests[i] for i in sorted(range(len(requests)), key=rank)]

    def _depth_first(self, requests: Sequence[int]) -> Sequence[int]:
        rows = [self._open_row(request) for request in requests]
        for row in rows:
            self._memory.match(row, whole=True)
        return [requests[i] for i in self._memory.depth_first_order(rows)]

    def _by_longest_output(self, requests: Sequence[int]) -> Sequence[int]:
        return sorted(requests, key=lambda request: -self._max_new.item(request))

    def _shuffled(self, requests: Sequence[int]) -> Sequence[int]:
        order = list(requests)
        self._random.shuffle(order)
        return order
