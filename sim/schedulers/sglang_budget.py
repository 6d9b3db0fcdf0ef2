"""What SGLang's admission counts: tokens left in one pass, and how much of max_tokens to expect.

Rules of SGLang 0.5.x: srt/managers/schedule_policy.py (PrefillAdder), prefill_budget.py and
scheduler_components/new_token_ratio_tracker.py.
"""

from __future__ import annotations

from typing import NamedTuple

from sim.schedulers.base import MEMORY, NOTHING, TOKEN_BUDGET
from sim.schedulers.tree_steps import TreeSteps

UNLIMITED = 1 << 40


class NewTokenRatio:
    """The share of their max_tokens that running requests are expected to still generate.

    It falls by the same amount with every decode step, as floats do: step by step.
    """

    def __init__(self, first: float, least: float, num_steps: int) -> None:
        self.first, self.least = first, least
        self.decay = (first - least) / num_steps
        self.current = first

    def step(self, num_steps: int = 1) -> None:
        """So many decode steps for which there was memory."""
        for _ in range(num_steps):
            before, self.current = self.current, max(self.current - self.decay, self.least)
            if self.current == before:
                return

    def reset(self) -> None:
        """Nobody runs, and nobody waits."""
        self.current = self.first


class Limits(NamedTuple):
    """Tokens of one pass: of all prompts, and of chunked_prefill_size (None: no chunks)."""

    max_prefill_tokens: int
    chunked_prefill_size: int | None


class Demand(NamedTuple):
    """What a request would take: tokens to compute, to generate from here, and in all."""

    num_tokens: int
    left: int
    max_new: int


class PrefillBudget:
    """What is left in one pass. stop says why nobody else can be admitted, or NOTHING.

    expected are the tokens that running requests will take; num_mixed that many decode along.
    """

    def __init__(
        self, memory: TreeSteps, limits: Limits, expected: float, num_mixed: int = 0
    ) -> None:
        self._memory = memory
        self._size = memory.block_size
        self._expected: float = expected + num_mixed
        self._now = num_mixed  # of these, what the iteration itself takes
        self.prefill_tokens = limits.max_prefill_tokens - num_mixed
        self.has_chunks = limits.chunked_prefill_size is not None
        self.chunk_tokens = (limits.chunked_prefill_size or UNLIMITED) - num_mixed
        self.stop = NOTHING

    @property
    def _in_pool(self) -> int:
        return self._memory.available_size + self._memory.evictable_size

    @property
    def remaining(self) -> float:
        """Tokens in the pool beyond what is expected to be taken."""
        return self._in_pool - self._expected

    def _whole(self, num_tokens: int) -> int:
        return -(-num_tokens // self._size) * self._size

    def choose(self, demand: Demand, is_first: bool, has_chunked: bool) -> int:
        """How many tokens of a prompt, whose hit is held, may be computed; 0, and stop, if none.

        Less than all of them, in whole blocks, if a chunk has room for less; has_chunked says that
        there is an unfinished one, of which there is one at most.
        """
        count = demand.num_tokens
        if count + demand.left + self._size >= self.remaining:
            self.stop = MEMORY
            return 0
        whole = self._whole(count)
        if not self.has_chunks and not is_first and whole >= self.prefill_tokens:
            count = 0
        elif whole > self.chunk_tokens:
            count = 0 if has_chunked else max(0, self.chunk_tokens // self._size * self._size)
        if count == 0:
            self.stop = TOKEN_BUDGET
        return count

    def chunk(self, num_tokens: int) -> int:
        """How many of the num_tokens that an unfinished prompt lacks are computed now.

        Even where memory is short of what is expected: it must go on to give its own back.
        """
        room = min(self.chunk_tokens, int(self.remaining))
        if room <= 0:
            room = max(self.chunk_tokens, self._size)
        return min(num_tokens, room)

    def reserve(self, num_tokens: int, max_new: int) -> None:
        """A prompt takes num_tokens now, and max_new later (0 while it is not complete)."""
        whole = self._whole(num_tokens)
        self._expected += whole + self._size + max_new
        self._now += whole + self._size
        self.prefill_tokens -= whole
        self.chunk_tokens -= whole
        if self.remaining <= 0 or self._in_pool - self._now <= 0:
            self.stop = MEMORY
        elif self.prefill_tokens <= 0 or self.chunk_tokens <= 0:
            self.stop = TOKEN_BUDGET
