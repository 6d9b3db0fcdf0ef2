"""Requests of several sequences, from their arrival to their end, under vLLM v0's scheduler."""

import random

import numpy as np
import pytest

from sim.allocators.terms import RESERVED, TOKEN_STATES
from sim.engine.simulation import Run
from sim.schedulers.base import Scheduler
from sim.schedulers.swapping import SwapSpaceError
from sim.schedulers.vllm_v0 import VllmV0
from sim.sequence import FINISHED, NUM_SLOTS, PENDING, REJECTED, REQUEST, STATUS
from sleep_examples import (
    Example,
    choose_allocator,
    choose_example,
    choose_scheduler,
    fit_prefixes,
    left_behind,
    run_example,
)

NUM_EXAMPLES = 80
NUM_SEEN = ("swapped out", "host exhausted", "prefixes", "copied")


def example_of(kind: str, seed: int) -> Example:
    """Samples and beams on an allocator that can fork; the host has little memory, or much."""
    choose = random.Random(seed).randint
    example = choose_example(choose)
    while example.allocator[0] != kind:
        example = example._replace(allocator=choose_allocator(choose, example.num_slots))
    while example.scheduler[0] != "vllm_v0":
        example = example._replace(scheduler=choose_scheduler(choose, kind))
    widths = [(choose(1, 4), 1) if choose(0, 1) else (1, choose(1, 4)) for _ in example.arrivals]
    parameters = dict(example.allocator[1])
    if kind == "paged_cow":
        parameters["num_cpu_blocks"] = (0, 3, 8, 5000)[choose(0, 3)]
    return fit_prefixes(example._replace(widths=widths, allocator=(kind, parameters)))


def outcome(example: Example, single_step: bool) -> Run | str:
    """The run, or the sentence with which the host's lack of memory ended it."""
    try:
        return run_example(example, single_step)
    except SwapSpaceError as error:
        return str(error)


@pytest.mark.parametrize("kind", ["paged_cow", "paged", "contiguous"])
def test_every_request_of_several_sequences_ends_once_and_leaves_nothing(kind: str) -> None:
    seen = set()
    for seed in range(NUM_EXAMPLES):
        example = example_of(kind, seed)
        slept, stepped = (outcome(example, single_step) for single_step in (False, True))
        if isinstance(slept, str) or isinstance(stepped, str):
            assert slept == stepped
            seen.add("host exhausted")
            continue
        expected = left_behind(stepped)
        for name, value in left_behind(slept).items():
            assert value == expected[name], f"seed {seed}: {name} differs from single steps"
        assert_nothing_is_left(example, slept)
        counters = slept.allocator.counters()
        seen |= {"swapped out"} if counters.get("num_blocks_swapped_out") else set()
        seen |= {"copied"} if counters["num_copied_tokens"] else set()
        seen |= {"prefixes"} if example.allocator[1].get("shared_prefix_tokens") else set()
    assert seen == set(NUM_SEEN if kind == "paged_cow" else NUM_SEEN[-1:])


def assert_nothing_is_left(example: Example, run: Run) -> None:
    scheduler, requests, sequences = run.scheduler, run.requests, run.scheduler.sequences
    assert isinstance(scheduler, VllmV0)
    status = requests[:, STATUS]
    assert run.status == "finished"
    assert not (status == PENDING).any()
    assert scheduler.num_finished == (status == FINISHED).sum()
    assert scheduler.num_running == scheduler.num_waiting == scheduler.num_in_service == 0
    assert not scheduler._groups
    assert not scheduler.swapped()
    assert not sequences.rows[:, NUM_SLOTS].any()
    assert sorted(sequences._unused) == list(range(len(sequences.rows))), "a row is lost, or twice"
    widths = np.max(np.array(example.widths), axis=1)
    too_wide = widths > scheduler.max_num_seqs
    assert (status[too_wide] == REJECTED).all()
    allocator = run.allocator
    allocator.check(np.empty(0, np.int64))
    assert not allocator.terms[[TOKEN_STATES, RESERVED]].any(), "memory is whole again"
    if example.allocator[0] == "paged_cow":
        assert len(allocator.host_free_list()) == example.allocator[1]["num_cpu_blocks"]  # type: ignore[attr-defined]


def in_service(scheduler: Scheduler) -> int:
    """Requests whose sequences run."""
    rows = scheduler.running[: scheduler.num_running]
    return len(set(scheduler.sequences.rows[rows, REQUEST].tolist()))


@pytest.mark.parametrize("kind", ["paged_cow", "paged"])
def test_requests_in_service_are_counted_once_however_many_sequences_they_are(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    counts = []
    schedule = VllmV0.schedule

    def watched(self: VllmV0, now_ns: int) -> bool:
        has_work = schedule(self, now_ns)
        counts.append((self.num_in_service, in_service(self), self.num_running))
        rows = self.running[: self.num_running]
        owners = self.sequences.rows[rows, REQUEST]
        changes = np.flatnonzero(np.diff(owners))
        assert len(changes) + 1 == len(set(owners.tolist())) or not len(rows), "rows side by side"
        return has_work

    monkeypatch.setattr(VllmV0, "schedule", watched)
    for seed in range(NUM_EXAMPLES, 2 * NUM_EXAMPLES):
        outcome(example_of(kind, seed), single_step=True)
    assert all(told == counted for told, counted, _ in counts)
    assert any(rows > counted for _, counted, rows in counts)
