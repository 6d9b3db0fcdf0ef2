"""What sharing saves, in numbers: hits, reuse distances, shared blocks, tokens computed again."""

import random
from typing import Any

import numpy as np
import pytest

from sim.allocators import Allocator
from sim.allocators.checked import CheckedAllocator
from sim.allocators.paged import Paged
from sim.allocators.paged_cow import PagedCow
from sim.allocators.prefix import Prefix
from sim.allocators.terms import HELD_BLOCKS, TABLE_BLOCKS
from sim.costs.linear import Constant
from sim.engine.simulation import Memory, Options, Run, simulate
from sim.metrics.summary import Row, histogram_spread, summarize
from sim.schedulers.base import Scheduler
from sim.schedulers.fcfs import Fcfs
from sim.schedulers.static import Static
from sim.schedulers.tally import Tally
from sim.schedulers.vllm_v0 import VllmV0
from sim.schedulers.vllm_v1 import VllmV1
from sim.schedulers.vllm_v1_async import Step, VllmV1Async
from sim.sequence import (
    NUM_COMPUTED,
    NUM_PREEMPTIONS,
    NUM_SLOTS,
    PRIORITY,
    REQUEST,
    IntArray,
    Limits,
    SequenceTable,
    new_requests,
)
from sleep_examples import choose_example, content_of
from workloads.content import ContentBuilder
from workloads.content import Run as Tokens
from workloads.sequences import SequenceContent

LONGEST = 64
TWO_TEXTS = [[(1, 0, 4)], [(2, 0, 4)]]


def contents(prompts: list[list[Tokens]]) -> SequenceContent:
    builder = ContentBuilder()
    for runs in prompts:
        builder.add(runs, sum(length for _, _, length in runs))
    return SequenceContent(builder.build())


def requests_of(prompts: list[list[Tokens]], outputs: list[int]) -> IntArray:
    lengths = np.array([sum(length for _, _, length in runs) for runs in prompts])
    return new_requests(0 * lengths, lengths, np.array(outputs), Limits(LONGEST, np.array(outputs)))


def row_of(
    prompts: list[list[Tokens]],
    outputs: list[int],
    num_slots: int,
    allocator: Allocator,
    scheduler: Scheduler,
) -> Row:
    """The summary of a run; all arrive at 0, and an iteration takes 1,000 ns."""
    requests, parts = requests_of(prompts, outputs), (CheckedAllocator(allocator), scheduler)
    memory, options = Memory(num_slots, LONGEST), Options(content=contents(prompts))
    return summarize(simulate(requests, memory, *parts, Constant(1e-6), options), {})


class Cache:
    """A prefix cache in blocks of four that whole prompts enter and leave one by one."""

    def __init__(self, num_blocks: int, prompts: list[list[Tokens]]) -> None:
        self.allocator, self.sequences = CheckedAllocator(Prefix(4)), SequenceTable()
        self.allocator.bind(4 * (num_blocks + 1), self.sequences, LONGEST)
        self.allocator.bind_content(contents(prompts))
        self.requests = requests_of(prompts, [1] * len(prompts))

    def enter(self, request: int) -> int:
        row = self.sequences.open(self.requests, request)
        prompt = self.requests.item(request, 0)
        self.allocator.admit(row, prompt - self.allocator.lookup(row))
        return row

    def leave(self, row: int) -> None:
        self.allocator.free(np.array([row]))
        self.sequences.close(row)

    def distances(self) -> Row:
        return histogram_spread("d", self.allocator.reuse_distances(), (50, 90))

    def tables(self) -> tuple[int, int]:
        recorded = self.allocator.recorded
        return recorded.item(TABLE_BLOCKS), recorded.item(HELD_BLOCKS)


def test_a_reuse_distance_counts_the_blocks_given_away_since_the_hit_one_was_freed() -> None:
    """Blocks 1 and 2 are freed, one block is taken: 1 and 1. At once again: 0 and 0."""
    cache = Cache(4, [[(1, 0, 9)], [(2, 0, 4)]])
    assert cache.distances() == {"d_mean": None, "d_p50": None, "d_p90": None}
    cache.leave(cache.enter(0))
    cache.leave(cache.enter(1))
    cache.leave(cache.enter(0))
    assert cache.distances() == {"d_mean": 1.0, "d_p50": 1.0, "d_p90": 1.0}
    cache.leave(cache.enter(0))
    assert cache.distances() == {"d_mean": 0.5, "d_p50": 0.0, "d_p90": 1.0}


def test_hit_blocks_are_not_given_away_and_held_ones_have_no_reuse_distance() -> None:
    """The second text is hit between the first one's uses: it takes one new block, not two."""
    cache = Cache(8, [[(1, 0, 5)], [(2, 0, 5)]])
    cache.leave(cache.enter(0))
    cache.leave(cache.enter(1))
    held = cache.enter(1)  # 0 blocks since its own was freed
    cache.enter(1)  # held by the one before: not counted
    cache.leave(held)
    cache.enter(0)  # since then 2 blocks of text 2, and 1 for either of the two that hit it
    assert cache.distances() == {"d_mean": 2.0, "d_p50": 0.0, "d_p90": 4.0}


def test_a_block_that_n_tables_name_is_held_once() -> None:
    cache = Cache(8, [[(1, 0, 9)], [(1, 0, 9)], [(2, 0, 3)]])
    rows, seen = [], []
    for request in (0, 1, 2):
        rows.append(cache.enter(request))
        seen.append(cache.tables())
    assert seen == [(3, 3), (6, 4), (7, 5)]
    for row in rows:
        cache.leave(row)
        seen.append(cache.tables())
    assert seen[3:] == [(4, 4), (1, 1), (0, 0)]


def test_forked_blocks_are_held_once_until_they_are_copied() -> None:
    """Six tokens in two blocks of four; two children; then all write into the second block."""
    allocator, sequences = PagedCow(4, watermark=0), SequenceTable()
    allocator.bind(80, sequences, LONGEST)
    requests = requests_of([[(1, 0, 6)]], [4])
    rows = np.array([sequences.open(requests, 0) for _ in range(3)])
    recorded, seen = allocator.recorded, []

    def look() -> None:
        allocator.check(np.flatnonzero(sequences.rows[:, NUM_SLOTS]))
        seen.append((recorded.item(TABLE_BLOCKS), recorded.item(HELD_BLOCKS)))

    allocator.admit(rows.item(0), 6)
    look()
    allocator.fork(rows[[0, 0]], rows[1:], rows[:0])
    look()
    allocator.append(rows, np.ones(3, np.int64))
    look()
    allocator.free(rows[:1])
    look()
    allocator.swap_out(rows[1:])
    look()
    assert seen == [(2, 2), (6, 2), (6, 4), (4, 3), (0, 0)]


def test_saved_blocks_are_weighted_with_time_over_the_run_and_while_requests_wait() -> None:
    """Two prompts of nine tokens alike in blocks of four; one ends after its first token.

    Blocks in tables are 6, 4 and 3 in the three iterations, two of the six twice. The third
    request waits during the first iteration only.
    """
    prompts = [[(1, 0, 9)], [(1, 0, 9)], [(2, 0, 4)]]
    row = row_of(prompts, [1, 3, 1], 80, Prefix(4), VllmV1(max_num_seqs=2))
    assert row["num_iterations"] == 3
    assert row["shared_blocks_saved_frac"] == 2 / 13
    assert row["shared_blocks_saved_frac_queued"] == 2 / 6
    assert (row["num_hit_requests"], row["num_hit_tokens"], row["num_queried_tokens"]) == (1, 8, 22)
    assert row["hit_rate"] == 8 / 22


@pytest.mark.parametrize("scheduler", [Fcfs(), Static(), VllmV1()])
def test_memory_that_shares_nothing_has_no_such_numbers(scheduler: Scheduler) -> None:
    row = row_of(TWO_TEXTS, [3, 3], 80, Paged(4), scheduler)
    names = ["hit_rate", "num_hit_requests", "shared_blocks_saved_frac", "num_queried_tokens"]
    names += ["shared_blocks_saved_frac_queued", "reuse_distance_blocks_mean"]
    assert [row[name] for name in names] == [None] * len(names)
    assert row["num_recomputed_tokens"] == 0


@pytest.mark.parametrize("scheduler", [Fcfs(), Static(), VllmV0(), VllmV1(), VllmV1Async()])
def test_every_scheduler_counts_what_it_finds(scheduler: Scheduler) -> None:
    row = row_of([[(1, 0, 9)], [(1, 0, 9)]], [2, 2], 80, Prefix(4), scheduler)
    assert (row["num_hit_requests"], row["hit_rate"]) == (1, 8 / 18)


def test_a_refused_lookup_counts_again_where_the_engine_counts_it() -> None:
    """The second prompt needs two blocks, one is free while the first runs: two refusals.

    Its first block is found each time.
    """
    prompts = [[(1, 0, 5)], [(1, 0, 12)]]
    for counts, hits in ((True, 3), (False, 1)):
        scheduler = VllmV1(count_blocked_lookups=counts)
        row = row_of(prompts, [2, 1], 16, Prefix(4), scheduler)
        assert row["num_hit_requests"] == hits
        assert row["num_queried_tokens"] == 5 + 12 * hits


@pytest.mark.parametrize(
    ("allocator", "scheduler", "num_slots", "recomputed"),
    [
        (Paged(4), Fcfs(), 24, 12),
        (Paged(4), VllmV1(), 24, 12),
        (Prefix(4), Fcfs(), 28, 4),
        (Prefix(4), VllmV1(), 28, 4),
    ],
)
def test_a_preempted_request_computes_again_what_it_does_not_find(
    allocator: Allocator, scheduler: Scheduler, num_slots: int, recomputed: int
) -> None:
    """4 + 12 tokens each in six blocks: the second is preempted with 12 computed and 13 known.

    The prefix cache finds two of its three blocks; the third went to the first request.
    """
    row = row_of(TWO_TEXTS, [12, 12], num_slots, allocator, scheduler)
    assert row["num_preemptions"] == 1
    assert row["num_recomputed_tokens"] == recomputed


def test_tokens_are_computed_again_only_as_far_as_the_request_gets() -> None:
    """Of ten lost tokens four are found; it is preempted at seven, and then finds nothing."""
    tally = Tally(caches_prefixes=True)
    tally.admitted(5, 0)
    tally.preempted(5, 10)
    assert tally.num_recomputed_tokens == 0
    tally.admitted(5, 4)
    tally.preempted(5, 7)
    assert tally.num_recomputed_tokens == 3
    tally.admitted(5, 0)
    assert tally.num_recomputed_tokens == 3 + 10
    tally.admitted(6, 0)
    assert tally.num_recomputed_tokens == 13, "another request has lost nothing"


class Watch:
    """Counts, iteration by iteration, tokens below the highest that their request has computed."""

    def __init__(self) -> None:
        self.recomputed = 0
        self.highest: dict[int, int] = {}
        self.computed: dict[int, int] = {}

    def look(self, scheduler: Scheduler, hits: dict[int, int]) -> None:
        """hits are of the requests that have just been admitted."""
        now: dict[int, int] = {}
        for row in scheduler.running[: scheduler.num_running]:
            request, end = scheduler.sequences.rows[row, [REQUEST, NUM_COMPUTED]].tolist()
            start = hits[request] if request in hits else self.computed.get(request, 0)
            highest = self.highest.get(request, 0)
            self.recomputed += max(0, min(end, highest) - start)
            self.highest[request], now[request] = max(end, highest), end
        self.computed = now

    def __call__(self, now_ns: int, scheduler: Scheduler) -> None:
        admitted = getattr(scheduler, "admitted", [])
        if isinstance(scheduler, VllmV0):
            self.look(scheduler, dict.fromkeys(admitted, 0))
        else:
            self.look(scheduler, {new.request: new.num_hit for new in admitted})


class WatchedAsync(VllmV1Async):
    """Looked at after each plan, because a schedule() may make two."""

    watch: Watch

    def plan_step(self, now_ns: int) -> Step | None:
        step = super().plan_step(now_ns)
        self.watch(now_ns, self)
        return step


def watched_run(
    policy: type[Scheduler], parameters: dict[str, Any], seed: int
) -> tuple[Run, Watch]:
    """A small trace in too little memory, and what was computed again in it."""
    watch, choose = Watch(), random.Random(seed).randint
    example = choose_example(choose)
    columns = np.array(example.arrivals, np.int64).T
    requests = new_requests(*columns[:3], Limits(example.max_model_len, columns[3]))
    requests[:, PRIORITY] = [beginning.priority for beginning in example.beginnings] or 0
    scheduler = policy(**parameters)
    options = Options(content=content_of(example))
    if isinstance(scheduler, WatchedAsync):
        scheduler.watch = watch
    else:
        options = Options(observe=watch, content=content_of(example))
    allocator = Paged(2) if policy in {Fcfs, VllmV0} else Prefix(2)
    memory = Memory(example.max_model_len + 6, example.max_model_len)
    return simulate(requests, memory, allocator, scheduler, Constant(1e-6), options), watch


@pytest.mark.parametrize(
    ("policy", "parameters"),
    [
        (Fcfs, {"max_num_batched_tokens": 7, "enable_chunked_prefill": True}),
        (VllmV0, {"preemption_mode": "recompute"}),
        (VllmV1, {"max_num_batched_tokens": 7}),
        (VllmV1, {"policy": "priority", "max_num_batched_tokens": 9}),
        (WatchedAsync, {"policy": "priority", "max_num_batched_tokens": 9}),
    ],
)
def test_recomputed_tokens_are_those_that_an_observer_sees_computed_twice(
    policy: type[Scheduler], parameters: dict[str, Any]
) -> None:
    total = twice = 0
    for seed in range(150):
        run, watch = watched_run(policy, parameters, seed)
        assert run.scheduler.counters()["num_recomputed_tokens"] == watch.recomputed, seed
        total += watch.recomputed
        twice += int((run.requests[:, NUM_PREEMPTIONS] > 1).sum())
    assert total > 100
    assert twice > 5, "no request is preempted again"
