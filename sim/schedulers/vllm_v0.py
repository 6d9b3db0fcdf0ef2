"""The scheduler of vLLM v0: prompts first, requests of several sequences, swapping.

Models vLLM's Scheduler 0.2.7, the engine of the PagedAttention paper. An iteration computes either
whole prompts or one token of every running sequence, never both: as long as a prompt can be
admitted, decoding waits. A request may be several sequences, parallel samples or beams, which are
admitted, preempted and swapped together. Where memory is short the request that arrived last goes:
with one sequence it recomputes later, with several it moves to the host, and while anything is
there no prompt is admitted. What forks and ends at each token, sim.branching says.
Differs on purpose: a request that could never run is rejected or fails, where the engine would
wait for ever; where the allocator cannot swap, or is told not to, a request of several sequences
recomputes them all, alone in its iteration if together they exceed max_num_batched_tokens; where
forks are copied instead of shared, memory for all sequences is taken when a request is admitted.
"""

from __future__ import annotations

from typing import ClassVar, Literal

import numpy as np

from sim.allocators.base import Admission, Allocator, BoolArray
from sim.batch import FIRST_FINISH, NUM_PENDING, describe
from sim.schedulers.base import MAX_NUM_SEQS, MEMORY, NOTHING, TOKEN_BUDGET, check_least
from sim.schedulers.groups import Group
from sim.schedulers.padding import PaddedBatch
from sim.schedulers.swapping import SwappingScheduler
from sim.sequence import FIRST_SCHEDULED_NS, NEVER_NS, NUM_TOKENS, REQUEST, IntArray, SequenceTable

LEAST_TOKENS = 2048


class VllmV0(SwappingScheduler):
    """Serve prompts first, then let every running sequence decode.

    The prompts of an iteration are padded to the longest: their number times its length is at most
    max_num_batched_tokens (None: max_model_len, and at least 2048), and max_paddings at most of
    that is padding. max_num_seqs counts sequences, not requests. preemption_mode auto recomputes
    requests of one sequence and swaps others; recompute and swap do either with all of them.
    """

    kind: ClassVar[str] = "vllm_v0"
    uses = frozenset({"samples", "beams"})

    def __init__(
        self,
        max_num_seqs: int = 256,
        max_num_batched_tokens: int | None = None,
        max_paddings: int = 256,
        preemption_mode: Literal["auto", "recompute", "swap"] = "auto",
    ) -> None:
        check_least(
            ("max_num_seqs", max_num_seqs, 1),
            ("max_num_batched_tokens", max_num_batched_tokens, 1),
            ("max_paddings", max_paddings, 0),
        )
        if preemption_mode not in {"auto", "recompute", "swap"}:
            raise ValueError(
                f"preemption_mode: unknown value {preemption_mode!r}; "
                "accepted: auto, recompute, swap"
            )
        self.max_num_seqs = max_num_seqs
        self.max_num_batched_tokens = max_num_batched_tokens or LEAST_TOKENS
        self._follows_model = max_num_batched_tokens is None
        self.max_paddings = max_paddings
        self.preemption_mode = preemption_mode
        self.enable_chunked_prefill = self.wait_forever = False

    def bind(self, requests: IntArray, sequences: SequenceTable, allocator: Allocator) -> None:
        super().bind(requests, sequences, allocator)
        if self._follows_model:
            self.max_num_batched_tokens = max(allocator.max_model_len, LEAST_TOKENS)
        self.admitted: list[int] = []  # by the last schedule(), in order
        self.counts: IntArray = self._ones[:0]  # tokens that each running row computes

    def never_fits(self, requests: IntArray) -> BoolArray:
        return super().never_fits(requests) | (self.widths() > self.max_num_seqs)

    def refusal(self, request: int) -> str:
        width = self._branches.width(request) if self._branches is not None else 1
        if width > self.max_num_seqs:
            return f"has {width} sequences at once, max_num_seqs is {self.max_num_seqs}"
        return super().refusal(request)

    def counters(self) -> dict[str, int]:
        return self.tally.counters()

    def schedule(self, now_ns: int) -> bool:
        for names in (self.admitted, self.preempted, self.returned):
            names.clear()
        while not self.step(now_ns):
            pass  # a step without tokens takes no time
        return self.num_running > 0

    def step(self, now_ns: int) -> bool:
        """One step of the engine; False if nobody computes, but somebody still could."""
        self.blocked = NOTHING
        num_preempted = len(self.preempted)
        if self.num_waiting and not self._swapped and self._admit(now_ns):
            return True
        if self.num_running:
            self._decode()
        if self._swapped and len(self.preempted) == num_preempted:
            self._swap_in(now_ns)
            if self.returned:
                self._describe_decode()
        if self.num_waiting and self.blocked == NOTHING:
            self.blocked = MEMORY  # somebody has given way, or has been away until now
        return self.num_running > 0 or self.num_waiting == 0

    def _admit(self, now_ns: int) -> bool:
        """Admit prompts in order until one does not fit; whether any was."""
        first = self.num_running
        batch = PaddedBatch()
        num_current = self._num_current()
        computed: list[tuple[int, int]] = []  # (row, tokens)
        while self.num_waiting:
            row = self._open_head()
            request = self.sequences.rows.item(row, REQUEST)
            group = self._group(request, row)
            length = self.sequences.rows.item(row, NUM_TOKENS)
            count = length - self.allocator.lookup(row)
            rows = [row] if group is None else group.rows
            if length > self.max_num_batched_tokens:
                self._drop_head(row, self._exceeds_budget(length), now_ns)
                continue
            verdict = self.allocator.can_admit(row, count)
            if verdict is Admission.OK:
                self.blocked = self._obstacle(batch, rows, count, num_current)
                if self.blocked != NOTHING:
                    break
                verdict = self._take(group, rows, count)
            is_alone = self.num_running == 0
            if verdict is Admission.NEVER or (verdict is Admission.LATER and is_alone):
                self._drop_head(row, self._lacks(row, group), now_ns)
                continue
            if verdict is Admission.LATER:
                self.blocked = self._lacking(request, num_current)
                break
            batch.add(len(rows), count)
            num_current += self._max_running(request)
            computed += [(mine, count) for mine in rows]
            self.tally.looked_up(length, length - count)
            self.tally.admitted(request, length - count, len(rows))
            self._start(request, now_ns)
        if self.num_running == first:
            return False
        self._describe(computed)
        return True

    def _obstacle(self, batch: PaddedBatch, rows: list[int], count: int, num_current: int) -> int:
        """Why sequences that memory would take must wait."""
        request = self.sequences.rows.item(rows[0], REQUEST)
        goes_alone = batch.is_empty and len(rows) > 1  # several that recompute: see the module
        padded = batch.padded_with(len(rows), count)
        if padded > self.max_num_batched_tokens and not goes_alone:
            return TOKEN_BUDGET
        if num_current + self._max_running(request) > self.max_num_seqs:
            return MAX_NUM_SEQS
        if batch.paddings_with(len(rows), count) > self.max_paddings:
            return TOKEN_BUDGET
        return NOTHING

    def _take(self, group: Group | None, rows: list[int], count: int) -> Admission:
        """Memory for rows that each compute count tokens; a group's copies get theirs now."""
        if group is not None and group.num_sequences == 1 and self.allocator.forks == "copied":
            copies = [self.sequences.fork(rows[0]) for _ in range(group.width - 1)]
            verdict = self.allocator.admit_copies(rows[0], np.array(copies, np.int64), count)
            if verdict is not Admission.OK:
                self.sequences.close_all(np.array(copies[::-1], np.int64))
                return verdict
            group.rows = rows + copies
            group.num_sequences = group.width
            group.is_at_prompt = True
            return verdict
        if group is not None:
            group.is_at_prompt = len(rows) == 1
        counts = np.full(len(rows), count)
        return self.allocator.admit_all(np.array(rows), counts)

    def _lacks(self, row: int, group: Group | None) -> str:
        if group is None:
            return self.allocator.refusal(row)
        reason = self.allocator.refusal(row)
        return f"runs {group.max_running} sequences at once, each of which {reason}"

    def _start(self, request: int, now_ns: int) -> None:
        """The head of the queue runs."""
        row = self._rows[request]
        self._pop_head()
        self.admitted.append(request)
        self._run(request, [row])
        if self.requests.item(request, FIRST_SCHEDULED_NS) == NEVER_NS:
            self.requests[request, FIRST_SCHEDULED_NS] = now_ns

    def _describe(self, computed: list[tuple[int, int]]) -> None:
        """Fill batch for an iteration in which these rows compute so many tokens each."""
        n, places = self.num_running, dict(computed)
        self.counts = np.array([places.get(row, 0) for row in self.running[:n].tolist()])
        describe(self.batch, self.sequences.rows, self.running[:n], self.counts)
        self._is_described = True

    def _decode(self) -> None:
        """One token for every running sequence; whoever arrived last gives way."""
        if not self._is_sorted:
            self._sort()
        n = self.num_running
        served = self.allocator.append(self.running[:n], self._ones[:n])
        while served < self.num_running:
            self._preempt_last()
            n = self.num_running
            if served < n:
                served += self.allocator.append(self.running[served:n], self._ones[served:n])
        self._describe_decode()

    def _describe_decode(self) -> None:
        self.counts = self._ones[: self.num_running]
        has_changed = len(self.preempted) + len(self.returned) + self.batch.item(NUM_PENDING) > 0
        if has_changed or not self._is_described:
            rows = self.running[: self.num_running]
            describe(self.batch, self.sequences.rows, rows, self.counts)
            self._is_described = True

    def _drop_head(self, row: int, reason: str, now_ns: int) -> None:
        request = self._pop_head()
        group = self._groups.get(request)
        self._fail_rows([row] if group is None else group.rows, reason, now_ns)

    @property
    def is_steady(self) -> bool:
        return self.num_running > 0 and self.num_waiting == 0 and self._is_plain()

    def _is_plain(self) -> bool:
        """Whether every running sequence goes on, and batch says so."""
        is_ready = self._is_described and self._is_sorted
        return is_ready and self.batch.item(NUM_PENDING) == 0 and not self._may_branch()

    def max_sleep(self) -> int:
        if self.preempted or self.returned or not self._is_plain():
            return 0  # the next step asks again who may come
        if self.num_waiting and self.blocked not in {MEMORY, MAX_NUM_SEQS}:
            return 0
        may_find = self.allocator.caches_prefixes and self.blocked == MEMORY
        asks_head = self.num_waiting > 0 and not self._swapped
        if may_find and asks_head and self._head_fits(self.max_num_batched_tokens):
            return 0
        return self.batch.item(FIRST_FINISH) - 1
