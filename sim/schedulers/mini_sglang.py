"""The scheduler of mini-sglang: prompts first, admitted if all that they may generate has room.

Models mini-sglang's PrefillManager and DecodeManager.
From its source, scheduler/{scheduler,prefill,decode,cache}.py of its main branch of 2026, which no
recorded run confirms (recordings are of the radix tree alone): an iteration computes prompts, in
the order of the queue, or one token of every running sequence. The head of the queue is admitted if
free and evictable memory has room for the rest of its prompt, for all its max_tokens, and for all
that the running ones and those admitted with it may still generate; asked again with what it has
hit locked. So nobody ever gives way. Each pass looks the head up, which refreshes the tree. A
prompt beyond the token budget is computed in chunks of any length, and the queue goes on behind it
when it is complete; then the tree gets it. max_tokens is cut to what max_model_len leaves.
Assumed: an iteration ends before the next one is planned, where the engine plans one ahead by
default (MINISGL_DISABLE_OVERLAP_SCHEDULING); those that decode are served in the order of their
admission, where the engine keeps them in a set; no host memory behind the tree (cache_type radix).
Differs on purpose: what a request needs is counted in whole blocks, so that memory suffices with
any block size, where the engine breaks off if it does not; a request that could never be admitted
is rejected, where the engine lets it wait for ever.
Needs an allocator with a radix tree: what can be evicted is half of what it counts.
"""

from __future__ import annotations

from typing import ClassVar, cast

import numpy as np

from sim.allocators.base import Allocator, BoolArray
from sim.batch import FIRST_FINISH, NUM_PENDING, describe
from sim.schedulers.base import MAX_NUM_SEQS, MEMORY, NOTHING, TOKEN_BUDGET, check_counts
from sim.schedulers.queues import QueueScheduler
from sim.schedulers.tree_steps import TreeSteps, lacks_tree
from sim.sequence import (
    FIRST_SCHEDULED_NS,
    MAX_FINAL_TOKENS,
    NUM_COMPUTED,
    NUM_TOKENS,
    PROMPT_TOKENS,
    REQUEST,
    IntArray,
    SequenceTable,
)

NO_ROW = -1


class MiniSglang(QueueScheduler):
    """Compute prompts if any can be admitted, else let every running request decode.

    max_num_seqs is mini-sglang's max_running_req, max_num_batched_tokens its max_extend_tokens:
    the tokens of prompts in an iteration.
    """

    kind: ClassVar[str] = "mini_sglang"
    admits_by_max_tokens = True

    def __init__(self, max_num_seqs: int = 256, max_num_batched_tokens: int = 8192) -> None:
        check_counts(max_num_seqs=max_num_seqs, max_num_batched_tokens=max_num_batched_tokens)
        self.max_num_seqs = max_num_seqs
        self.max_num_batched_tokens = max_num_batched_tokens
        self.enable_chunked_prefill, self.wait_forever = True, False

    def objection(self, allocator: Allocator) -> str:
        return lacks_tree(self.kind, allocator)

    def bind(self, requests: IntArray, sequences: SequenceTable, allocator: Allocator) -> None:
        super().bind(requests, sequences, allocator)
        self._memory = cast("TreeSteps", allocator)
        self._computed: list[int] = []  # rows whose prompts the iteration computes
        self._is_chunked = False  # whether the last running sequence lacks more of its prompt
        self._is_asked = False  # whether the head of the queue has just been looked up in vain

    def counters(self) -> dict[str, int]:
        return self.tally.counters()

    @property
    def head_row(self) -> int | None:
        """None: as long as others decode, the answer to the head stays what it is."""
        return None

    def never_fits(self, requests: IntArray) -> BoolArray:
        size = self._memory.block_size
        need = -(-requests[:, MAX_FINAL_TOKENS] // size)
        return super().never_fits(requests) | (need > self._memory.num_blocks)

    def refusal(self, request: int) -> str:
        if super().never_fits(self.requests)[request]:
            return super().refusal(request)
        size, most = self._memory.block_size, self.requests.item(request, MAX_FINAL_TOKENS)
        return (
            f"may become {most} tokens long, {-(-most // size)} blocks of {size}, "
            f"the pool has {self._memory.num_blocks}"
        )

    def schedule(self, now_ns: int) -> bool:
        self.blocked = NOTHING
        if (self.num_waiting or self._is_chunked) and self._prefill(now_ns):
            return True
        if self.num_running:
            self._decode()
        return self.num_running > 0

    def _prefill(self, now_ns: int) -> bool:
        """Compute prompts in the order of the queue until one must wait; whether any is."""
        decoding = self.running[: self.num_running - self._is_chunked].copy()
        counts: list[int] = []
        budget, reserved = self.max_num_batched_tokens, self._expected(decoding)
        if self._is_chunked:
            row = self.running.item(self.num_running - 1)
        else:
            row = self._next(budget, reserved, now_ns)
        while row != NO_ROW:
            lacks = self._lacks(row)
            counts.append(min(lacks, budget))
            budget -= counts[-1]
            reserved += self._whole(lacks + self._max_new(row))
            self._is_chunked = counts[-1] < lacks
            self._computed.append(row)
            row = self._next(budget, reserved, now_ns)
        if counts:
            self._compute(decoding, np.array(counts))
        return len(counts) > 0

    def _next(self, budget: int, reserved: int, now_ns: int) -> int:
        """Admit the head of the queue; its row, or NO_ROW if there is none or it must wait.

        It is not even looked up without a budget, or if too many run.
        """
        if self.num_waiting == 0:
            return NO_ROW
        if budget == 0:
            self.blocked = TOKEN_BUDGET
        elif self.num_running >= self.max_num_seqs:
            self.blocked = MAX_NUM_SEQS
        elif self._admit(row := self._open_head(), reserved):
            self.requests[self.sequences.rows.item(row, REQUEST), FIRST_SCHEDULED_NS] = now_ns
            return row
        return NO_ROW

    def _lacks(self, row: int) -> int:
        tokens = self.sequences.rows
        return tokens.item(row, NUM_TOKENS) - tokens.item(row, NUM_COMPUTED)

    def _max_new(self, row: int) -> int:
        """Tokens that a prompt may generate."""
        tokens = self.sequences.rows
        return tokens.item(row, MAX_FINAL_TOKENS) - tokens.item(row, PROMPT_TOKENS)

    def _whole(self, num_tokens: int) -> int:
        """The slots of the blocks that so many tokens fill."""
        size = self._memory.block_size
        return -(-num_tokens // size) * size

    def _expected(self, decoding: IntArray) -> int:
        """What the decoding rows may still generate, and what their blocks leave unused."""
        rows = self.sequences.rows[decoding]
        left = int((rows[:, MAX_FINAL_TOKENS] - rows[:, NUM_TOKENS]).sum())
        return left + (self._memory.block_size - 1) * len(rows)

    def _admit(self, row: int, reserved: int) -> bool:
        """Let a row run if memory has room for it beside what is reserved.

        What it would hold of the tree cannot be evicted then.
        """
        num_tokens, memory = self.sequences.rows.item(row, NUM_TOKENS), self._memory
        hit = memory.match(row)
        need = reserved + self._whole(num_tokens - hit + self._max_new(row))
        if need <= memory.available_size + memory.evictable_size:
            memory.hold(row)
            if need <= memory.available_size + memory.evictable_size:
                self.tally.looked_up(num_tokens, hit)
                self.tally.admitted(self._pop_head(), hit)
                self.run_row(row)
                return True
            memory.release((row,))
        self.blocked, self._is_asked = MEMORY, True
        return False

    def _compute(self, decoding: IntArray, counts: IntArray) -> None:
        """Take the slots of an iteration that computes prompts; who decodes waits for it."""
        served = self._memory.extend(np.array(self._computed), counts)
        assert served == len(counts), "admitted without memory"
        zeros = np.zeros(len(decoding), np.int64)
        rows = self.running[: self.num_running]
        describe(self.batch, self.sequences.rows, rows, np.concatenate([zeros, counts]))

    def _decode(self) -> None:
        """One token for every running request."""
        n = self.num_running
        rows, ones = self.running[:n], self._ones[:n]
        served = self.allocator.append(rows, ones)
        assert served == n, "decodes without memory"
        if self.batch.item(NUM_PENDING):
            describe(self.batch, self.sequences.rows, rows, ones)

    def complete(self, boundaries: IntArray, num_iterations: int) -> None:
        if self._is_asked and num_iterations > 1:
            self._memory.match_again(self._open_head(), num_iterations - 1)
        self._is_asked = False
        if not self._computed:
            super().complete(boundaries, num_iterations)
            return
        complete = self._computed[: len(self._computed) - self._is_chunked]
        self._computed = []
        ended = set(self._finished[: self._sample(boundaries, 1)].tolist())
        for row in complete:
            if row in ended:
                self._leave(np.array([row]))
            else:
                computed = self.sequences.rows[[row], [NUM_COMPUTED]]
                self._memory.checkpoint(np.array([row]), computed)

    @property
    def is_steady(self) -> bool:
        return self.num_running > 0 and self.num_waiting == 0 and self._is_plain()

    def _is_plain(self) -> bool:
        return self.batch.item(NUM_PENDING) == 0 and not self._is_chunked

    def max_sleep(self) -> int:
        if self._computed or not self._is_plain():
            return 0
        if self.num_waiting and self._memory.block_size > 1 and self.blocked == MEMORY:
            return 0  # the head may fit while others fill their blocks
        return self.batch.item(FIRST_FINISH) - 1
