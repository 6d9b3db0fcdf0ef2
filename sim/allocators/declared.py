"""Declared shared prefixes: which requests begin with one (PagedAttention, SOSP 2023 §4.4)."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np

from sim.allocators.base import BoolArray
from sim.allocators.blocks import BlockIds
from workloads.content import Run, first_tokens
from workloads.sequences import SequenceContent

Beginning = tuple[int, tuple[Run, ...]]
"""namespace, and the runs of the first tokens"""


@dataclass(frozen=True)
class Prefixes:
    """blocks[i] are those of prefix number i, the last one perhaps partial; requests by number."""

    blocks: BlockIds
    number_of: dict[int, int]

    def of(self, request: int) -> BlockIds:
        """The blocks that a request begins with."""
        found: BlockIds = self.blocks[self.number_of[request]]
        return found

    def begin(self, num_requests: int) -> BoolArray:
        """Which of the run's requests begin with one: bool, one a request."""
        answer = np.zeros(num_requests, np.bool_)
        answer[list(self.number_of)] = True
        return answer


NO_PREFIXES = Prefixes(np.empty((0, 0), np.int32), {})


def declared_prefixes(content: SequenceContent, num_tokens: int) -> dict[int, int]:
    """The number of the prefix with which each request begins, of those that begin with one.

    A prefix is what the prompts of at least two requests of a namespace have as their first
    num_tokens tokens.
    """
    begins: dict[int, Beginning] = {}
    for request, runs in content.prompts():
        first = tuple((s, start, length) for s, start, length in first_tokens(runs, num_tokens))
        if sum(length for _, _, length in first) == num_tokens:
            begins[request] = content.namespace(request), first
    times = Counter(begins.values())
    numbers: dict[Beginning, int] = {}
    for begin, count in times.items():
        if count > 1:
            numbers[begin] = len(numbers)
    return {request: numbers[begin] for request, begin in begins.items() if begin in numbers}
