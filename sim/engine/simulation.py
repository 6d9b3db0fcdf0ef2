"""The discrete-event model of one engine, from requests to outcomes. SimPy owns the clock.

Time is a whole number of nanoseconds. replica.py has what happens at it, fleet.py several replicas
behind a router.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import simpy

from sim.allocators.base import Allocator
from sim.costs.base import CostModel
from sim.engine.arrivals import Arrivals, FollowUps
from sim.engine.options import PLAIN, Memory, Observer, Options
from sim.engine.recorder import Recorder
from sim.engine.replica import Replica
from sim.schedulers.base import Scheduler
from sim.sequence import PENDING, STATUS, IntArray, SequenceTable

__all__ = ["Memory", "Observer", "Options", "Run", "simulate"]


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


def simulate(
    requests: IntArray,
    memory: Memory,
    allocator: Allocator,
    scheduler: Scheduler,
    cost: CostModel,
    options: Options = PLAIN,
) -> Run:
    """Run requests (see sim.sequence, in order of arrival) to the end.

    requests receives the outcomes, and the times at which follow-ups arrive. An observer sees
    every iteration, so it turns sleeping off.
    Raises ValueError if the allocator cannot use the pool.
    """
    bind_parts(requests, memory, allocator, scheduler, options)
    arrivals = Arrivals(requests, options.follow_ups)
    start_ns = arrivals.next_ns if len(requests) else 0
    env = simpy.Environment(initial_time=start_ns)
    replica = Replica(env, arrivals, scheduler, cost)
    is_observed = options.observe is not None or options.observe_end is not None
    replica.single_step = options.single_step or is_observed
    replica.observe, replica.observe_end = options.observe, options.observe_end
    replica.record(options.recording(0))
    replica.copies_kv |= options.branches is not None
    env.process(replica.run())
    env.run()
    if replica.recording is not None:
        own = arrived(requests, options.follow_ups)
        replica.recording.close(int(env.now), scheduler, own)
    reason = stall_reason(scheduler)
    return Run(
        requests=requests,
        recorder=replica.recorder,
        scheduler=scheduler,
        allocator=allocator,
        status="stalled" if reason else "finished",
        reason=reason,
        start_ns=start_ns,
        end_ns=int(env.now),
    )


def bind_parts(
    requests: IntArray, memory: Memory, allocator: Allocator, scheduler: Scheduler, options: Options
) -> None:
    """Give an allocator and a scheduler the pool, a table of sequences, and the requests.

    Raises ValueError if the allocator cannot use the pool.
    """
    sequences = SequenceTable()
    allocator.bind(memory.num_slots, sequences, memory.max_model_len)
    if options.content is not None:
        allocator.bind_content(options.content)
    if options.branches is not None:
        scheduler.bind_branches(options.branches)
    scheduler.bind(requests, sequences, allocator)


def arrived(requests: IntArray, follow_ups: FollowUps | None) -> IntArray:
    """The requests of a run that has ended which arrived, or have been told never to."""
    has_come = np.ones(len(requests), np.bool_)
    if follow_ups is not None:
        is_pending = requests[:, STATUS] == PENDING
        parent = follow_ups.parent
        has_come = ~(is_pending & (parent >= 0) & is_pending[parent])
    return np.flatnonzero(has_come)


def stall_reason(scheduler: Scheduler) -> str:
    """Why a simulation has ended with requests that wait; empty if none does."""
    count = scheduler.num_waiting
    if count == 0:
        return ""
    return f"{count} requests wait, nothing runs, and no event is left that could admit the first"
