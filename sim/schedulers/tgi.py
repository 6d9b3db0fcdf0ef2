"""The scheduler of TGI (text-generation-inference): two token budgets, and prompts that must wait.

From the source (Apache-2.0; backends/v3/src/queue.rs and backend.rs as of releases 2.1 to 2.3, and
docs/source/reference/launcher.md): requests wait in order of arrival. A batch of them is taken from
the front as long as their prompts are within max_batch_prefill_tokens, and prompts and
max_new_tokens together within what the running ones leave of max_batch_total_tokens; those count
with the slots of their blocks. The prompts are computed in an iteration of their own, after which
all decode at least once. Requests join running ones only if there are at least waiting_served_ratio
times as many of them as run, or if max_waiting_tokens iterations have passed since the last prompts
(their own iteration counts). Nobody is ever preempted, because blocks for prompt and max_new_tokens
are taken at admission: the allocator is `paged` with reserve_max_tokens, in blocks of 1
(flashinfer), 16 (paged), 64 (flashdecoding-ipex) or 256 (flashdecoding).
Assumed, or different on purpose: prompts are computed whole (3.x cuts them, and then ignores the
ratio); nothing is reused (from 2.3 on a radix tree is on by default with flashinfer); the budget of
prompts is not rounded up to a block; requests beyond max_concurrent_requests (128) wait, where the
server turns them away; an output that would exceed max_model_len is cut, where the server refuses
the request; over memory that was not reserved the last request is preempted, to recompute.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from sim.allocators.base import Admission, Allocator, BoolArray
from sim.batch import FIRST_FINISH, NUM_PENDING, describe
from sim.schedulers.base import MAX_NUM_SEQS, MEMORY, NOTHING, PACE, TOKEN_BUDGET, check_least
from sim.schedulers.queues import QueueScheduler
from sim.sequence import (
    FIRST_SCHEDULED_NS,
    MAX_FINAL_TOKENS,
    NEVER_NS,
    NUM_SLOTS,
    NUM_TOKENS,
    PROMPT_TOKENS,
    IntArray,
    SequenceTable,
)

UNLIMITED = 1 << 40
ROOM = 50  # tokens that the default budget of prompts has beyond the longest


class Tgi(QueueScheduler):
    """Admit batches of prompts by two token budgets, between which running requests decode.

    max_batch_prefill_tokens limits the prompt tokens of one iteration (null: the longest prompt and
    50), max_batch_total_tokens the prompts and max_tokens of all that run (null: the pool).
    waiting_served_ratio is how many requests must join at once, as a share of those that run,
    unless max_waiting_tokens iterations have passed. max_num_seqs is TGI's max_batch_size (null: no
    limit).
    """

    kind: ClassVar[str] = "tgi"
    admits_by_max_tokens = True

    def __init__(
        self,
        max_batch_prefill_tokens: int | None = None,
        max_batch_total_tokens: int | None = None,
        waiting_served_ratio: float = 0.3,
        max_waiting_tokens: int = 20,
        max_num_seqs: int | None = None,
    ) -> None:
        check_least(
            ("max_batch_prefill_tokens", max_batch_prefill_tokens, 1),
            ("max_batch_total_tokens", max_batch_total_tokens, 1),
            ("waiting_served_ratio", waiting_served_ratio, 0),
            ("max_waiting_tokens", max_waiting_tokens, 0),
            ("max_num_seqs", max_num_seqs, 1),
        )
        self.max_batch_prefill_tokens = max_batch_prefill_tokens
        self.max_batch_total_tokens = max_batch_total_tokens
        self.waiting_served_ratio = waiting_served_ratio
        self.max_waiting_tokens = max_waiting_tokens
        self.max_num_seqs = max_num_seqs
        self.enable_chunked_prefill = self.wait_forever = False

    def bind(self, requests: IntArray, sequences: SequenceTable, allocator: Allocator) -> None:
        super().bind(requests, sequences, allocator)
        longest_prompt = allocator.max_model_len - 1
        self.max_num_batched_tokens = self.max_batch_prefill_tokens or longest_prompt + ROOM
        self._total = self.max_batch_total_tokens or allocator.num_slots
        outgrows = requests[:, MAX_FINAL_TOKENS] > self._total
        self._outgrows = outgrows & ~super().never_fits(requests)  # nothing else rules them out
        self._promised: dict[int, int] = {}  # slots by row
        self._num_promised = 0
        self._is_prefill = False
        self._has_just_joined = False  # prompts were computed last, while others could not decode
        self._has_preempted = False
        self._waiting_tokens = 0  # iterations since the last prompts, theirs included
        self._pause = UNLIMITED  # iterations of decoding in which nobody is admitted

    def never_fits(self, requests: IntArray) -> BoolArray:
        return super().never_fits(requests) | self._outgrows

    def refusal(self, request: int) -> str:
        if not self._outgrows[request]:
            return super().refusal(request)
        longest = self.requests.item(request, MAX_FINAL_TOKENS)
        return f"may become {longest} tokens long, max_batch_total_tokens is {self._total}"

    def _exceeds_budget(self, num_tokens: int) -> str:
        return (
            f"needs {num_tokens} tokens in one iteration, max_batch_prefill_tokens is "
            f"{self.max_num_batched_tokens}"
        )

    def schedule(self, now_ns: int) -> bool:
        while not self._step(now_ns):
            pass  # whoever ran has failed, and memory is empty
        return self.num_running > 0

    def _step(self, now_ns: int) -> bool:
        """One iteration of the server; False if nobody runs, but somebody still could."""
        self.blocked, self.reorders_queue = NOTHING, False
        self._has_preempted = False
        self._pause = UNLIMITED
        if self.num_waiting and self._admit(now_ns):
            return True
        if self.num_running:
            self._decode(now_ns)
        return self.num_running > 0 or self.num_waiting == 0

    def _admit(self, now_ns: int) -> bool:
        """Take a batch from the front of the queue; whether there is one."""
        if self.num_running and self._has_just_joined:
            self._wait(0)
            return False
        self._drop_outgrown(now_ns)
        least, most = self._least(), self._most()
        if self.num_waiting < least:
            self._wait(self.max_waiting_tokens - self._waiting_tokens - 1)
            self.reorders_queue = True  # one more may be enough
            return False
        count, self.blocked = self._choose(most)
        if 0 < count < least:
            self._wait(self.max_waiting_tokens - self._waiting_tokens - 1)
            return False
        return self._take(count, now_ns)

    def _wait(self, num_iterations: int) -> None:
        """Nobody is admitted now, nor in so many iterations of decoding that follow."""
        self.blocked, self._pause = PACE, num_iterations

    def _least(self) -> int:
        """How many requests must join at once."""
        if self.num_running == 0 or self._waiting_tokens >= self.max_waiting_tokens:
            return 0
        return int(np.float32(self.num_running) * np.float32(self.waiting_served_ratio))

    def _most(self) -> int:
        """How many requests may join."""
        return (self.max_num_seqs or UNLIMITED) - self.num_running

    def _length(self, request: int) -> int:
        """Tokens of a waiting request: its prompt, and those that it had generated before."""
        if request in self._rows:
            return self.sequences.rows.item(self._rows[request], NUM_TOKENS)
        return self.requests.item(request, PROMPT_TOKENS)

    def _drop_outgrown(self, now_ns: int) -> None:
        """End requests at the front that have grown beyond what one iteration may compute."""
        while self.num_waiting:
            length = self._length(self._waiting.head)
            if length <= self.max_num_batched_tokens:
                return
            self._drop_head(self._open_head(), self._exceeds_budget(length), now_ns)

    def _choose(self, most: int) -> tuple[int, int]:
        """How many waiting requests are within the budgets, and why the next one is not."""
        prompts, total = self.max_num_batched_tokens, self._total - self._num_promised
        count = 0
        for request in self._waiting:
            if count == most:
                return count, MAX_NUM_SEQS
            prompts -= self._length(request)
            total -= self.requests.item(request, MAX_FINAL_TOKENS)
            if total < 0:
                return count, MEMORY
            if prompts < 0:
                return count, TOKEN_BUDGET
            count += 1
        return count, NOTHING

    def _take(self, count: int, now_ns: int) -> bool:
        """Admit the first count waiting requests, if the blocks suffice; whether any was."""
        old, computed = self.num_running, []
        for _ in range(count):
            row = self._open_head()
            known, hit = self.sequences.rows.item(row, NUM_TOKENS), self.allocator.lookup(row)
            verdict = self.allocator.admit(row, known - hit)
            if verdict is Admission.NEVER:
                self._drop_head(row, self.allocator.refusal(row), now_ns)
            elif verdict is Admission.LATER:
                self.blocked = MEMORY
                break
            else:
                computed.append(known - hit)
                self.tally.looked_up(known, hit)
                self.tally.admitted(self._waiting.head, hit)
                self._start_head(row, now_ns)
        if self.num_waiting == 0:
            self.blocked = NOTHING
        n = self.num_running
        if n == old:
            return False
        self._is_prefill, self._has_just_joined = True, old > 0
        counts = np.array([0] * old + computed, np.int64)  # the others do not decode
        describe(self.batch, self.sequences.rows, self.running[:n], counts)
        return True

    def _start_head(self, row: int, now_ns: int) -> None:
        request = self._pop_head()
        cells = self.sequences.rows[row]
        promise = max(cells.item(NUM_SLOTS), cells.item(MAX_FINAL_TOKENS) - 1)
        self._promised[row] = promise
        self._num_promised += promise
        self.run_row(row)
        if self.requests.item(request, FIRST_SCHEDULED_NS) == NEVER_NS:
            self.requests[request, FIRST_SCHEDULED_NS] = now_ns

    def _decode(self, now_ns: int) -> None:
        """One token for every running request; over memory nobody reserved, the last gives way."""
        served = 0
        while served < self.num_running:
            n = self.num_running
            served += self.allocator.append(self.running[served:n], self._ones[served:n])
            if served < n:
                self._preempt_last(now_ns)
        if self._has_preempted or self.batch.item(NUM_PENDING):
            n = self.num_running
            describe(self.batch, self.sequences.rows, self.running[:n], self._ones[:n])

    def _preempt_last(self, now_ns: int) -> None:
        self._has_preempted = True
        self.num_running -= 1
        row = self.running.item(self.num_running)
        self._num_promised -= self._promised.pop(row)
        if self._recompute_later(row, now_ns):
            self.blocked = MEMORY

    def complete(self, boundaries: IntArray, num_iterations: int) -> None:
        if self._is_prefill:
            self._waiting_tokens = 1
        else:
            self._waiting_tokens += num_iterations
            self._has_just_joined = False
        self._is_prefill = False
        super().complete(boundaries, num_iterations)

    def _leave(self, rows: IntArray) -> None:
        for row in rows.tolist():
            self._num_promised -= self._promised.pop(row)
        super()._leave(rows)

    def counters(self) -> dict[str, int]:
        return self.tally.counters()

    @property
    def is_steady(self) -> bool:
        has_pending = self.batch.item(NUM_PENDING) > 0
        return self.num_running > 0 and self.num_waiting == 0 and not has_pending

    def max_sleep(self) -> int:
        if self._is_prefill or self._has_preempted or self.batch.item(NUM_PENDING):
            return 0
        return min(self.batch.item(FIRST_FINISH) - 1, max(self._pause, 0))
