"""Declared shared prefixes: which requests begin with one, and the blocks that they are pinned in.

PagedAttention, SOSP 2023 §4.4.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np

from sim.allocators import blocks, shared_blocks
from sim.allocators.base import BoolArray
from sim.allocators.blocks import BlockIds
from sim.allocators.terms import CACHED, FREE, INTERNAL
from sim.sequence import IntArray
from workloads.content import Run, first_tokens
from workloads.sequences import SequenceContent

Beginning = tuple[int, tuple[Run, ...]]
"""namespace, and the runs of the first tokens"""


@dataclass(frozen=True)
class Prefixes:
    """Prefixes of num_tokens tokens in memory.

    blocks[i] are those of prefix number i, the last one perhaps partial. number_of is the prefix of
    each request that begins with one.
    """

    blocks: BlockIds
    number_of: dict[int, int]
    num_tokens: int

    def of(self, request: int) -> BlockIds:
        """The blocks that a request begins with."""
        found: BlockIds = self.blocks[self.number_of[request]]
        return found

    def begin(self, num_requests: int) -> BoolArray:
        """Which of the run's requests begin with one: bool, one a request."""
        answer = np.zeros(num_requests, np.bool_)
        answer[list(self.number_of)] = True
        return answer

    def ranges(self, block_size: int) -> IntArray:
        """(first slot, slots, tokens) of each block: shape (blocks, 3)."""
        pinned = self.blocks.astype(np.int64)
        left = self.num_tokens - np.arange(pinned.shape[1]) * block_size
        num_tokens = np.broadcast_to(np.minimum(left, block_size), pinned.shape).ravel()
        first = pinned.ravel() * block_size
        return np.stack([first, np.full_like(first, block_size), num_tokens], axis=1)


NO_PREFIXES = Prefixes(np.empty((0, 0), np.int32), {}, 0)


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


def pin(
    pool: IntArray,
    refs: IntArray,
    free_blocks: BlockIds,
    number_of: dict[int, int],
    num_tokens: int,
) -> Prefixes:
    """Take blocks for prefixes of num_tokens tokens, which are never given away.

    Raises ValueError if they would leave nothing of the pool.
    """
    size, num_free = pool.item(blocks.BLOCK_SIZE), pool.item(blocks.NUM_FREE)
    num_prefixes, each = len(set(number_of.values())), -(-num_tokens // size)
    need = num_prefixes * each
    if need >= num_free:
        raise ValueError(
            f"shared_prefix_tokens: {num_prefixes} x {each} blocks of prefixes leave none of "
            f"the pool's {num_free}"
        )
    taken = free_blocks[num_free - need : num_free][::-1].copy()
    refs[taken] = shared_blocks.PIN
    pool[blocks.NUM_FREE] -= need
    pool[shared_blocks.NUM_PINNED] = need
    pool[FREE] -= need * size
    pool[CACHED] += num_prefixes * num_tokens
    pool[INTERNAL] += need * size - num_prefixes * num_tokens
    return Prefixes(taken.reshape(num_prefixes, each), number_of, num_tokens)
