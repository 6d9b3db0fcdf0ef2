"""The scheduler of mini-sglang: prompts first, admitted if all that they may generate has room.

Models mini-sglang's PrefillManager and DecodeManager. An iteration computes prompts, in the order
of the queue, or one token of every running sequence. A prompt is admitted if free and evictable
memory has room for it, for all its max_tokens, and for all that the running ones and those admitted
with it may still generate; so nobody ever gives way. A prompt beyond the token budget is computed
in chunks, and the queue goes on behind it when it is complete.
The rules were read in the public source, scheduler/{scheduler,prefill,decode}.py; no recorded run
confirms them.
Differs on purpose: an iteration ends before the next one is planned, where the engine plans one
ahead by default (MINISGL_DISABLE_OVERLAP_SCHEDULING); what a request needs is counted in whole
blocks, so that memory suffices with any block size, where the engine breaks off if it does not; a
request that could never be admitted is rejected, where the engine lets it wait for ever.
Needs an allocator with a radix tree: what can be evicted is half of what it counts.
"""

from __future__ import annotations

from typing import ClassVar, cast

import numpy as np

from sim.allocators.base import Allocator, BoolArray
from sim.batch import FIRST_FINISH, NUM_PENDING, describe
from sim.schedulers.base import MAX_NUM_SEQS, MEMORY, NOTHING, TOKEN_BUDGET
from sim.schedulers.queues import QueueScheduler
from sim.schedulers.tree_steps import TreeSteps
from sim.sequence import (
    FIRST_SCHEDULED_NS,
    MAX_FINAL_TOKENS,
    NEVER_NS,
    NUM_COMPUTED,
    NUM_TOKENS,
    PROMPT_TOKENS,
    IntArray,
    SequenceTable,
)


class MiniSglang(QueueScheduler):
    """Compute prompts if any can be admitted, else let every running request decode.

    max_num_seqs is mini-sglang's max_running_req, max_num_batched_tokens its max_extend_tokens:
    the tokens of prompts in an iteration.
    """

    kind: ClassVar[str] = "mini_sglang"
    admits_by_max_tokens = True

    def __init__(self, max_num_seqs: int = 256, max_num_batched_tokens: int = 8192) -> None:
        for name, value in (
            ("max_num_seqs", max_num_seqs),
            ("max_num_batched_tokens", max_num_batched_tokens),
        ):
            if value < 1:
                raise ValueError(f"{name}: must be at least 1, got {value}")
        self.max_num_seqs = max_num_seqs
        self.max_num_batched_tokens = max_num_batched_tokens
        self.enable_chunked_prefill, self.wait_forever = True, False

    def objection(self, allocator: Allocator) -> str:
        if allocator.has_prefix_tree:
            return ""
        return (
            "mini_sglang admits by what a radix tree holds and could evict, which "
            f"{allocator.kind} cannot say; accepted with it: allocators mini_sglang and radix"
        )

    def bind(self, requests: IntArray, sequences: SequenceTable, allocator: Allocator) -> None:
        super().bind(requests, sequences, allocator)
        self._memory = cast("TreeSteps", allocator)
        self._ones: IntArray = np.ones(len(self.running), np.int64)
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
        counts, budget, reserved = [], self.max_num_batched_tokens, self._expected(decoding)
        if self._is_chunked:
            row = self.running.item(self.num_running - 1)
            lacks = self._lacks(row)
            counts.append(min(lacks, budget))
            self._computed.append(row)
            budget -= counts[0]
            reserved += self._whole(lacks + self._max_new(row))
            self._is_chunked = counts[0] < lacks
        while self.num_waiting:
            self.blocked = self._obstacle(budget, len(decoding) + len(counts))
            if self.blocked != NOTHING:
                break
            row = self._admit(reserved, now_ns)
            if self.blocked != NOTHING:
                break
            lacks = self._lacks(row)
            counts.append(min(lacks, budget))
            budget -= counts[-1]
            reserved += self._whole(lacks + self._max_new(row))
            self._is_chunked = counts[-1] < lacks
        if counts:
            self._compute(decoding, np.array(counts))
        return len(counts) > 0

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

    def _obstacle(self, budget: int, num_running: int) -> int:
        """Why the head of the queue is not even looked at."""
        if budget == 0:
            return TOKEN_BUDGET
        return MAX_NUM_SEQS if num_running >= self.max_num_seqs else NOTHING

    def _admit(self, reserved: int, now_ns: int) -> int:
        """Take the head of the queue, if memory has room for it; its row.

        What it would hold of the tree cannot be evicted then.
        """
        row, memory = self._open_head(), self._memory
        num_tokens, hit = self.sequences.rows.item(row, NUM_TOKENS), memory.match(row)
        need = reserved + self._whole(num_tokens - hit + self._max_new(row))
        fits = need <= memory.available_size + memory.evictable_size
        if fits:
            memory.hold(row)
            fits = need <= memory.available_size + memory.evictable_size
            if not fits:
                memory.release((row,))
        if not fits:
            self.blocked, self._is_asked = MEMORY, True
            return row
        request = self._pop_head()
        self.tally.looked_up(num_tokens, hit)
        self.tally.admitted(request, hit)
        if self.requests.item(request, FIRST_SCHEDULED_NS) == NEVER_NS:
            self.requests[request, FIRST_SCHEDULED_NS] = now_ns
        self.run_row(row)
        self._computed.append(row)
        return row

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
        if n > len(self._ones):
            self._ones = np.ones(len(self.running), np.int64)
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
        running = set(self._sample(boundaries))
        for row in complete:
            if row in running:
                computed = self.sequences.rows[[row], [NUM_COMPUTED]]
                self._memory.checkpoint(np.array([row]), computed)
            else:
                self._leave(np.array([row]))

    def _sample(self, boundaries: IntArray) -> list[int]:
        """Give their first tokens to those whose prompts are complete; who still runs."""
        self.num_running -= self._sample_tokens(
            self.sequences.rows,
            self.requests,
            self.running,
            self.num_running,
            self._finished,
            boundaries,
            1,
            self.gaps,
            self.batch,
        )
        rows: list[int] = self.running[: self.num_running].tolist()
        return rows

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
