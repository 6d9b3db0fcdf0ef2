"""What a simulation is given beside its parts: the pool, and how to run."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from sim.branching import Branches
from sim.engine.arrivals import FollowUps
from sim.schedulers.base import Scheduler
from workloads.sequences import SequenceContent

Observer = Callable[[int, Scheduler], None]
"""Called with the time and the scheduler; it must not change anything."""


class Recorded(Protocol):
    """Somebody who keeps what a replica does, iteration by iteration, and changes nothing."""

    def scheduled(self, now_ns: int, scheduler: Scheduler) -> None:
        """An iteration begins: schedule() has been called."""

    def ended(self, end_ns: int) -> None:
        """The iteration has ended."""

    def idle(self, since_ns: int, end_ns: int, scheduler: Scheduler) -> None:
        """Nothing has run in this time, and nothing has changed."""

    def close(self, end_ns: int, scheduler: Scheduler, own: Iterable[int]) -> None:
        """The run has ended; own are the requests that have arrived at this replica."""


@dataclass(frozen=True)
class Memory:
    """The pool: its slots, and the longest a sequence may become."""

    num_slots: int
    max_model_len: int


@dataclass(frozen=True)
class Options:
    """How to run: without sleeps, with somebody who looks at every iteration, with follow-ups.

    observe sees the state after every schedule(), observe_end that at every iteration's end.
    content is what the sequences consist of; without it no two of them share anything. branches
    says how requests fork; without it none does. recordings are one for each replica, or none.
    """

    single_step: bool = False
    observe: Observer | None = None
    follow_ups: FollowUps | None = None
    content: SequenceContent | None = None
    branches: Branches | None = None
    observe_end: Observer | None = None
    recordings: Sequence[Recorded] = ()

    def recording(self, replica: int) -> Recorded | None:
        """Who keeps what a replica does; None if nobody does."""
        return self.recordings[replica] if self.recordings else None


PLAIN = Options()
