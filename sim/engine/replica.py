"""One engine on SimPy's clock: a scheduler, its memory, and the iterations that they run.

At a boundary a replica applies its own finishes, takes every arrival up to now in order of
(time, request id), and schedules; the order in which SimPy processes events of one instant never
decides anything, because the replica pulls.

Sleeping: while nothing but decoding happens, many iterations are one event. They are planned
first, which changes nothing, and committed when they have passed, block by block in the order in
which single steps would have gone. `single_step` turns sleeping off; results are the same.
"""

from __future__ import annotations

from collections.abc import Generator

import numpy as np
import simpy

from sim.batch import COPIED_TOKENS, FIRST_FINISH, SWAPPED_BLOCKS, SWAPPED_TOKENS
from sim.costs.base import CostModel
from sim.engine.arrivals import FOREVER_NS, Source
from sim.engine.options import Observer, Recorded
from sim.engine.recorder import Recorder
from sim.schedulers.base import MEMORY, TOKEN_BUDGET, Scheduler
from sim.sequence import ARRIVAL_NS, FINISH_NS, FINISHED, STATUS

TOO_LONG = "the simulated time passes 146 years"


class Replica:
    """One engine: a scheduler, its memory, and the time its iterations take."""

    def __init__(
        self, env: simpy.Environment, arrivals: Source, scheduler: Scheduler, cost: CostModel
    ) -> None:
        self.env = env
        self.arrivals = arrivals
        self.scheduler = scheduler
        self.allocator = scheduler.allocator
        self.cost = cost
        self.recorder = Recorder(int(env.now))
        self.single_step = False
        self.observe: Observer | None = None
        self.observe_end: Observer | None = None
        self.recording: Recorded | None = None
        self._num_scheduled = 0  # of the planned iterations, those whose tokens are written
        self.copies_kv = self.allocator.copies_kv
        self._counts_extrapolation = cost.counts_extrapolation
        self._num_copied = self._num_swapped = 0
        scheduler.notes_ends = arrivals.has_follow_ups
        self._rows = scheduler.running[:0]  # that run in the planned iterations
        refused = np.flatnonzero(scheduler.never_fits(scheduler.requests))
        self._refused = frozenset(refused.tolist())

    def record(self, recording: Recorded | None) -> None:
        """Let somebody keep every iteration, which turns sleeping off."""
        self.recording = recording
        self.single_step |= recording is not None

    def run(self) -> Generator[simpy.Event, None, None]:
        """The SimPy process: iterate until nothing is left that could change anything."""
        env, arrivals = self.env, self.arrivals
        recorder, scheduler, now = self.recorder, self.scheduler, int(env.now)
        follows = scheduler.notes_ends
        while True:
            while arrivals.next_ns <= now:
                self._arrive(now)
            if follows and scheduler.ended:
                self._release()
            count = 0 if self.single_step or scheduler.num_waiting else self._sleep(now)
            if count == 0:
                count = self._iterate(now)
            if count:
                end = recorder.boundaries.item(count)
                if end >= FOREVER_NS:
                    raise OverflowError(TOO_LONG)
                yield env.timeout(end - now)
                self._commit(count)
                now = end
                if follows and scheduler.ended:
                    self._release()
            elif arrivals.next_ns < FOREVER_NS:
                end = arrivals.next_ns
                yield env.timeout(end - now)
                self._record_idle(now)
                now = end
            else:
                return

    def _arrive(self, now_ns: int) -> None:
        """Hand the next arrival to the scheduler."""
        request = self.arrivals.pop()
        if request in self._refused:
            reason = self.scheduler.refusal(request)
            self.scheduler.reject(request, reason, now_ns)
        else:
            self.scheduler.add(request)

    def _release(self) -> None:
        """Requests have ended: those that follow them get their time, or will never come."""
        scheduler, requests = self.scheduler, self.scheduler.requests
        while scheduler.ended:
            request = scheduler.ended.pop()
            end_ns = requests.item(request, FINISH_NS)
            has_finished = requests.item(request, STATUS) == FINISHED
            for child in self.arrivals.ended(request, end_ns, has_finished):
                requests[child, ARRIVAL_NS] = end_ns
                scheduler.reject(child, f"follows request {request}, which did not finish", end_ns)

    def _sleep(self, now_ns: int) -> int:
        """Plan iterations that need no schedule(), because nobody waits; return how many."""
        scheduler = self.scheduler
        if not scheduler.is_steady:
            return 0
        self.recorder.boundaries[0] = now_ns
        self._num_scheduled = 0
        return self._plan(scheduler.batch.item(FIRST_FINISH), self.arrivals.next_ns)

    def _iterate(self, now_ns: int) -> int:
        """Schedule an iteration and plan those that would be decided alike; return how many."""
        scheduler, recorder = self.scheduler, self.recorder
        has_work = scheduler.schedule(now_ns)
        if scheduler.ended:
            self._release()
        if not has_work:
            return 0
        if not recorder.is_measuring:
            recorder.finished(scheduler.num_finished, now_ns)  # a schedule() may end a batch
        if self.copies_kv:
            self._note_copies()
        if self.observe is not None:
            self.observe(now_ns, scheduler)
        if self.recording is not None:
            self.recording.scheduled(now_ns, scheduler)
        recorder.boundaries[0] = now_ns
        recorder.log[0] = self.allocator.recorded
        self._num_scheduled = 1
        if self.single_step:
            return self._plan(1, FOREVER_NS)
        wakes = scheduler.num_waiting == 0 or scheduler.reorders_queue
        until_ns = self.arrivals.next_ns if wakes else FOREVER_NS
        return self._plan(1 + scheduler.max_sleep(), until_ns)

    def _note_copies(self) -> None:
        """The iteration begins with the copies and swaps that its schedule() has caused."""
        batch, copied = self.scheduler.batch, self.allocator.copied_tokens()
        batch[COPIED_TOKENS] = copied - self._num_copied
        self._num_copied = copied
        if self.allocator.can_swap:
            swapped, num_slots = self.allocator.num_swapped_blocks()
            if swapped != self._num_swapped:
                without = self.cost.iteration_s(batch)
                batch[SWAPPED_BLOCKS] = swapped - self._num_swapped
                batch[SWAPPED_TOKENS] = num_slots * (swapped - self._num_swapped)
                self.recorder.swap_s += self.cost.iteration_s(batch) - without
                self._num_swapped = swapped

    def _plan(self, limit: int, until_ns: int) -> int:
        """Time at most limit iterations, up to the one in which until_ns comes; return how many.

        Those beyond _num_scheduled have no memory yet: the plan ends before it would run out.
        """
        scheduler, scheduled = self.scheduler, self._num_scheduled
        count = self.cost.plan(scheduler.batch, self.recorder.boundaries, limit, until_ns)
        if count > scheduled:
            self._rows = scheduler.running[: scheduler.num_running]
            more = self.allocator.can_append(self._rows, count - scheduled)
            head = scheduler.head_row if scheduler.num_waiting else None
            if head is not None and more:
                more = self.allocator.until_findable(head, self._rows, more)
                if scheduler.minds_shorter_hits:
                    more = self.allocator.until_lost(head, self._rows, more)
            count = scheduled + more
        return count

    def _commit(self, count: int) -> None:
        """The planned iterations have passed: write their tokens, record them, end them."""
        scheduler, recorder = self.scheduler, self.recorder
        num_running = scheduler.num_in_service
        num_waiting = scheduler.num_waiting
        scheduled = self._num_scheduled
        if count > scheduled:
            log = recorder.log[scheduled:count]
            self.allocator.append_ahead(self._rows, count - scheduled, log)
        if num_waiting:
            self._record_queued(count, num_running)
        else:
            recorder.unqueued(count, num_running)
        if self._counts_extrapolation:
            self.cost.passed(scheduler.batch, count)
        scheduler.complete(recorder.boundaries, count)
        if self.observe_end is not None:
            self.observe_end(recorder.boundaries.item(count), scheduler)
        if self.recording is not None:
            self.recording.ended(recorder.boundaries.item(count))
        if not recorder.is_measuring:
            recorder.finished(scheduler.num_finished, recorder.boundaries.item(count))

    def _record_queued(self, count: int, num_running: int) -> None:
        """Record iterations during which requests wait; more of them may have joined."""
        scheduler, recorder, arrivals = self.scheduler, self.recorder, self.arrivals
        num_waiting = scheduler.num_waiting
        is_fragmented = False
        if scheduler.blocked == MEMORY:
            start_ns = recorder.boundaries.item(0)
            recorder.memory_full(num_running, scheduler.num_finished, start_ns)
            row = scheduler.head_row
            is_fragmented = row is not None and self.allocator.fragmented_for(row)
        starts = recorder.boundaries[:count]
        joined = recorder.joined[:count]
        last_start = starts.item(count - 1)
        while arrivals.next_ns <= last_start:
            i = int(np.searchsorted(starts, arrivals.next_ns))
            self._arrive(starts.item(i))
            if scheduler.ended:
                self._release()  # whoever was refused may ask again before the last start
            joined[i:] = scheduler.num_waiting - num_waiting
        is_queued = scheduler.blocked != TOKEN_BUDGET
        recorder.iterations(count, num_running, num_waiting, is_queued, is_fragmented)
        joined.fill(0)

    def _record_idle(self, since_ns: int) -> None:
        recorder = self.recorder
        recorder.boundaries[:2] = (since_ns, self.env.now)
        recorder.log[0] = self.allocator.recorded
        recorder.idle(self.scheduler.num_waiting)
        if self.recording is not None:
            self.recording.idle(since_ns, int(self.env.now), self.scheduler)
