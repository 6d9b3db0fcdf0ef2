"""What a simulation is given beside its parts: the pool, and how to run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from sim.arrivals import FollowUps
from sim.branching import Branches
from sim.schedulers.base import Scheduler
from workloads.sequences import SequenceContent

Observer = Callable[[int, Scheduler], None]
"""Called with the time and the scheduler; it must not change anything."""


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
    says how requests fork; without it none does.
    """

    single_step: bool = False
    observe: Observer | None = None
    follow_ups: FollowUps | None = None
    content: SequenceContent | None = None
    branches: Branches | None = None
    observe_end: Observer | None = None


PLAIN = Options()
