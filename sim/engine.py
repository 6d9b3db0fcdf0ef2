"""The discrete-event model: arrivals and a replica that runs iterations. SimPy owns the clock.

Time is a whole number of nanoseconds. At a boundary a replica applies its own finishes, takes
every arrival up to now in order of (time, request id), and schedules; the order in which SimPy
processes events of one instant never decides anything, because the replica pulls.

Sleeping: while nothing but decoding happens, many iterations are one event. They are planned
first, which changes nothing, and committed when they have passed, block by block in the order in
which single steps would have gone. `single_step` turns sleeping off; results are the same.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass

import numpy as np
import simpy

from sim.allocators.base import Allocator
from sim.costs.base import CostModel
from sim.recorder import MAX_STRETCH, Recorder
from sim.schedulers.base import MEMORY, TOKEN_BUDGET, Scheduler
from sim.sequence import ARRIVAL_NS, IntArray, SequenceTable

FOREVER_NS = 1 << 62

Observer = Callable[[int, Scheduler], None]
"""Called with the time and the scheduler after every schedule(); it must not change anything."""


@dataclass(frozen=True)
class Run:
    """What a simulation leaves behind: outcomes by request, time integrals, final state.

    status is `finished` or `stalled`; reason says why it stalled.
    """

    requests: IntArray
    recorder: Recorder
    scheduler: Scheduler
    allocator: Allocator
    status: str
    reason: str
    start_ns: int
    end_ns: int


class Arrivals:
    """Requests that have not arrived yet, in order of (time, request id)."""

    def __init__(self, requests: IntArray) -> None:
        self._times = requests[:, ARRIVAL_NS].copy()
        self._next = 0
        self.next_ns: int = self._times.item(0) if len(self._times) else FOREVER_NS

    def pop(self) -> int:
        """Take the request that arrives at next_ns."""
        request = self._next
        self._next += 1
        has_more = self._next < len(self._times)
        self.next_ns = self._times.item(self._next) if has_more else FOREVER_NS
        return request


class Replica:
    """One engine: a scheduler, its memory, and the time its iterations take."""

    def __init__(
        self, env: simpy.Environment, arrivals: Arrivals, scheduler: Scheduler, cost: CostModel
    ) -> None:
        self.env = env
        self.arrivals = arrivals
        self.scheduler = scheduler
        self.allocator = scheduler.allocator
        self.cost = cost
        self.recorder = Recorder(arrivals.next_ns)
        self.single_step = False
        self.observe: Observer | None = None
        self._is_refused = scheduler.never_fits(scheduler.requests)

    def run(self) -> Generator[simpy.Event, None, None]:
        """The SimPy process: iterate until nothing is left that could change anything."""
        env, arrivals, scheduler = self.env, self.arrivals, self.scheduler
        while True:
            now = int(env.now)
            while arrivals.next_ns <= now:
                self._arrive(now)
            if scheduler.schedule(now):
                if self.observe is not None:
                    self.observe(now, scheduler)
                count = self._plan(now)
                yield env.timeout(self.recorder.boundaries.item(count) - now)
                self._commit(count)
            elif arrivals.next_ns < FOREVER_NS:
                yield env.timeout(arrivals.next_ns - now)
                self._record_idle(now)
            else:
                return

    def _arrive(self, now_ns: int) -> None:
        """Hand the next arrival to the scheduler."""
        request = self.arrivals.pop()
        if self._is_refused.item(request):
            reason = self.scheduler.refusal(request)
            self.scheduler.reject(request, reason, now_ns)
        else:
            self.scheduler.add(request)

    def _plan(self, now_ns: int) -> int:
        """Time the iteration just scheduled and those that can be slept over; return how many."""
        scheduler, recorder = self.scheduler, self.recorder
        recorder.log[0] = self.allocator.terms
        recorder.boundaries[0] = now_ns
        ahead = 0 if self.single_step else min(scheduler.max_sleep(), MAX_STRETCH - 1)
        wakes = scheduler.num_waiting == 0 or scheduler.reorders_queue
        until_ns = self.arrivals.next_ns if wakes else FOREVER_NS
        count = self.cost.plan(scheduler.batch, recorder.boundaries, 1 + ahead, until_ns)
        if count > 1:
            rows = scheduler.running[: scheduler.num_running]
            count = 1 + self.allocator.can_append(rows, count - 1)
        return count

    def _commit(self, count: int) -> None:
        """The planned iterations have passed: write their tokens, record them, end them."""
        scheduler, recorder = self.scheduler, self.recorder
        num_running = scheduler.num_running
        is_queued = scheduler.num_waiting > 0 and scheduler.blocked != TOKEN_BUDGET
        is_fragmented = False
        if scheduler.blocked == MEMORY:
            recorder.memory_full(num_running)
            row = scheduler.head_row
            is_fragmented = row is not None and self.allocator.fragmented_for(row)
        if count > 1:
            rows = scheduler.running[:num_running]
            self.allocator.append_ahead(rows, count - 1, recorder.log[1:count])
            self._queue_while_asleep(count)
        else:
            recorder.waiting[0] = scheduler.num_waiting
        recorder.iterations(count, num_running, is_queued, is_fragmented)
        scheduler.complete(recorder.boundaries, count)
        recorder.finished(scheduler.num_finished, recorder.boundaries.item(count))

    def _queue_while_asleep(self, count: int) -> None:
        """Arrivals that joined the queue at boundaries inside a sleep, and the queue's length."""
        recorder, arrivals, scheduler = self.recorder, self.arrivals, self.scheduler
        starts = recorder.boundaries[:count]
        waiting = recorder.waiting[:count]
        waiting.fill(scheduler.num_waiting)
        last_start = starts.item(count - 1)
        while arrivals.next_ns <= last_start:
            i = int(np.searchsorted(starts, arrivals.next_ns))
            self._arrive(starts.item(i))
            waiting[i:] = scheduler.num_waiting

    def _record_idle(self, since_ns: int) -> None:
        recorder = self.recorder
        recorder.boundaries[:2] = (since_ns, self.env.now)
        recorder.log[0] = self.allocator.terms
        recorder.waiting[0] = self.scheduler.num_waiting
        recorder.idle()


@dataclass(frozen=True)
class Memory:
    """The pool: its slots, and the longest a sequence may become."""

    num_slots: int
    max_model_len: int


@dataclass(frozen=True)
class Options:
    """How to run: without sleeps, and with somebody who looks at every iteration."""

    single_step: bool = False
    observe: Observer | None = None


def simulate(
    requests: IntArray,
    memory: Memory,
    allocator: Allocator,
    scheduler: Scheduler,
    cost: CostModel,
    options: Options = Options(),
) -> Run:
    """Run requests (see sim.sequence, in order of arrival) to the end.

    requests receives the outcomes. An observer sees every iteration, so it turns sleeping off.
    Raises ValueError if the allocator cannot use the pool.
    """
    sequences = SequenceTable()
    allocator.bind(memory.num_slots, sequences, memory.max_model_len)
    scheduler.bind(requests, sequences, allocator)
    arrivals = Arrivals(requests)
    start_ns = arrivals.next_ns
    env = simpy.Environment(initial_time=start_ns)
    replica = Replica(env, arrivals, scheduler, cost)
    replica.single_step = options.single_step or options.observe is not None
    replica.observe = options.observe
    env.process(replica.run())
    env.run()
    stalled = scheduler.num_waiting > 0
    return Run(
        requests=requests,
        recorder=replica.recorder,
        scheduler=scheduler,
        allocator=allocator,
        status="stalled" if stalled else "finished",
        reason=_stall_reason(scheduler) if stalled else "",
        start_ns=start_ns,
        end_ns=int(env.now),
    )


def _stall_reason(scheduler: Scheduler) -> str:
    count = scheduler.num_waiting
    return f"{count} requests wait, nothing runs, and no event is left that could admit the first"
