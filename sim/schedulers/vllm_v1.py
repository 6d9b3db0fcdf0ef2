"""The scheduler of vLLM v1: running requests first, chunked prefill, recompute, no swap.

Models vLLM's v1 Scheduler, one KV group, without speculative decoding. One iteration serves the
running list in its order, prompt chunks and decodes alike, until the token budget is spent. A
request that finds no block takes them from the one admitted last, or from the least urgent one:
it loses all its blocks and goes to the front of the queue. Then, if nobody was preempted, waiting
requests are admitted in order until one does not fit; nobody overtakes it.
Differs on purpose, unless `wait_forever`: a request that could never fit is rejected, or fails
when it has outgrown the pool; the engine lets it wait for ever and with it everybody behind it.
"""

from __future__ import annotations

from typing import ClassVar, Literal, NamedTuple

import numpy as np

from sim.allocators.base import Admission, Allocator
from sim.batch import FIRST_FINISH, NUM_PENDING, describe, start_row
from sim.jit import direct
from sim.schedulers.base import MAX_NUM_SEQS, MEMORY, NOTHING, OUTGREW, TOKEN_BUDGET, check_least
from sim.schedulers.queues import QueueScheduler
from sim.sequence import (
    ARRIVAL_NS,
    NUM_COMPUTED,
    NUM_PREEMPTIONS,
    NUM_TOKENS,
    PRIORITY,
    REQUEST,
    IntArray,
    SequenceTable,
    plan_counts,
)


class Admitted(NamedTuple):
    """A request that the last schedule() admitted: what was found of it, what it computes."""

    request: int
    num_hit: int
    num_tokens: int


class VllmV1(QueueScheduler):
    """Serve running requests first, then admit others until one does not fit.

    A chunk of a prompt is at most long_prefill_token_threshold tokens long (0: no limit);
    single_request_exempt lifts that where there is only one request (vLLM from 0.31). Without
    chunked prefill a prompt waits until the budget suffices for all of it. policy priority admits
    by (priority, arrival) and preempts the last in that order; the trace must say priorities.
    count_blocked_lookups counts the tokens asked of the prefix cache again in every iteration in
    which the first in the queue is refused, as engines up to 0.22 do. wait_forever: see the module.
    """

    kind: ClassVar[str] = "vllm_v1"

    def __init__(  # noqa: PLR0913, PLR0917 - the engine's settings
        self,
        max_num_seqs: int = 256,
        max_num_batched_tokens: int = 8192,
        enable_chunked_prefill: bool = True,
        long_prefill_token_threshold: int = 0,
        policy: Literal["fcfs", "priority"] = "fcfs",
        single_request_exempt: bool = True,
        count_blocked_lookups: bool = False,
        wait_forever: bool = False,
    ) -> None:
        check_least(
            ("max_num_seqs", max_num_seqs, 1),
            ("max_num_batched_tokens", max_num_batched_tokens, 1),
            ("long_prefill_token_threshold", long_prefill_token_threshold, 0),
        )
        if policy not in {"fcfs", "priority"}:
            raise ValueError(f"policy: unknown value {policy!r}; accepted: fcfs, priority")
        self.max_num_seqs = max_num_seqs
        self.max_num_batched_tokens = max_num_batched_tokens
        self.enable_chunked_prefill = enable_chunked_prefill
        self.long_prefill_token_threshold = long_prefill_token_threshold
        self.policy = policy
        self.single_request_exempt = single_request_exempt
        self.count_blocked_lookups = count_blocked_lookups
        self.wait_forever = wait_forever
        self.reorders_queue = policy == "priority"
        self.needs = frozenset({"priority"} if self.reorders_queue else ())

    def bind(self, requests: IntArray, sequences: SequenceTable, allocator: Allocator) -> None:
        super().bind(requests, sequences, allocator)
        # where only the first chunk must fit, less to find may also mean less to hold at once
        takes_chunks = not getattr(allocator, "reserve_full_isl", True)
        self.minds_shorter_hits = takes_chunks or not self.enable_chunked_prefill
        self._counts: IntArray = np.ones(len(self.running), np.int64)
        self._one_row: IntArray = np.zeros(1, np.int64)
        self._start_row = direct(start_row, self.batch, sequences.rows, requests, 0, 1, 0)
        self.admitted: list[Admitted] = []  # by the last schedule(), in order, like preempted
        self.preempted: list[int] = []

    def counters(self) -> dict[str, int]:
        return self.tally.counters()

    def schedule(self, now_ns: int) -> bool:
        self.admitted.clear()
        self.preempted.clear()
        while not self._serve(now_ns):
            pass  # whoever was served first gave way: a step without tokens takes no time
        return self.num_running > 0

    def _serve(self, now_ns: int) -> bool:
        """One step of the engine; False if it has preempted and serves nobody."""
        self.blocked = NOTHING
        num_preempted = len(self.preempted)
        budget = self._serve_running(now_ns)
        if len(self.preempted) > num_preempted:
            self.blocked = MEMORY
            return bool(self._counts[: self.num_running].any())
        if self.num_waiting:
            self._admit(budget, now_ns)
        return True

    def scheduled(self) -> list[tuple[int, int]]:
        """(request, tokens) of the last schedule(), in order."""
        old = self.num_running - len(self.admitted)
        rows, counts = self.running[:old], self._counts[:old].tolist()
        requests = self.sequences.rows[rows, REQUEST].tolist()
        served = [(request, n) for request, n in zip(requests, counts, strict=True) if n]
        return served + [(new.request, new.num_tokens) for new in self.admitted]

    def _longest_chunk(self) -> int:
        """The most tokens of one request in this iteration."""
        threshold = self.long_prefill_token_threshold
        is_alone = self.num_running + self.num_waiting <= 1
        if threshold == 0 or (self.single_request_exempt and is_alone):
            return self.max_num_batched_tokens
        return threshold

    def _serve_running(self, now_ns: int) -> int:
        """Append the running sequences' tokens, preempting if need be; return what is left."""
        n, budget = self.num_running, self.max_num_batched_tokens
        self._chunk = self._longest_chunk()
        rows = self.running[:n]
        if self._is_plain_decode():
            self._counts = self._ones
            budget -= n
            served = self.allocator.append(rows, self._ones[:n])
            if served == n:
                return budget  # complete() has described this very batch
            self._counts = np.ones(n, np.int64)
        else:
            self._counts = np.empty(n, np.int64)
            budget = self._plan(rows, self._counts, budget)
            served = self._append_rest(0)
        while served < self.num_running:
            served = self._append_rest(self._make_room(served, now_ns))
        n = self.num_running
        describe(self.batch, self.sequences.rows, self.running[:n], self._counts[:n])
        return budget if n else self.max_num_batched_tokens  # whoever ran alone has failed

    def _is_plain_decode(self) -> bool:
        """Whether every running sequence computes one token, and batch says so already."""
        has_budget = self.num_running <= self.max_num_batched_tokens
        return self.batch.item(NUM_PENDING) == 0 and has_budget

    def _plan(self, rows: IntArray, counts: IntArray, budget: int) -> int:
        """Fill counts with what the rows compute; return what is left of the budget."""
        return plan_counts(self.sequences.rows, rows, counts, budget, self._chunk)

    def _append_rest(self, served: int) -> int:
        """Append what rows from number served on lack; return how many rows have been served."""
        n = self.num_running
        return served + self.allocator.append(self.running[served:n], self._counts[served:n])

    def _make_room(self, served: int, now_ns: int) -> int:
        """Preempt somebody, for the row number served; return the number of the row to go on with.

        A victim that this iteration serves already gives its tokens back to those behind.
        """
        victim = self._victim()
        row = self.running.item(victim)
        request, computed = self.sequences.rows[row, [REQUEST, NUM_COMPUTED]].tolist()
        self.tally.preempted(request, computed - (victim < served) * self._counts.item(victim))
        self._preempt(victim, now_ns)
        if victim == served:  # itself: the iteration serves nobody behind it
            self._counts[served:] = 0
            return self.num_running
        if self.reorders_queue:
            served -= victim < served
            n, done = self.num_running, served + 1
            spent = int(self._counts[:done].sum())
            left = self.max_num_batched_tokens - spent
            behind = self.running[done:n]
            self._plan(behind, self._counts[done:n], left)
        return served

    def _victim(self) -> int:
        """The place in the running list of who is preempted next."""
        if not self.reorders_queue:
            return self.num_running - 1
        rows = self.running[: self.num_running].tolist()
        urgencies = [self._urgency(row) for row in rows]
        return max(range(len(rows)), key=urgencies.__getitem__)

    def _urgency(self, row: int) -> tuple[int, int]:
        request = self.sequences.rows.item(row, REQUEST)
        return self.requests.item(request, PRIORITY), self.requests.item(request, ARRIVAL_NS)

    def _preempt(self, index: int, now_ns: int) -> None:
        """Take a running sequence out of service.

        If it is the only one, all memory was its own and waiting cannot help: it fails.
        """
        n = self.num_running
        row = self.running.item(index)
        for array in (self.running, self._counts):
            array[index : n - 1] = array[index + 1 : n]
        self.num_running -= 1
        self._one_row[0] = row
        self.allocator.free(self._one_row)
        if n == 1 and not self.wait_forever:
            self.fail(row, OUTGREW, now_ns)
            return
        request = self.sequences.rows.item(row, REQUEST)
        self.requests[request, NUM_PREEMPTIONS] += 1
        self.num_preemptions += 1
        self.preempted.append(request)
        self._put_back(request, row)

    def _admit(self, budget: int, now_ns: int) -> None:
        """Admit waiting requests in order until one does not fit."""
        while self.num_waiting:
            if budget <= 0 or self.num_running >= self.max_num_seqs:
                self.blocked = TOKEN_BUDGET if budget <= 0 else MAX_NUM_SEQS
                return
            row = self._open_head()
            num_tokens = self.sequences.rows.item(row, NUM_TOKENS)
            hit = self.allocator.lookup(row)
            count = min(num_tokens - hit, self._chunk)
            if count > budget and not self.enable_chunked_prefill:
                if count > self.max_num_batched_tokens and not self.wait_forever:
                    self._drop_head(row, self._exceeds_budget(count), now_ns)
                    continue
                self.blocked = TOKEN_BUDGET
                return
            count = min(count, budget)
            verdict = self.allocator.admit(row, count)
            if self.count_blocked_lookups or verdict is Admission.OK:
                self.tally.looked_up(num_tokens, hit)
            if verdict is Admission.NEVER and not self.wait_forever:
                self._drop_head(row, self.allocator.refusal(row), now_ns)
                continue
            if verdict is not Admission.OK:
                self.blocked = MEMORY
                return
            budget -= count
            self._start_head(row, hit, count, now_ns)

    def _start_head(self, row: int, hit: int, count: int, now_ns: int) -> None:
        request = self._pop_head()
        self.tally.admitted(request, hit)
        self.run_row(row)
        self._start_row(self.batch, self.sequences.rows, self.requests, row, count, now_ns)
        self.admitted.append(Admitted(request, hit, count))

    @property
    def is_steady(self) -> bool:
        return self.num_running > 0 and self.num_waiting == 0 and self._is_plain_decode()

    def max_sleep(self) -> int:
        if self.preempted or not self._is_plain_decode():
            return 0
        if self.num_waiting and self.blocked not in {MEMORY, MAX_NUM_SEQS}:
            return 0
        if self.blocked == MEMORY and self.count_blocked_lookups:
            return 0  # what is counted changes with every iteration
        return self.batch.item(FIRST_FINISH) - 1
