"""The router contract: every request goes to one replica that exists, and sleep is unseen."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from typing import Any, ClassVar

import numpy as np

from sim.allocators.prefix import Prefix
from sim.costs.linear import Linear
from sim.engine.fleet import FleetRun, Parts, simulate_fleet
from sim.engine.options import Memory, Options
from sim.engine.simulation import simulate
from sim.routers.base import Router, Server
from sim.schedulers.vllm_v1 import VllmV1
from sim.sequence import IntArray, Limits, new_requests
from sim.testing.rules import made, require
from workloads.content import ContentBuilder
from workloads.sequences import SequenceContent

MEMORY = Memory(120, 80)
NUM_REQUESTS = 40


def check_router(factory: Callable[[], Router], seeds: Iterable[int] = range(10)) -> None:
    """Run the router contract over random requests and one to four replicas.

    factory makes a router that is not bound yet: the class itself, if it needs no parameters.
    Raises ContractError with the rule that is broken.

    >>> import sim.testing
    >>> from sim.routers import ROUTERS
    >>> sim.testing.check_router(ROUTERS["least_loaded"], seeds=range(2))
    """
    router = made(factory, Router)
    for seed in seeds:
        count = 1 + seed % 4
        slept, stepped = (_fleet(Watched(factory()), count, seed, step) for step in (False, True))
        is_same = np.array_equal(slept.replica_of, stepped.replica_of)
        rule = "sends requests elsewhere when replicas sleep; it may know only what it asks them"
        require(is_same, router, f"{rule} (seed {seed}, {count} replicas)")
        rule = "requests end otherwise when replicas sleep"
        require(np.array_equal(slept.requests, stepped.requests), router, rule)
        require(slept.status == "finished", router, f"the run stalls: {slept.reason}")
        if count == 1:
            alone = simulate(_requests(seed), MEMORY, *_parts(), _options(seed, False))
            rule = "one replica behind it is not what one is without it"
            require(np.array_equal(slept.requests, alone.requests), router, rule)


class Watched(Router):
    """Asks another router, and looks at what it answers and what it asks."""

    kind: ClassVar[str] = "watched"

    def __init__(self, inner: Router) -> None:
        self.inner = inner
        vars(self).update(needs=inner.needs, reads_prefixes=inner.reads_prefixes)

    def bind(self, num_replicas: int, requests: IntArray, session: IntArray | None) -> None:
        super().bind(num_replicas, requests, session)
        self.inner.bind(num_replicas, requests, session)

    def route(self, request: int, replicas: Sequence[Server]) -> int:
        may_look = self.inner.reads_prefixes
        asked = replicas if may_look else [_Blind(replica, self.inner) for replica in replicas]
        number: Any = self.inner.route(request, asked)
        is_one = isinstance(number, int | np.integer) and 0 <= number < self.num_replicas
        accepted = f"accepted: 0 to {self.num_replicas - 1}"
        require(bool(is_one), self.inner, f"route gives {number!r}; {accepted}")
        return int(number)


class _Blind:
    """A replica whose memory is not to be asked."""

    def __init__(self, inner: Server, router: Router) -> None:
        self._inner, self._router = inner, router

    @property
    def num_requests(self) -> int:
        return self._inner.num_requests

    def lookup(self, request: int) -> int:
        require(False, self._router, "calls lookup; reads_prefixes must be True")
        return self._inner.lookup(request)


def _parts() -> Parts:
    cost = Linear(1e-6, 1e-8, 1e-9, 1e-9)
    return Parts(Prefix(block_size=4), VllmV1(max_num_seqs=4), cost)


def _fleet(router: Router, count: int, seed: int, single_step: bool) -> FleetRun:
    replicas = [_parts() for _ in range(count)]
    session = np.arange(NUM_REQUESTS) // 3
    how = _options(seed, single_step)
    return simulate_fleet(_requests(seed), MEMORY, replicas, router, session, how)


def _requests(seed: int) -> IntArray:
    rng = random.Random(seed)
    arrivals = np.array(sorted(rng.randrange(0, 40_000, 500) for _ in range(NUM_REQUESTS)))
    lengths = [(rng.randint(1, 40), rng.randint(1, 20)) for _ in range(NUM_REQUESTS)]
    prompts, outputs = np.array(lengths, np.int64).T
    return new_requests(arrivals, prompts, outputs, Limits(MEMORY.max_model_len, outputs))


def _options(seed: int, single_step: bool) -> Options:
    """Prompts that begin with one of three texts."""
    rng = random.Random(seed)
    builder = ContentBuilder()
    for number, prompt in enumerate(_requests(seed)[:, 0].tolist()):
        alike = rng.randint(0, prompt)
        builder.add([(rng.randint(1, 3), 0, alike), (1000 + number, 0, prompt - alike)], prompt)
    return Options(single_step=single_step, content=SequenceContent(builder.build()))
