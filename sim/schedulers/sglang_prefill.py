"""A pass of SGLang's scheduler over the queue, and the prompts that it computes.

Rules of SGLang 0.5.x: srt/managers/scheduler.py (get_new_batch_prefill).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from sim.allocators.base import Allocator
from sim.batch import describe
from sim.schedulers.base import MAX_NUM_SEQS, MEMORY, NOTHING, TOKEN_BUDGET
from sim.schedulers.sglang_budget import Demand, Limits, NewTokenRatio, PrefillBudget
from sim.schedulers.sglang_orders import PolicyName, WaitingOrder
from sim.schedulers.sglang_running import NO_ROW, RunningBatch
from sim.sequence import (
    FIRST_SCHEDULED_NS,
    NEVER_NS,
    NUM_COMPUTED,
    NUM_TOKENS,
    PROMPT_TOKENS,
    REQUEST,
    IntArray,
    SequenceTable,
)


class Computed(NamedTuple):
    """A prompt, or a part of one, that the last schedule() computes."""

    request: int
    num_hit: int
    num_tokens: int


class PrefillPass(RunningBatch):
    """Looks at waiting requests, and admits those for which there will be memory.

    A subclass sets these, the last four when it is bound.
    """

    schedule_policy: PolicyName
    enable_mixed_chunk: bool
    ratio: NewTokenRatio
    _limits: Limits
    _order: WaitingOrder
    _num_places: int  # requests that may run

    def bind(self, requests: IntArray, sequences: SequenceTable, allocator: Allocator) -> None:
        super().bind(requests, sequences, allocator)
        self.num_queried_tokens = self.num_hit_tokens = 0
        self.admitted: list[Computed] = []  # by the last schedule(), in order, like preempted
        self._rows_computed: list[int] = []  # whose prompts the iteration computes

    def _prefill(self, now_ns: int) -> bool:
        """A pass over the queue; whether it found a prompt to compute."""
        chunked, size = self._chunked, self.batch_size
        has_chunk = chunked != NO_ROW
        if not has_chunk and (self._is_full or self.num_waiting == 0):
            return False
        places = self._num_places - size
        if places <= 0 and not has_chunk:
            self._fill(MAX_NUM_SEQS)
            return False
        if self.schedule_policy != "fcfs":
            self._waiting.reorder(self._order.sort(self._waiting.in_order()))
        mixed = size if self.enable_mixed_chunk else 0
        expected = self._expected_tokens() * self.ratio.current
        budget = PrefillBudget(self._memory, self._limits, expected, mixed)
        rows: list[int] = []
        counts: list[int] = []
        if has_chunk:
            rows.append(chunked)
            counts.append(self._continue(budget))
        self._admit(budget, places, rows, counts)
        if not rows:
            if size == 0:  # not even alone, so never: it has grown since it came
                row = self._open_head()
                num_tokens = self.sequences.rows.item(row, NUM_TOKENS)
                left = self._demand(row, num_tokens).left
                self._drop_head(row, self._lack(num_tokens, left), now_ns)
            return False
        self._was_empty = size == 0
        self._compute((np.array(rows), np.array(counts)), self._decoding(chunked))
        self._rows_computed = rows
        self._note_starts(now_ns)
        return True

    def _continue(self, budget: PrefillBudget) -> int:
        """The next chunk of the unfinished prompt; its tokens."""
        row = self._chunked
        tokens = self.sequences.rows
        lacks = tokens.item(row, NUM_TOKENS) - tokens.item(row, NUM_COMPUTED)
        count = budget.chunk(lacks)
        is_last = count == lacks
        budget.reserve(count, self._demand(row, lacks).max_new if is_last else 0)
        budget.stop = NOTHING  # the engine looks at the next prompt before it asks
        if is_last:
            self._chunked = NO_ROW
        return count

    def _admit(
        self, budget: PrefillBudget, places: int, rows: list[int], counts: list[int]
    ) -> None:
        """Admit waiting requests in order until one cannot be; rows and counts grow."""
        while self.num_waiting and budget.stop == NOTHING:
            if len(rows) >= places:
                self._fill(MAX_NUM_SEQS)
            if self._is_full:
                return
            row = self._open_head()
            num_tokens = self.sequences.rows.item(row, NUM_TOKENS)
            hit = self._memory.match(row)
            self._memory.hold(row)
            demand = self._demand(row, num_tokens - hit)
            count = budget.choose(demand, not rows, self._chunked != NO_ROW)
            if count == 0:
                self._memory.release((row,))
                break
            is_whole = count == demand.num_tokens
            budget.reserve(count, demand.max_new if is_whole else 0)
            if not is_whole:
                self._chunked = row
            self.admitted.append(Computed(self._pop_head(), hit, count))
            self.num_queried_tokens += num_tokens
            self.num_hit_tokens += hit
            rows.append(row)
            counts.append(count)
        if budget.stop == MEMORY:
            self._fill(MEMORY)
        elif budget.stop == TOKEN_BUDGET:
            self._reason = TOKEN_BUDGET

    def _demand(self, row: int, num_tokens: int) -> Demand:
        """What a prompt of which num_tokens must be computed would take."""
        request, length, prompt = self.sequences.rows[
            row, [REQUEST, NUM_TOKENS, PROMPT_TOKENS]
        ].tolist()
        max_new, clip = self._max_new.item(request), self.clip_max_new_tokens
        left = max(max_new - (length - prompt), 0)
        return Demand(num_tokens, min(left, clip), min(max_new, clip))

    def _compute(self, prompts: tuple[IntArray, IntArray], decoding: IntArray) -> None:
        """Take the slots of an iteration that computes prompts, and perhaps decodes along."""
        rows, counts = prompts
        if self.enable_mixed_chunk:
            self._forget_ghosts()
            self._was_empty = True  # the engine makes one batch of both
        if self.enable_mixed_chunk and len(decoding):
            decoding = self._mix(rows, counts, decoding)
            self._run(np.concatenate([rows, decoding]))
            numbers = np.concatenate([counts, np.ones(len(decoding), np.int64)])
        else:
            served = self._memory.extend(rows, counts)
            assert served == len(rows), "admitted without memory"
            self._run(np.concatenate([decoding, rows]))
            numbers = np.concatenate([np.zeros(len(decoding), np.int64), counts])
        describe(self.batch, self.sequences.rows, self.running[: self.num_running], numbers)

    def _note_starts(self, now_ns: int) -> None:
        for new in self.admitted:
            if self.requests.item(new.request, FIRST_SCHEDULED_NS) == NEVER_NS:
                self.requests[new.request, FIRST_SCHEDULED_NS] = now_ns
