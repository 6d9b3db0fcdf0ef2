"""SGLang's running batch: who decodes, who has just ended, who is retracted.

Rules of SGLang 0.5.x: srt/managers/scheduler.py (get_next_batch_to_run, update_running_batch) and
schedule_batch.py (retract_decode). A request that ends with a decode step stays in the batch, as a
ghost, until the next one: it has given its memory back, but counts as running and as if it went on.
batch_is_full, once set, keeps the queue from being looked at until the batch has shrunk.
"""

from __future__ import annotations

from typing import cast

import numpy as np

from sim.allocators.base import Allocator, BoolArray
from sim.schedulers.base import MEMORY, NOTHING, OUTGREW, Scheduler
from sim.schedulers.queues import QueueScheduler
from sim.schedulers.tree_steps import TreeSteps
from sim.sequence import (
    MAX_FINAL_TOKENS,
    NUM_COMPUTED,
    NUM_PREEMPTIONS,
    NUM_TOKENS,
    PROMPT_TOKENS,
    REQUEST,
    IntArray,
    SequenceTable,
)

NO_ROW = -1
PROMPT_MARGIN = 6  # tokens of the pool that a prompt must leave: managers/tp_worker.py
TOTAL_MARGIN = 2  # and a prompt with its max_new_tokens: managers/scheduler.py


class RunningBatch(QueueScheduler):
    """The rows that run, and one more that is not complete: the chunked one.

    A subclass sets clip_max_new_tokens and retract_decode_steps.
    """

    clip_max_new_tokens: int
    retract_decode_steps: int
    wait_forever = False

    def bind(self, requests: IntArray, sequences: SequenceTable, allocator: Allocator) -> None:
        super().bind(requests, sequences, allocator)
        self._memory = cast("TreeSteps", allocator)
        total = np.minimum(requests[:, MAX_FINAL_TOKENS], self.capacity - TOTAL_MARGIN)
        self._max_new: IntArray = np.maximum(total - requests[:, PROMPT_TOKENS], 0)
        self._chunked = NO_ROW  # the row of a prompt that is not complete
        self._is_full = False  # the engine's batch_is_full
        self._was_empty = False  # the batch, before the prompts of this iteration
        self._reason = NOTHING  # why requests wait
        self._num_ghosts = self._ghost_tokens = 0
        self.preempted: list[int] = []  # retracted by the last schedule(), in order

    @property
    def capacity(self) -> int:
        """Tokens in the whole pool."""
        return self._memory.num_blocks * self._memory.block_size

    @property
    def batch_size(self) -> int:
        """Requests in the running batch, ghosts included; not the chunked one."""
        return self.num_running + self._num_ghosts - (self._chunked != NO_ROW)

    # what could never run

    def never_fits(self, requests: IntArray) -> BoolArray:
        prompts = requests[:, PROMPT_TOKENS]
        needs = prompts + np.minimum(self._max_new, self.clip_max_new_tokens)
        refused = prompts >= self.capacity - PROMPT_MARGIN
        refused |= needs + self._memory.block_size >= self.capacity
        return Scheduler.never_fits(self, requests) | refused

    def refusal(self, request: int) -> str:
        prompt = self.requests.item(request, PROMPT_TOKENS)
        if prompt >= self.allocator.max_model_len:
            return Scheduler.refusal(self, request)
        if prompt >= self.capacity - PROMPT_MARGIN:
            return (
                f"has a prompt of {prompt} tokens, and {PROMPT_MARGIN} of the pool's "
                f"{self.capacity} must be left"
            )
        return self._lack(prompt, self._max_new.item(request))

    def _lack(self, num_tokens: int, max_new: int) -> str:
        """Why nobody could admit so many tokens and so many more."""
        most = min(max_new, self.clip_max_new_tokens)
        return (
            f"needs {num_tokens} tokens, {most} to generate and a block of "
            f"{self._memory.block_size}, the pool has {self.capacity}"
        )

    # who runs

    def _fill(self, reason: int) -> None:
        """Nobody else is looked at until the batch has shrunk."""
        self._is_full, self._reason = True, reason

    def _expected_tokens(self) -> int:
        """What those in the batch may still generate, each clipped."""
        rows = self.sequences.rows[self._decoding(self._chunked)]
        left = self._max_new[rows[:, REQUEST]] - (rows[:, NUM_TOKENS] - rows[:, PROMPT_TOKENS])
        return self._ghost_tokens + int(np.clip(left, 0, self.clip_max_new_tokens).sum())

    def _leave_ghosts(self, ended: IntArray) -> None:
        """Rows have ended with a decode step."""
        rows = self.sequences.rows[ended]
        left = self._max_new[rows[:, REQUEST]] - (rows[:, NUM_TOKENS] - rows[:, PROMPT_TOKENS])
        self._ghost_tokens += int(np.clip(left, 0, self.clip_max_new_tokens).sum())
        self._num_ghosts += len(ended)

    def _forget_ghosts(self) -> None:
        self._num_ghosts = self._ghost_tokens = 0

    def _decoding(self, chunked: int) -> IntArray:
        """The running rows but the chunked one."""
        rows = self.running[: self.num_running]
        decoding: IntArray = rows[rows != chunked]
        return decoding

    def _run(self, rows: IntArray) -> None:
        """These rows run, in this order."""
        if len(rows) > len(self.running):
            self._make_places(2 * len(rows))
        self.num_running = len(rows)
        self.running[: self.num_running] = rows

    # who gives way

    def _retract(self, now_ns: int) -> float:
        """Retract until the others can decode, one at least; return the new ratio.

        Who alone finds no memory fails. Those that stay are in order of their outputs now.
        """
        kept = self._by_progress(self.running[: self.num_running])
        while len(kept) > 1:
            row, kept = kept.item(-1), kept[:-1]
            self._give_way(row, len(kept))
            if self._memory.make_room(kept):
                break
        self._run(kept)
        if len(kept) == 1 and not self._memory.make_room(kept):
            self._memory.release(kept.tolist())
            self.num_running = 0
            self.fail(kept.item(0), OUTGREW, now_ns)
        return self._seen_ratio(self.running[: self.num_running])

    def _by_progress(self, rows: IntArray) -> IntArray:
        """Rows by falling outputs, then by growing prompts: the last one gives way first."""
        tokens = self.sequences.rows[rows]
        prompts = tokens[:, PROMPT_TOKENS]
        order: IntArray = rows[np.lexsort((prompts, prompts - tokens[:, NUM_TOKENS]))]
        return order

    def _give_way(self, row: int, num_left: int) -> None:
        """A request loses its memory and waits again, behind all others; num_left go on."""
        self._memory.release((row,))
        self._memory.evict(num_left * self.retract_decode_steps - self._memory.available_size)
        request = self.sequences.rows.item(row, REQUEST)
        self.requests[request, NUM_PREEMPTIONS] += 1
        self.num_preemptions += 1
        self.preempted.append(request)
        self._reason = MEMORY
        self._rows[request] = row
        self._waiting.push(request)
        self.num_waiting += 1

    def _seen_ratio(self, rows: IntArray) -> float:
        """The share of max_tokens that rows have generated, and will in the next steps."""
        tokens = self.sequences.rows[rows]
        generated = int((tokens[:, NUM_TOKENS] - tokens[:, PROMPT_TOKENS]).sum())
        max_new = int(self._max_new[tokens[:, REQUEST]].sum())
        return min(1.0, (generated + self.retract_decode_steps * len(rows)) / (max_new + 1))

    def _mix(self, rows: IntArray, counts: IntArray, decoding: IntArray) -> IntArray:
        """Slots for prompts, then for decodes along with them; the rows that do decode."""
        served = self._memory.extend(rows, counts)
        while served < len(rows):
            decoding = self._without_one(decoding)
            served += self._memory.extend(rows[served:], counts[served:])
        while len(decoding) and not self._memory.make_room(decoding):
            decoding = self._without_one(decoding)
        if len(decoding):
            self.allocator.append(decoding, self._ones[: len(decoding)])
        return decoding

    def _without_one(self, decoding: IntArray) -> IntArray:
        """Retract one of the rows that were to decode."""
        rows = self._by_progress(decoding)
        self._give_way(rows.item(-1), len(rows) - 1)
        return rows[:-1]

    # the end of iterations

    def _end_prompts(self, rows: list[int], ended: list[int]) -> None:
        """Prompts are computed: who has ended leaves, the others give theirs to the tree.

        Where rows decoded along, those that have ended leave after that; an unfinished prompt is
        the last to give.
        """
        done = set(ended)
        for row in rows:
            if row in done:
                self._leave(np.array([row]))
            elif row != self._chunked:
                self._checkpoint(row)
        along = [row for row in ended if row not in rows]
        if along:
            self._leave(np.array(along))
        if self._chunked != NO_ROW:
            self._checkpoint(self._chunked)
        if ended or self._chunked != NO_ROW or self._was_empty:
            self._is_full = False  # the engine's batch is smaller, or another one, now

    def _checkpoint(self, row: int) -> None:
        computed = self.sequences.rows[[row], [NUM_COMPUTED]]
        self._memory.checkpoint(np.array([row]), computed)
