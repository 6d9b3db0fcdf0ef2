"""Every registered router serves every request once, and the same asleep as step by step."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from sim.engine.fleet import FleetRun, Parts, simulate_fleet
from sim.engine.options import Memory
from sim.routers import ROUTERS, Router
from sim.routers.base import Server
from sim.sequence import ARRIVAL_NS, FINISH_NS, NUM_SLOTS, PENDING, REJECTED, STATUS, IntArray
from sim.testing import CheckedAllocator, check_router
from sleep_examples import (
    TICK_NS,
    Beginning,
    Example,
    choose_example,
    left_behind,
    parts_of,
    requests_and_options,
    run_example,
)

PARAMETERS: dict[str, list[dict[str, Any]]] = {
    "least_loaded": [{}],
    "prefix_aware": [
        {"cache_threshold": 0.0},
        {"balance_abs_threshold": 1, "balance_rel_threshold": 1.0},
    ],
    "round_robin": [{}],
    "session_affinity": [{}],
}
ROUTERS_HERE = [(kind, parameters) for kind in ROUTERS for parameters in PARAMETERS[kind]]
every_router = pytest.mark.parametrize(("kind", "parameters"), ROUTERS_HERE)


def example_of(seed: int) -> Example:
    return choose_example(random.Random(seed).randint)


def run_fleet(
    example: Example,
    router: Router,
    count: int,
    single_step: bool = False,
    wrap: Callable[[Parts], Parts] = lambda parts: parts,
) -> FleetRun:
    requests, how = requests_and_options(example, single_step)
    replicas = [wrap(Parts(*parts_of(example))) for _ in range(count)]
    memory = Memory(example.num_slots, example.max_model_len)
    session = np.arange(len(requests)) // 3
    return simulate_fleet(requests, memory, replicas, router, session, how)


def assert_served_once(run: FleetRun) -> None:
    """Every request has an outcome at the one replica that it was sent to, and nothing is left."""
    status = run.requests[:, STATUS]
    assert (run.replica_of[status != PENDING] >= 0).all()
    assert sum(len(replica.requests) for replica in run.replicas) == (run.replica_of >= 0).sum()
    for number, replica in enumerate(run.replicas):
        own = set(np.flatnonzero(run.replica_of == number).tolist())
        assert set(replica.scheduler.reasons) <= own
        done = len(own) - (replica.requests[:, STATUS] == PENDING).sum()
        assert replica.scheduler.num_finished + len(replica.scheduler.reasons) == done
        assert_lives_are_ordered(replica.requests)
        if replica.status == "finished":
            assert done == len(own)
            assert not replica.scheduler.sequences.rows[:, NUM_SLOTS].any()
            replica.allocator.check(np.empty(0, np.int64))


def assert_lives_are_ordered(requests: IntArray) -> None:
    ended = requests[requests[:, STATUS] != PENDING]
    assert (ended[:, FINISH_NS] >= ended[:, ARRIVAL_NS]).all()


def assert_conserves(run: FleetRun) -> None:
    """Each replica's six terms and its time add up, over all of the run."""
    for replica in run.replicas:
        if replica.allocator.kind == "unbounded":
            continue  # holds more than the pool
        timeline = replica.recorder.timeline()
        names = ("token_states", "reserved", "internal", "external", "cached", "free")
        integral = sum(sum(timeline[name]) for name in names)
        assert integral == replica.allocator.num_slots * (run.end_ns - run.start_ns)


def all_of(run: FleetRun) -> list[Any]:
    """All that a run leaves behind."""
    replicas = [left_behind(replica) for replica in run.replicas]
    own = run.requests.tolist(), run.replica_of.tolist(), run.num_running_max
    return [own, (run.status, run.reason, run.start_ns, run.end_ns), *replicas]


def test_every_router_has_parameters_here() -> None:
    assert set(PARAMETERS) == set(ROUTERS)


@every_router
def test_every_request_is_served_once_and_asleep_as_step_by_step(
    kind: str, parameters: dict[str, Any]
) -> None:
    num_used = num_hit = num_asleep = 0
    for seed in range(150):
        example, count = example_of(7000 + seed), 1 + seed % 4
        slept = run_fleet(example, ROUTERS[kind](**parameters), count)
        stepped = run_fleet(example, ROUTERS[kind](**parameters), count, single_step=True)
        for name, one in zip(all_of(slept), all_of(stepped), strict=True):
            assert name == one, f"seed {seed}: {example}"
        assert_served_once(slept)
        assert_conserves(slept)
        num_used += len(set(slept.replica_of.tolist()) - {-1}) > 1
        num_hit += sum(r.scheduler.counters().get("num_hit_tokens", 0) for r in slept.replicas)
        num_asleep += slept.status == "finished"
    assert num_used > 50, "no example uses several replicas"
    assert num_hit > 100, "nothing is found in any cache"
    assert num_asleep > 100


@every_router
def test_every_router_passes_the_suite_for_plug_ins(kind: str, parameters: dict[str, Any]) -> None:
    check_router(lambda: ROUTERS[kind](**parameters))


class Watcher(Router):
    """Sends requests in turn, and notes what it could have seen."""

    kind = "watcher"
    reads_prefixes = True

    def bind(self, num_replicas: int, requests: IntArray, session: IntArray | None) -> None:
        super().bind(num_replicas, requests, session)
        self.seen: list[tuple[int, list[int], list[int]]] = []

    def route(self, request: int, replicas: Sequence[Server]) -> int:
        loads = [replica.num_requests for replica in replicas]
        self.seen.append((request, loads, [replica.lookup(request) for replica in replicas]))
        return len(self.seen) % self.num_replicas


ENGINES: list[tuple[tuple[str, dict[str, Any]], tuple[str, dict[str, Any]]]] = [
    (("prefix", {"block_size": 2}), ("vllm_v1", {"policy": "priority"})),
    (("prefix", {"block_size": 4}), ("vllm_v1", {})),
    (("nano_vllm", {"block_size": 2}), ("nano_vllm", {})),
    (("nano_vllm", {"block_size": 1}), ("vllm_v1", {})),
    (("radix", {"block_size": 1}), ("sglang", {})),
]


def crowded(seed: int) -> Example:
    """Few at a time decode for long while others wait; prompts are what others are decoding.

    Arrivals fall on ends of iterations, some are refused, and some follow those.
    """
    choose = random.Random(seed).randint
    (allocator, scheduler), now = ENGINES[seed % len(ENGINES)], 0
    arrivals, beginnings, follow_ups = [], [], []
    for number in range(24):
        now += TICK_NS * choose(0, 12)
        parent = choose(0, number - 1) if number and choose(0, 3) else -1
        longest = 6 if parent < 0 else arrivals[parent][1] + 20
        prompt, output = min(choose(1, longest), 60), choose(5, 40)
        if choose(0, 9) == 0:
            prompt, parent = 90, -1  # refused
        arrivals.append((now, prompt, output, output))
        begin = prompt if parent >= 0 else choose(0, min(prompt, 6))
        beginnings.append(Beginning(parent, 1, begin, choose(0, 2)))
        follows = number and choose(0, 5) == 0
        follow_ups.append((choose(0, number - 1), TICK_NS * choose(0, 9)) if follows else (-1, 0))
    kind, knobs = scheduler
    policy = kind, knobs | {"max_num_seqs": choose(1, 5)}
    num_slots = choose(90, 150)
    return Example(arrivals, num_slots, 80, allocator, policy, 0, follow_ups, beginnings)


@pytest.mark.parametrize("make", [example_of, crowded])
def test_a_router_sees_the_same_asleep_as_step_by_step(make: Callable[[int], Example]) -> None:
    num_hits = num_refused = num_queued = 0
    for seed in range(13_000, 13_250):
        example, watchers = make(seed), (Watcher(), Watcher())
        slept, stepped = (
            run_fleet(example, watcher, 2 + seed % 2, single_step)
            for watcher, single_step in zip(watchers, (False, True), strict=True)
        )
        assert watchers[0].seen == watchers[1].seen, f"seed {seed}: {example}"
        assert all_of(slept) == all_of(stepped), f"seed {seed}: {example}"
        num_hits += sum(max(hits) > 0 for _, _, hits in watchers[0].seen)
        num_refused += int((slept.requests[:, STATUS] == REJECTED).sum())
        num_queued += sum(replica.recorder.num_queued_iterations for replica in slept.replicas)
    assert num_hits > 100
    assert num_refused > 20
    assert num_queued > 100


@every_router
def test_one_replica_behind_a_router_leaves_what_it_leaves_without_one(
    kind: str, parameters: dict[str, Any]
) -> None:
    for seed in range(150):
        example = example_of(9000 + seed)
        for single_step in (False, True):
            alone = run_example(example, single_step)
            fleet = run_fleet(example, ROUTERS[kind](**parameters), 1, single_step)
            assert left_behind(fleet.replicas[0]) == left_behind(alone), f"seed {seed}"
            assert fleet.requests.tolist() == alone.requests.tolist()
            assert fleet.num_running_max == alone.recorder.num_running_max
            assert (fleet.start_ns, fleet.end_ns) == (alone.start_ns, alone.end_ns)


@every_router
def test_memory_that_is_checked_at_every_operation_routes_alike(
    kind: str, parameters: dict[str, Any]
) -> None:
    for seed in range(40):
        example = example_of(11_000 + seed)
        plain = run_fleet(example, ROUTERS[kind](**parameters), 3)
        checked = run_fleet(
            example,
            ROUTERS[kind](**parameters),
            3,
            wrap=lambda parts: parts._replace(allocator=CheckedAllocator(parts.allocator)),
        )
        assert checked.requests.tolist() == plain.requests.tolist()
        assert checked.replica_of.tolist() == plain.replica_of.tolist()
