"""Static batches: requests are taken together and finish together.

Models serving before iteration-level scheduling, FasterTransformer behind a batching front end as
the PagedAttention paper and Orca evaluate it. When idle the engine takes as many waiting requests
as fit, in order of arrival, and waits for no more; nobody joins until the last one of them is
done. The batch is a rectangle: prompts are padded to the longest, and who is done goes on being
computed, and holding memory, until the longest output is complete. All answers are returned
then: finish times are the batch's, while a first token's time is when it was computed.

Differs on purpose: memory is the allocator's, so padding of a prompt takes time but no slots
beyond the reservation; what finished members hold counts as internal. With memory that grows a
batch may run out: the member taken in last gives its memory back and waits for the next batch.
"""

from __future__ import annotations

from collections import deque
from typing import ClassVar

import numpy as np

from sim.allocators.base import Admission, Allocator
from sim.batch import (
    DECODE_KV_TOKENS,
    FIRST_FINISH,
    KV_TOKENS,
    NUM_DECODE_SEQS,
    NUM_SEQS,
    PREFILL_PAIRS,
    PREFILL_TOKENS,
)
from sim.schedulers.base import (
    BATCH,
    MAX_NUM_SEQS,
    MEMORY,
    NOTHING,
    OUTGREW,
    Scheduler,
    check_counts,
)
from sim.sequence import (
    FINAL_TOKENS,
    FINISH_NS,
    FIRST_SCHEDULED_NS,
    NEVER_NS,
    NUM_COMPUTED,
    NUM_PREEMPTIONS,
    NUM_TOKENS,
    REQUEST,
    IntArray,
    SequenceTable,
)


class Static(Scheduler):
    """Batches of at most max_num_seqs requests, one after the other."""

    kind: ClassVar[str] = "static"

    def __init__(self, max_num_seqs: int = 256) -> None:
        check_counts(max_num_seqs=max_num_seqs)
        self.max_num_seqs = max_num_seqs

    def bind(self, requests: IntArray, sequences: SequenceTable, allocator: Allocator) -> None:
        super().bind(requests, sequences, allocator)
        self._waiting: deque[int] = deque()  # request ids
        self._rows: dict[int, int] = {}  # rows of waiting requests, of those that have one
        self._size = 0  # of the batch in service, padding included
        self._length = 0  # tokens of its longest sequence, and so of all
        self._stopped = NOTHING  # why the batch in service is no larger

    @property
    def head_row(self) -> int | None:
        return self._open_head() if self.blocked == MEMORY and self._waiting else None

    def add(self, request: int) -> None:
        self._waiting.append(request)
        self.num_waiting += 1

    def schedule(self, now_ns: int) -> bool:
        if self.num_running:
            self._serve(now_ns)
        if not self.num_running:
            self._form(now_ns)
        self.blocked = NOTHING
        if self._waiting:
            self.blocked = self._stopped or BATCH
        return self.num_running > 0

    def _open_head(self) -> int:
        """The row of the first waiting request."""
        request = self._waiting[0]
        if request not in self._rows:
            self._rows[request] = self.sequences.open(self.requests, request)
        return self._rows[request]

    def _form(self, now_ns: int) -> None:
        """Take waiting requests in order until one does not fit, and compute their prompts."""
        self._stopped = NOTHING
        while self._waiting and self._stopped == NOTHING:
            if self.num_running >= self.max_num_seqs:
                self._stopped = MAX_NUM_SEQS
                break
            row = self._open_head()
            num_tokens = self.sequences.rows.item(row, NUM_TOKENS)
            num_hit = self.allocator.lookup(row)
            verdict = self.allocator.admit(row, num_tokens - num_hit)
            if verdict is Admission.LATER:
                self._stopped = MEMORY
                break
            request = self._waiting.popleft()
            del self._rows[request]
            self.num_waiting -= 1
            if verdict is Admission.NEVER:  # a request that grew in an earlier batch
                self.fail(row, self.allocator.refusal(row), now_ns)
                continue
            self.tally.looked_up(num_tokens, num_hit)
            self.tally.admitted(request, num_hit)
            self.run_row(row)
        if self.num_running:
            self._describe_prompts(now_ns)

    def _describe_prompts(self, now_ns: int) -> None:
        """The batch computes all prompts, each padded to the longest."""
        rows = self.running[: self.num_running]
        members = self.sequences.rows[rows]
        times = self.requests[members[:, REQUEST], FIRST_SCHEDULED_NS]
        self.requests[members[:, REQUEST], FIRST_SCHEDULED_NS] = np.where(
            times == NEVER_NS, now_ns, times
        )
        self._size = self.num_running
        self._length = int(members[:, NUM_TOKENS].max())
        batch = self.batch
        batch[:] = 0
        batch[FIRST_FINISH] = (members[:, FINAL_TOKENS] - members[:, NUM_TOKENS]).min()
        batch[NUM_SEQS] = self._size
        batch[KV_TOKENS] = batch[PREFILL_TOKENS] = self._size * self._length
        batch[PREFILL_PAIRS] = self._size * (self._length * (self._length + 1) // 2)

    def _serve(self, now_ns: int) -> None:
        """One more token for everybody who is not done; without memory the last one leaves."""
        served = 0
        while served < self.num_running:
            rows = self.running[served : self.num_running]
            served += self.allocator.append(rows, np.ones(len(rows), np.int64))
            if served < self.num_running:
                self._preempt_last(now_ns)
        self._describe_decode()

    def _preempt_last(self, now_ns: int) -> None:
        self._stopped = MEMORY
        self.num_running -= 1
        self._size -= 1
        row = int(self.running[self.num_running])
        request, computed = self.sequences.rows[row, [REQUEST, NUM_COMPUTED]].tolist()
        self.tally.preempted(request, computed)
        self.allocator.free(np.array([row]))
        if self.num_running == 0:
            if not self.padding:
                self.fail(row, OUTGREW, now_ns)
                return
            self._end_batch(now_ns)
        self.requests[request, NUM_PREEMPTIONS] += 1
        self.num_preemptions += 1
        self._waiting.appendleft(request)
        self._rows[request] = row
        self.num_waiting += 1

    def complete(self, boundaries: IntArray, num_iterations: int) -> None:
        self._let_find()
        num_finished = self._sample(boundaries, num_iterations)
        self._length += num_iterations
        for row in self._finished[:num_finished].tolist():
            self.allocator.retire(row)
            self.padding.append(row)
        if self.num_running == 0:
            self._end_batch(boundaries.item(num_iterations))
        else:
            self._describe_decode()

    def _describe_decode(self) -> None:
        """The next iteration computes one token of everybody, the done included."""
        batch = self.batch
        batch[NUM_SEQS] = batch[NUM_DECODE_SEQS] = self._size
        batch[KV_TOKENS] = batch[DECODE_KV_TOKENS] = self._size * self._length

    def _end_batch(self, now_ns: int) -> None:
        """Return the answers of all members that are done, and free their memory."""
        rows = np.array(self.padding, np.int64)
        members = self.sequences.rows[rows, REQUEST]
        self.requests[members, FINISH_NS] = now_ns
        if self.notes_ends:
            self.ended += members.tolist()
        self.num_finished += len(rows)
        self.allocator.free(rows)
        self.sequences.close_all(rows)
        self.padding.clear()

    def counters(self) -> dict[str, int]:
        return self.tally.counters()

    @property
    def is_steady(self) -> bool:
        return self.num_waiting == 0 and self.num_running > 0

    def max_sleep(self) -> int:
        return self.batch.item(FIRST_FINISH) - 1
