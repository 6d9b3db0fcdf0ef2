"""The scheduler of nano-vllm: prompts before decodes, one prompt in chunks at a time.

Models nano-vllm's Scheduler. An iteration computes prompts, in the order of the queue, as long as
the head of the queue finds memory and the token budget lasts; only the first of them may be
computed in part, and goes on in the next iteration. Where no prompt can be computed, every running
sequence decodes. One that finds no block takes them from whoever was admitted last, which goes to
the front of the queue. max_num_seqs limits an iteration, not how many run: as long as there is
memory more are admitted, and then those admitted last wait for the others to end.
Differs on purpose: a sequence counts as running from its first chunk on, where the engine keeps it
in the queue; a request that can never fit is rejected, and one that has outgrown the pool fails,
where the engine breaks off.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from sim.allocators.base import Admission, Allocator
from sim.batch import FIRST_FINISH, NUM_PENDING, describe, start_row
from sim.jit import direct
from sim.schedulers.base import MAX_NUM_SEQS, MEMORY, NOTHING, TOKEN_BUDGET, check_counts
from sim.schedulers.queues import QueueScheduler
from sim.sequence import NUM_COMPUTED, NUM_TOKENS, REQUEST, IntArray, SequenceTable


class NanoVllm(QueueScheduler):
    """Serve prompts first, then let the first max_num_seqs running sequences decode."""

    kind: ClassVar[str] = "nano_vllm"

    def __init__(self, max_num_seqs: int = 512, max_num_batched_tokens: int = 16384) -> None:
        check_counts(max_num_seqs=max_num_seqs, max_num_batched_tokens=max_num_batched_tokens)
        self.max_num_seqs = max_num_seqs
        self.max_num_batched_tokens = max_num_batched_tokens
        self.enable_chunked_prefill, self.wait_forever = True, False

    def bind(self, requests: IntArray, sequences: SequenceTable, allocator: Allocator) -> None:
        super().bind(requests, sequences, allocator)
        self._start_row = direct(start_row, self.batch, sequences.rows, requests, 0, 1, 0)
        self._counts: IntArray = self._ones[:0]  # tokens that each running row computes
        self.is_chunked = False  # whether the last running sequence lacks more of its prompt
        self.is_prefill = False  # whether the last schedule() computes prompts
        self.preempted: list[int] = []  # by the last schedule(), in order

    def counters(self) -> dict[str, int]:
        return self.tally.counters()

    def scheduled(self) -> list[tuple[int, int, int]]:
        """(request, tokens computed before, tokens) of the last schedule(), in order."""
        rows = self.sequences.rows[self.running[: self.num_running]]
        ends = rows[:, NUM_COMPUTED]
        found = np.stack([rows[:, REQUEST], ends - self._counts, self._counts], axis=1)
        return [(request, start, n) for request, start, n in found.tolist() if n]

    def schedule(self, now_ns: int) -> bool:
        self.preempted.clear()
        while not self._step(now_ns):
            pass  # a sequence has failed: a step without tokens takes no time
        return self.num_running > 0

    def _step(self, now_ns: int) -> bool:
        """One step of the engine; False if nobody computes, but somebody still could."""
        self.blocked, self._counts = NOTHING, self._ones[:0]
        if self.num_waiting or self.is_chunked:
            self.is_prefill = self._prefill(now_ns)
            if self.is_prefill:
                return True
        self.is_prefill = False
        if self.num_running:
            self._decode(now_ns)
        if self.num_waiting:
            self.blocked = MEMORY
        return self.num_running > 0 or self.num_waiting == 0

    def _prefill(self, now_ns: int) -> bool:
        """Compute prompts in the order of the queue until one must wait; whether any is."""
        counts, budget = [0] * self.num_running, self.max_num_batched_tokens
        if self.is_chunked:
            counts[-1] = self._next_chunk(now_ns)
            if counts[-1] == 0:
                return False
            budget -= counts[-1]
            self._describe(np.array(counts, np.int64))
        num_seqs = int(budget < self.max_num_batched_tokens)
        while self.num_waiting:
            count = self._admit(num_seqs, budget, now_ns)
            if count == 0:
                break
            if count > 0:
                budget -= count
                num_seqs += 1
                counts.append(count)
        self._counts = np.array(counts, np.int64)
        return num_seqs > 0

    def _next_chunk(self, now_ns: int) -> int:
        """The tokens that the last running sequence computes of its prompt: 0 without memory."""
        row = self.running[self.num_running - 1 : self.num_running]
        num_tokens, computed = self.sequences.rows[row.item(), [NUM_TOKENS, NUM_COMPUTED]].tolist()
        lacks = num_tokens - computed
        count: int = min(lacks, self.max_num_batched_tokens)
        self.is_chunked = count < lacks
        if self.allocator.append(row, np.array([count])) == 1:
            return count
        self.is_chunked = False  # never where admission takes memory for all of the prompt
        self._preempt_last(now_ns)
        return 0

    def _admit(self, num_seqs: int, budget: int, now_ns: int) -> int:
        """The tokens that the head of the queue computes; 0 if it waits, -1 if it is dropped."""
        if num_seqs >= self.max_num_seqs or budget == 0:
            self.blocked = TOKEN_BUDGET if budget == 0 else MAX_NUM_SEQS
            return 0
        row = self._open_head()
        num_tokens, hit = self.sequences.rows.item(row, NUM_TOKENS), self.allocator.lookup(row)
        lacks = num_tokens - hit
        if lacks > budget and num_seqs > 0:
            verdict = self.allocator.can_admit(row, lacks)
            is_short = verdict is Admission.OK
        else:
            verdict = self.allocator.admit(row, min(lacks, budget))
            is_short = False
        if verdict is Admission.NEVER:
            self._drop_head(row, self.allocator.refusal(row), now_ns)
            return -1
        if verdict is Admission.LATER or is_short:
            self.blocked = TOKEN_BUDGET if is_short else MEMORY
            return 0
        count = min(lacks, budget)
        if num_seqs == 0:
            self._describe(np.zeros(self.num_running, np.int64))
        self.is_chunked = count < lacks
        self.tally.looked_up(num_tokens, hit)
        self.tally.admitted(self._pop_head(), hit)
        self.run_row(row)
        self._start_row(self.batch, self.sequences.rows, self.requests, row, count, now_ns)
        return count

    def _decode(self, now_ns: int) -> None:
        """One token for each of the first max_num_seqs; whoever was admitted last gives way."""
        before = len(self.preempted)
        served = self._append_rest(0)
        while served < min(self.num_running, self.max_num_seqs):
            self._preempt_last(now_ns)
            if served < self.num_running:
                served = self._append_rest(served)
        n = self.num_running
        self._counts = self._ones[:n]
        if n > served:
            self._counts = self._counts.copy()
            self._counts[served:] = 0
        if len(self.preempted) > before or not self._is_plain():
            self._describe(self._counts)

    def _describe(self, counts: IntArray) -> None:
        describe(self.batch, self.sequences.rows, self.running[: self.num_running], counts)

    def _append_rest(self, served: int) -> int:
        """A token for those from number served on; return how many rows have been served."""
        rows = self.running[served : min(self.num_running, self.max_num_seqs)]
        return served + self.allocator.append(rows, self._ones[: len(rows)])

    def _preempt_last(self, now_ns: int) -> None:
        """Take the sequence admitted last out of service; one that is alone fails."""
        self.num_running -= 1
        row = self.running.item(self.num_running)
        if self._recompute_later(row, now_ns):
            self.preempted.append(self.sequences.rows.item(row, REQUEST))

    def _is_plain(self) -> bool:
        """Whether batch describes an iteration in which all that run decode."""
        return self.batch.item(NUM_PENDING) == 0 and self.num_running <= self.max_num_seqs

    @property
    def is_steady(self) -> bool:
        return self.num_running > 0 and self.num_waiting == 0 and self._is_plain()

    def max_sleep(self) -> int:
        if self.preempted or not self._is_plain():
            return 0
        if self.num_waiting and (
            self.blocked != MEMORY or self._head_fits(self.max_num_batched_tokens)
        ):
            return 0
        return self.batch.item(FIRST_FINISH) - 1
