"""Several replicas behind a router, on one clock.

At an instant, first every replica applies the iterations that end; then a router says where each
request goes that arrives, in order of request id; then those at a boundary schedule. So what a
router sees never depends on the order of SimPy's events, and one process does for all replicas.

Replicas sleep as a single one does, without knowing when they will be sent a request. One that is
sent a request that it must see is cut short: of the planned iterations those remain that have
begun. Plans change nothing before they are committed, and of a plan any first part is one, so
that results are those of single steps. A router that reads prefixes lets replicas write what has
been scheduled by now, as single steps would have done.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import simpy

from sim.allocators.base import Allocator
from sim.costs.base import CostModel
from sim.engine.arrivals import FOREVER_NS, Arrivals
from sim.engine.options import PLAIN, Options
from sim.engine.replica import TOO_LONG, Replica
from sim.engine.simulation import Memory, Run, bind_parts, stall_reason
from sim.routers.base import Router
from sim.schedulers.base import Scheduler
from sim.sequence import IntArray


class Parts(NamedTuple):
    """What one replica is made of."""

    allocator: Allocator
    scheduler: Scheduler
    cost: CostModel


@dataclass(frozen=True)
class FleetRun:
    """What a simulation of several replicas leaves behind.

    requests are all requests, replica_of the number of the replica that each was sent to (-1: it
    never arrived). replicas are the runs of the replicas, each with its own requests only, all over
    the same time. num_running_max is the most that ran at once in all of them. A request that
    follows one which did not finish counts where that was.
    """

    requests: IntArray
    replica_of: IntArray
    replicas: tuple[Run, ...]
    num_running_max: int
    status: str
    reason: str
    start_ns: int
    end_ns: int


class Inbox:
    """The requests that a replica was sent and has not seen: it pulls them as from Arrivals."""

    has_follow_ups = True  # the router wants to know which requests end

    def __init__(self, arrivals: Arrivals, number: int, replica_of: IntArray) -> None:
        self.next_ns = FOREVER_NS
        self.num_requests = 0  # sent, and not ended
        self._arrivals, self._number, self._replica_of = arrivals, number, replica_of
        self._sent: deque[tuple[int, int]] = deque()

    def send(self, request: int, now_ns: int) -> None:
        """Add a request that arrives now."""
        self._sent.append((now_ns, request))
        self._count(request)
        self.next_ns = self._sent[0][0]

    def pop(self) -> int:
        """Take the request that arrived at next_ns."""
        request = self._sent.popleft()[1]
        self.next_ns = self._sent[0][0] if self._sent else FOREVER_NS
        return request

    def ended(self, request: int, end_ns: int, has_finished: bool) -> list[int]:
        """A request has ended. Return those that will never come for it: they end here, too."""
        self.num_requests -= 1
        lost = self._arrivals.ended(request, end_ns, has_finished)
        for child in lost:
            self._count(child)
        return lost

    def _count(self, request: int) -> None:
        self.num_requests += 1
        self._replica_of[request] = self._number


class FleetReplica(Replica):
    """A replica that is told when its iterations begin and end.

    end_ns is when those end that it is in; FOREVER_NS while it is in none.
    """

    def __init__(self, env: simpy.Environment, inbox: Inbox, parts: Parts) -> None:
        super().__init__(env, inbox, parts.scheduler, parts.cost)
        self.inbox = inbox
        self.end_ns = FOREVER_NS
        self.num_in_flight = 0  # requests in the iterations that it is in
        self._count = 0  # of these iterations
        self._idle_since_ns = int(env.now)

    @property
    def num_requests(self) -> int:
        """Requests that were sent to it and have not ended."""
        return self.inbox.num_requests

    def lookup(self, request: int) -> int:
        """Tokens of the request's prompt that its memory holds, after `settle`."""
        sequences = self.scheduler.sequences
        row = sequences.open(self.scheduler.requests, request)
        num_tokens = self.allocator.lookup(row)
        sequences.close(row)
        return num_tokens

    def begin(self, now_ns: int) -> None:
        """At a boundary, or woken: take what was sent and plan iterations, if there are any."""
        if self._idle_since_ns < now_ns:
            self._record_idle(self._idle_since_ns)
        self._idle_since_ns = now_ns
        while self.arrivals.next_ns <= now_ns:
            self._arrive(now_ns)
        self._release()
        scheduler = self.scheduler
        count = 0 if self.single_step or scheduler.num_waiting else self._sleep(now_ns)
        self._count = count or self._iterate(now_ns)
        if self._count:
            self.end_ns = self.recorder.boundaries.item(self._count)
            self.num_in_flight = scheduler.num_in_service
            if self.end_ns >= FOREVER_NS:
                raise OverflowError(TOO_LONG)

    def end(self, now_ns: int) -> None:
        """The iterations that it is in have ended."""
        self._commit(self._count)
        self._count = self.num_in_flight = 0
        self.end_ns = FOREVER_NS
        self._idle_since_ns = now_ns
        self._release()

    def rest(self) -> None:
        """Nothing will happen any more: it has been idle until now."""
        self._record_idle(self._idle_since_ns)

    def send(self, request: int, now_ns: int) -> bool:
        """A request arrives; whether the replica must begin now."""
        self.inbox.send(request, now_ns)
        if not self._count:
            return True
        scheduler = self.scheduler
        must_see = scheduler.num_waiting == 0 or scheduler.reorders_queue
        if must_see or request in self._refused:
            return self._cut(now_ns)
        return False

    def settle(self, now_ns: int) -> bool:
        """Write what was scheduled before now; whether the replica must begin now."""
        if self._count <= self._num_scheduled:
            return False
        begun = self._num_begun(now_ns)
        if self.recorder.boundaries.item(begun) == now_ns:
            return self._cut(now_ns)
        scheduled = self._num_scheduled
        if begun > scheduled:
            log = self.recorder.log[scheduled:begun]
            self.allocator.append_ahead(self._rows, begun - scheduled, log)
            self._num_scheduled = begun
        return False

    def _cut(self, now_ns: int) -> bool:
        """Forget the planned iterations that have not begun before now; whether none is left."""
        self._count = self._num_begun(now_ns)
        self.end_ns = self.recorder.boundaries.item(self._count)
        if self.end_ns > now_ns:
            return False
        self.end(now_ns)
        return True

    def _num_begun(self, now_ns: int) -> int:
        """How many of the planned iterations have begun before now."""
        return int(np.searchsorted(self.recorder.boundaries[: self._count + 1], now_ns))


class Fleet:
    """Replicas and their router: the process that moves them all."""

    def __init__(
        self,
        env: simpy.Environment,
        arrivals: Arrivals,
        replicas: Sequence[FleetReplica],
        router: Router,
    ) -> None:
        self.env, self.arrivals, self.replicas, self.router = env, arrivals, replicas, router
        self.num_running_max = 0
        self._ends: list[tuple[int, int]] = []  # a heap of (end_ns, replica), some out of date
        self._due: set[int] = set()  # replicas that begin at this instant
        self._num_running = 0
        self._running = [0] * len(replicas)

    def run(self) -> Generator[simpy.Event, None, None]:
        """The SimPy process: until nothing is left that could change anything."""
        arrivals, now = self.arrivals, int(self.env.now)
        while True:
            while self._next_end() <= now:
                number = heapq.heappop(self._ends)[1]
                self.replicas[number].end(now)
                self._due.add(number)
            while arrivals.next_ns <= now:
                self._route(now)
            self._begin(now)
            next_ns = min(arrivals.next_ns, self._next_end())
            if next_ns >= FOREVER_NS:
                break
            yield self.env.timeout(next_ns - now)
            now = next_ns
        for replica in self.replicas:
            replica.rest()

    def _next_end(self) -> int:
        """When the next iterations end; what is out of date is dropped."""
        ends = self._ends
        while ends and self.replicas[ends[0][1]].end_ns != ends[0][0]:
            heapq.heappop(ends)
        return ends[0][0] if ends else FOREVER_NS

    def _route(self, now_ns: int) -> None:
        """Send the next arrival to a replica."""
        request = self.arrivals.pop()
        if self.router.reads_prefixes:
            self._due.update(i for i, other in enumerate(self.replicas) if other.settle(now_ns))
        number = self._checked(self.router.route(request, self.replicas))
        replica = self.replicas[number]
        end_ns = replica.end_ns
        if replica.send(request, now_ns):
            self._due.add(number)
        elif replica.end_ns != end_ns:
            heapq.heappush(self._ends, (replica.end_ns, number))

    def _checked(self, number: Any) -> int:
        """The number of a replica that a router, which may be anybody's, has given."""
        is_whole = isinstance(number, int | np.integer) and not isinstance(number, bool)
        if not is_whole or not 0 <= number < len(self.replicas):
            accepted = f"accepted: 0 to {len(self.replicas) - 1}"
            raise ValueError(f"{self.router.kind}: route gives {number!r}; {accepted}")
        return int(number)

    def _begin(self, now_ns: int) -> None:
        """Let replicas at a boundary begin."""
        for number in sorted(self._due):
            replica = self.replicas[number]
            replica.begin(now_ns)
            if replica.end_ns < FOREVER_NS:
                heapq.heappush(self._ends, (replica.end_ns, number))
            self._num_running += replica.num_in_flight - self._running[number]
            self._running[number] = replica.num_in_flight
        self._due.clear()
        self.num_running_max = max(self.num_running_max, self._num_running)


def simulate_fleet(
    requests: IntArray,
    memory: Memory,
    replicas: Sequence[Parts],
    router: Router,
    session: IntArray | None = None,
    options: Options = PLAIN,
) -> FleetRun:
    """Run requests (see sim.sequence, in order of arrival) on replicas behind a router, to the end.

    memory is that of each replica; session is the session of each request. requests receives the
    outcomes, and the times at which follow-ups arrive. Observers are not asked, recordings are.
    Raises ValueError if an allocator cannot use the pool.
    """
    arrivals = Arrivals(requests, options.follow_ups)
    replica_of: IntArray = np.full(len(requests), -1)
    start_ns = arrivals.next_ns if len(requests) else 0
    env = simpy.Environment(initial_time=start_ns)
    members = []
    for number, parts in enumerate(replicas):
        bind_parts(requests, memory, parts.allocator, parts.scheduler, options)
        member = FleetReplica(env, Inbox(arrivals, number, replica_of), parts)
        member.single_step = options.single_step
        member.record(options.recording(number))
        member.copies_kv |= options.branches is not None
        members.append(member)
    router.bind(len(members), requests, session)
    fleet = Fleet(env, arrivals, members, router)
    env.process(fleet.run())
    env.run()
    return _fleet_run(fleet, requests, replica_of, start_ns)


def _fleet_run(fleet: Fleet, requests: IntArray, replica_of: IntArray, start_ns: int) -> FleetRun:
    end_ns = int(fleet.env.now)
    runs = []
    for number, replica in enumerate(fleet.replicas):
        own = np.flatnonzero(replica_of == number)
        if replica.recording is not None:
            replica.recording.close(end_ns, replica.scheduler, own)
        reason = stall_reason(replica.scheduler)
        status = "stalled" if reason else "finished"
        parts = replica.recorder, replica.scheduler, replica.allocator
        runs.append(Run(requests[own], *parts, status, reason, start_ns, end_ns))
    reasons = [f"replica {i}: {run.reason}" for i, run in enumerate(runs) if run.reason]
    return FleetRun(
        requests=requests,
        replica_of=replica_of,
        replicas=tuple(runs),
        num_running_max=fleet.num_running_max,
        status="stalled" if reasons else "finished",
        reason="; ".join(reasons),
        start_ns=start_ns,
        end_ns=end_ns,
    )
