"""First come, first served, iteration by iteration, over any allocator.

Models Orca's iteration-level scheduling (OSDI 2022 §3.1): prefill and decode share an iteration,
and a request joins or leaves between two iterations. Memory rules are those of vLLM v0 (0.2.7)
where it has them: the head of the queue is admitted when its whole prompt fits and leaves the
watermark free, nobody overtakes it, and when memory runs out the sequence admitted last is
preempted, to recompute its tokens later, and goes to the front of the queue.
Differs on purpose: v0 keeps prefills and decodes in separate iterations and may swap; here a
step that has preempted admits nobody (as in vLLM v1), and a request that alone outgrows the pool
fails with a reason.
"""

from __future__ import annotations

from collections import deque
from typing import ClassVar

import numpy as np

from sim.allocators.base import Admission, Allocator, BoolArray
from sim.batch import FIRST_FINISH, NUM_PENDING, describe, start_row
from sim.jit import direct
from sim.schedulers.base import (
    MAX_NUM_SEQS,
    MEMORY,
    NOTHING,
    OUTGREW,
    TOKEN_BUDGET,
    Scheduler,
    check_counts,
)
from sim.sequence import (
    NUM_COMPUTED,
    NUM_PREEMPTIONS,
    NUM_TOKENS,
    PROMPT_TOKENS,
    REQUEST,
    IntArray,
    SequenceTable,
    plan_counts,
)

UNLIMITED = 1 << 40


class Fcfs(Scheduler):
    """Serve requests in order of arrival.

    max_num_batched_tokens limits the tokens of one iteration (None: no limit). Without chunked
    prefill a prompt is computed in one iteration, and one longer than the limit is rejected.
    """

    kind: ClassVar[str] = "fcfs"

    def __init__(
        self,
        max_num_seqs: int = 256,
        max_num_batched_tokens: int | None = None,
        enable_chunked_prefill: bool = False,
    ) -> None:
        check_counts(max_num_seqs=max_num_seqs, max_num_batched_tokens=max_num_batched_tokens)
        if enable_chunked_prefill and max_num_batched_tokens is None:
            raise ValueError(
                "enable_chunked_prefill: chunks need a limit, set max_num_batched_tokens"
            )
        self.max_num_seqs = max_num_seqs
        self.max_num_batched_tokens = max_num_batched_tokens
        self.enable_chunked_prefill = enable_chunked_prefill

    def bind(self, requests: IntArray, sequences: SequenceTable, allocator: Allocator) -> None:
        super().bind(requests, sequences, allocator)
        self._budget = self.max_num_batched_tokens or UNLIMITED
        self._waiting: deque[int] = deque()  # request ids
        self._rows: dict[int, int] = {}  # rows of waiting requests that have run before
        self._head: int | None = None  # the row of the first waiting request, once it has one
        self._has_preempted = False
        self._looks_up = type(allocator).lookup is not Allocator.lookup
        self._one_row: IntArray = np.zeros(1, np.int64)
        self._start_row = direct(start_row, self.batch, sequences.rows, requests, 0, 1, 0)

    @property
    def head_row(self) -> int | None:
        return self._open_head() if self.blocked == MEMORY and self._waiting else None

    def never_fits(self, requests: IntArray) -> BoolArray:
        refused = super().never_fits(requests)
        if not self.enable_chunked_prefill:
            refused |= requests[:, PROMPT_TOKENS] > self._budget
        return refused

    def refusal(self, request: int) -> str:
        prompt = self.requests.item(request, PROMPT_TOKENS)
        if prompt > self._budget and not self.enable_chunked_prefill:
            return self._exceeds_budget(prompt)
        return super().refusal(request)

    def _exceeds_budget(self, num_tokens: int) -> str:
        return (
            f"needs {num_tokens} tokens in one iteration without chunked prefill, "
            f"max_num_batched_tokens is {self._budget}"
        )

    def add(self, request: int) -> None:
        self._waiting.append(request)
        self.num_waiting += 1

    def schedule(self, now_ns: int) -> bool:
        self.blocked = NOTHING
        self._has_preempted = False
        budget = self._serve_running(now_ns)
        if self.num_running == 0:
            self.blocked = NOTHING  # whoever ran has failed, and memory is empty
        if self._waiting and self.blocked == NOTHING:
            self._admit(budget, now_ns)
        return self.num_running > 0

    def _serve_running(self, now_ns: int) -> int:
        """Append the running sequences' tokens, preempting from the back; return what is left."""
        n = self.num_running
        rows = self.running[:n]
        if self.batch.item(NUM_PENDING) == 0 and n <= self._budget:
            counts = self._ones[:n]
            budget = self._budget - n
            served = self.allocator.append(rows, counts)
            if served == n:
                return budget  # complete() has described this very batch
        else:
            counts = np.empty(n, np.int64)
            budget = plan_counts(self.sequences.rows, rows, counts, self._budget, self._budget)
            served = self.allocator.append(rows, counts)
        while served < self.num_running:
            self.blocked = MEMORY
            self._has_preempted = True
            budget += counts.item(self.num_running - 1)
            if self._preempt_last(now_ns) > served:
                n = self.num_running
                served += self.allocator.append(self.running[served:n], counts[served:n])
        n = self.num_running
        describe(self.batch, self.sequences.rows, self.running[:n], counts[:n])
        return budget

    def _preempt_last(self, now_ns: int) -> int:
        """Take the last running sequence out of service; return how many are left.

        The one that needs memory may be the last itself. If it is also the only one, all memory
        was its own and waiting cannot help: it fails.
        """
        self.num_running -= 1
        row = int(self.running[self.num_running])
        request, computed = self.sequences.rows[row, [REQUEST, NUM_COMPUTED]].tolist()
        self.tally.preempted(request, computed)
        self._one_row[0] = row
        self.allocator.free(self._one_row)
        if self.num_running == 0:
            self.fail(row, OUTGREW, now_ns)
            return 0
        self.requests[request, NUM_PREEMPTIONS] += 1
        self.num_preemptions += 1
        self._put_back_head()
        self._waiting.appendleft(request)
        self.num_waiting += 1
        self._head = row
        return self.num_running

    def _put_back_head(self) -> None:
        """The head is about to stand second: keep its row only if it carries generated tokens."""
        row, self._head = self._head, None
        if row is None:
            return
        sequences = self.sequences.rows
        if sequences.item(row, NUM_TOKENS) == sequences.item(row, PROMPT_TOKENS):
            self.sequences.close(row)
        else:
            self._rows[sequences.item(row, REQUEST)] = row

    def _open_head(self) -> int:
        """The row of the first waiting request."""
        if self._head is None:
            request = self._waiting[0]
            if request in self._rows:
                self._head = self._rows.pop(request)
            else:
                self._head = self.sequences.open(self.requests, request)
        return self._head

    def _admit(self, budget: int, now_ns: int) -> None:
        """Admit waiting requests in order until one does not fit."""
        while self._waiting:
            if self.num_running >= self.max_num_seqs:
                self.blocked = MAX_NUM_SEQS
                return
            row = self._open_head() if self._head is None else self._head
            known = num_tokens = self.sequences.rows.item(row, NUM_TOKENS)
            if self._looks_up:
                num_tokens -= self.allocator.lookup(row)
            num_hit = known - num_tokens
            if num_tokens > budget:
                if self.enable_chunked_prefill and budget > 0:
                    num_tokens = budget
                elif num_tokens > self._budget and not self.enable_chunked_prefill:
                    self._drop_head(row, self._exceeds_budget(num_tokens), now_ns)
                    continue
                else:
                    self.blocked = TOKEN_BUDGET
                    return
            verdict = self._take(row, num_tokens)
            if verdict is Admission.LATER:
                self.blocked = MEMORY
                return
            if verdict is Admission.NEVER:
                self._drop_head(row, self.allocator.refusal(row), now_ns)
                continue
            budget -= num_tokens
            if self._looks_up:
                self.tally.looked_up(known, num_hit)
            self.tally.admitted(self._waiting.popleft(), num_hit)
            self._head = None
            self.num_waiting -= 1
            self.run_row(row)
            self._start_row(self.batch, self.sequences.rows, self.requests, row, num_tokens, now_ns)

    def _take(self, row: int, num_tokens: int) -> Admission:
        """Memory for the first waiting request, which computes num_tokens."""
        return self.allocator.admit(row, num_tokens)

    def _drop_head(self, row: int, reason: str, now_ns: int) -> None:
        """End a request that has run before and has grown too long to resume."""
        self._waiting.popleft()
        self._head = None
        self.num_waiting -= 1
        self.fail(row, reason, now_ns)

    def counters(self) -> dict[str, int]:
        return self.tally.counters()

    @property
    def is_steady(self) -> bool:
        if self.num_waiting or self.batch.item(NUM_PENDING):
            return False
        return 0 < self.num_running <= self._budget

    def max_sleep(self) -> int:
        if self.batch.item(NUM_PENDING) or self._has_preempted:
            return 0
        if self._waiting and self.blocked not in {MEMORY, MAX_NUM_SEQS}:
            return 0
        if self.num_running > self._budget:
            return 0
        return self.batch.item(FIRST_FINISH) - 1
