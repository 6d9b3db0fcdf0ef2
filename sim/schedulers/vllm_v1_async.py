"""The scheduler of vLLM v1 with one step in flight: what it does while the GPU is busy.

Models vLLM's AsyncScheduler (pipeline depth 2), the default of its servers. When a step starts,
the next one is planned, before the tokens of the first are known: each request is given a place
for the token that it will have. A finish is therefore seen one step late, and so is an arrival. A
block becomes findable when its last token is known. Who is preempted while its token is on the
way still gets the token.
"""

from __future__ import annotations

from typing import ClassVar, NamedTuple

import numpy as np

from sim.batch import empty_batch
from sim.schedulers.inflight import expect_tokens, plan_in_flight, receive_tokens
from sim.schedulers.vllm_v1 import VllmV1
from sim.sequence import NUM_PLACEHOLDERS, REQUEST, IntArray


class Step(NamedTuple):
    """A planned iteration: its batch, and the rows that sample a token with their requests."""

    batch: IntArray
    rows: IntArray
    ids: IntArray


class VllmV1Async(VllmV1):
    """vllm_v1 that plans each iteration while the one before it is computed."""

    kind: ClassVar[str] = "vllm_v1_async"

    _ahead: Step | None = None  # planned, not started
    _current: Step | None = None

    def schedule(self, now_ns: int) -> bool:
        self._current = self._ahead
        while self._current is None and self._wants_more(now_ns):
            pass
        self._ahead = None
        if self._current is None:
            return False
        self._ahead = self.plan_step(now_ns)
        self.batch = self._current.batch
        return True

    def _wants_more(self, now_ns: int) -> bool:
        """Plan the current step with nothing in flight; whether that may be worth repeating.

        A step that only preempts takes no time.
        """
        self._current = self.plan_step(now_ns)
        return self._current is None and len(self.preempted) > 0

    def plan_step(self, now_ns: int) -> Step | None:
        """Decide about an iteration and write its tokens; None if it would compute nothing."""
        self.admitted.clear()
        self.preempted.clear()
        self.batch = empty_batch()
        self._serve(now_ns)
        n = self.num_running
        rows = self.running[:n].copy()
        counts = np.zeros(n, np.int64)
        old = n - len(self.admitted)
        counts[:old] = self._counts[:old]
        counts[old:] = [new.num_tokens for new in self.admitted]
        if not counts.any():
            return None
        places: IntArray = np.empty(n, np.int64)
        sampling = places[: expect_tokens(self.sequences.rows, rows, counts, places)]
        rows = rows[sampling]
        return Step(self.batch, rows, self.sequences.rows[rows, REQUEST])

    def _is_plain_decode(self) -> bool:
        return False

    def _plan(self, rows: IntArray, counts: IntArray, budget: int) -> int:
        limits = budget, self._chunk, self.allocator.max_model_len
        return plan_in_flight(self.sequences.rows, rows, counts, *limits)

    def _preempt(self, index: int, now_ns: int) -> None:
        row = self.running.item(index)
        super()._preempt(index, now_ns)
        self.sequences.rows[row, NUM_PLACEHOLDERS] = 0

    def complete(self, boundaries: IntArray, num_iterations: int) -> None:
        if self._current is not None:
            span = boundaries.item(0), boundaries.item(1)
            self.end_step(self._current, span)

    def end_step(self, step: Step, span: tuple[int, int]) -> None:
        """Hand out the tokens of a step that lasted from span[0] to span[1]."""
        rows, ids = step.rows, step.ids
        known: IntArray = np.empty(len(rows), np.int64)
        receive_tokens(self.sequences.rows, self.requests, rows, ids, span, known, self.gaps)
        is_done = known < 0
        self.allocator.cache_up_to(rows, np.where(is_done, -known - 1, known))
        if is_done.any():
            self._finish(rows[is_done], ids[is_done])

    def _finish(self, rows: IntArray, ids: IntArray) -> None:
        running = self.running[: self.num_running]
        staying = running[~np.isin(running, rows)]
        self.num_running = len(staying)
        self.running[: self.num_running] = staying
        for request in ids.tolist():
            if self._rows.pop(request, None) is not None:  # preempted before its last token came
                self._waiting.remove(request)
                self.num_waiting -= 1
        self.num_finished += len(rows)
        if self.notes_ends:
            self.ended += ids.tolist()
        self.allocator.free(rows)
        self.sequences.close_all(rows)
