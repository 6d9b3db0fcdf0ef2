"""Behaviours that real systems got wrong (cases 11-13, 26, 28, 29): sharing, samples, the host."""

from typing import Any

import numpy as np
import pytest

from sim.allocators import Admission, Allocator
from sim.allocators.checked import CheckedAllocator, visible_state
from sim.allocators.contiguous import Contiguous
from sim.allocators.paged import Paged
from sim.allocators.paged_cow import PagedCow
from sim.allocators.prefix import Prefix
from sim.allocators.terms import CACHED, FREE, INTERNAL, TOKEN_STATES
from sim.branching import WorkloadBranches
from sim.costs.linear import Constant
from sim.engine.simulation import Memory, Options, Run, simulate
from sim.gaps import GAP_COUNT, GAP_SUM_NS, GAP_SUM_S
from sim.schedulers.base import Scheduler
from sim.schedulers.swapping import SwapSpaceError
from sim.schedulers.vllm_v0 import VllmV0
from sim.schedulers.vllm_v1 import VllmV1
from sim.schedulers.vllm_v1_async import VllmV1Async
from sim.sequence import (
    FAILED,
    FINISH_NS,
    FINISHED,
    FIRST_SCHEDULED_NS,
    FIRST_TOKEN_NS,
    NUM_GENERATED,
    NUM_PREEMPTIONS,
    NUM_TOKENS,
    REQUEST,
    STATUS,
    IntArray,
    Limits,
    SequenceTable,
    new_requests,
)
from workloads.content import ContentBuilder, own_prompt
from workloads.sequences import SequenceContent

LONGEST = 64


def requests_of(requests: list[tuple[int, int, int]]) -> IntArray:
    columns = np.array(requests, np.int64).T
    return new_requests(*columns, Limits(LONGEST, columns[2]))


def same_beginnings(prompts: list[int], alike: int) -> SequenceContent:
    """Prompts of these lengths, the first alike tokens of which are the same."""
    builder = ContentBuilder()
    for request, length in enumerate(prompts):
        builder.add([(1, 0, alike), (own_prompt(request), 0, length - alike)], length)
    return SequenceContent(builder.build())


class Pool:
    """Blocks of four slots, and sequences that come and go one by one."""

    def __init__(self, num_blocks: int, allocator: Allocator | None = None) -> None:
        allocator = allocator or PagedCow(4, watermark=0.0, num_cpu_blocks=8)
        self.allocator, self.sequences = CheckedAllocator(allocator), SequenceTable()
        self.allocator.bind(4 * num_blocks, self.sequences, LONGEST)

    def enter(self, prompt: int, output: int = 20, request: int = 0) -> int:
        """Admit a request with its whole prompt; return its row."""
        row = self.sequences.open(requests_of([(0, prompt, output)]), 0)
        self.sequences.rows[row, REQUEST] = request
        count = prompt - self.allocator.lookup(row)
        assert self.allocator.admit(row, count) is Admission.OK
        return row

    def fork(self, parent: int, count: int) -> list[int]:
        children = [self.sequences.fork(parent) for _ in range(count)]
        none = np.empty(0, np.int64)
        assert self.allocator.fork(np.full(count, parent), np.array(children), none)
        return children

    def decode(self, rows: list[int]) -> int:
        self.sequences.rows[rows, NUM_TOKENS] += 1
        return self.allocator.append(np.array(rows), np.ones(len(rows), np.int64))

    def table(self, row: int) -> list[int]:
        held: list[int] = self.allocator.block_table(row).tolist()
        return held


def test_writing_into_a_shared_last_block_copies_it_once() -> None:
    """Case 11: counts of 1 and 1 afterwards, and both return every block once."""
    pool = Pool(8)
    parent = pool.enter(6)
    (child,) = pool.fork(parent, 1)
    assert pool.allocator.ref_counts()[pool.table(parent)].tolist() == [2, 2]
    assert pool.decode([parent, child]) == 2
    assert pool.allocator.counters()["num_copied_blocks"] == 1
    assert pool.table(parent)[0] == pool.table(child)[0]
    assert pool.table(parent)[1] != pool.table(child)[1]
    assert pool.allocator.ref_counts()[[pool.table(parent)[1], pool.table(child)[1]]].tolist() == [
        1,
        1,
    ]
    for row in (parent, child):
        pool.allocator.free(np.array([row]))
    assert sorted(pool.allocator.free_list().tolist()) == list(range(8))
    assert not pool.allocator.ref_counts().any()


@pytest.mark.parametrize(("prompt", "copies"), [(5, 3), (7, 3), (8, 0), (4, 0)])
def test_of_n_sequences_with_a_partial_last_block_all_but_one_copy_it(
    prompt: int, copies: int
) -> None:
    """Case 11: a full last block needs no copy, everybody takes a block of his own."""
    pool = Pool(16)
    parent = pool.enter(prompt)
    rows = [parent, *pool.fork(parent, 3)]
    before = pool.table(parent)
    assert pool.decode(rows) == 4
    assert pool.allocator.counters()["num_copied_blocks"] == copies
    if copies:
        assert pool.table(rows[-1]) == before, "the last one keeps what it had"


def test_a_parent_that_ends_leaves_its_blocks_to_its_children() -> None:
    """Case 11: forks come before frees, or the children's blocks would be given away."""
    pool = Pool(8)
    parent = pool.enter(6)
    children = [pool.sequences.fork(parent) for _ in range(2)]
    held = pool.table(parent)
    ending = np.array([parent])
    assert pool.allocator.fork(np.array([parent, parent]), np.array(children), ending)
    assert [pool.table(child) for child in children] == [held, held]
    assert set(held).isdisjoint(pool.allocator.free_list().tolist())


def test_a_block_that_a_ring_comes_back_to_is_freed_once() -> None:
    """Case 12: a window of two blocks over 23 tokens names each of them again and again."""
    pool = Pool(8, PagedCow(4, watermark=0.0, sliding_window=8, num_cpu_blocks=4))
    row = pool.enter(3)
    for _ in range(20):
        assert pool.decode([row]) == 1
    assert len(pool.table(row)) == 2
    pool.allocator.free(np.array([row]))
    assert sorted(pool.allocator.free_list().tolist()) == list(range(8))


def test_looking_ahead_counts_a_rings_block_once() -> None:
    """Case 12: nine iterations go round a ring of three blocks, which needs one more of them.

    The engine wants one block free for each sequence before every step: here there always is.
    """
    pool = Pool(4, PagedCow(1, watermark=0.0, sliding_window=3, num_cpu_blocks=0))
    pool.allocator.bind(4, pool.sequences, LONGEST)
    row = pool.enter(2)
    assert pool.allocator.can_append(np.array([row]), 9) == 9


def run_of(
    requests: list[tuple[int, int, int]],
    allocator: Allocator,
    num_blocks: int,
    num_samples: list[int],
    scheduler: Scheduler | None = None,
    **how: Any,
) -> Run:
    """An iteration takes 1,000 ns; the allocator is checked throughout."""
    samples = np.array(num_samples)
    return simulate(
        requests_of(requests),
        Memory(4 * num_blocks, LONGEST),
        CheckedAllocator(allocator),
        scheduler or VllmV0(),
        Constant(1e-6),
        Options(branches=WorkloadBranches(samples, None, seed=0), **how),
    )


def test_a_swapped_group_comes_back_before_a_prompt_starts() -> None:
    """Case 13: the prompt that comes while the second group is away waits, and it would fit."""
    seen: list[tuple[int, list[int], list[int]]] = []  # ns, who is away, who has been admitted

    def look(now_ns: int, scheduler: Scheduler) -> None:
        assert isinstance(scheduler, VllmV0)
        seen.append((now_ns, list(scheduler.swapped()), list(scheduler.admitted)))

    allocator = PagedCow(4, watermark=0.0, num_cpu_blocks=20)
    groups = [(0, 8, 20), (0, 8, 16), (16_500, 2, 2)]
    run = run_of(groups, allocator, 14, [2, 2, 1], observe=look)
    assert run.requests[:, STATUS].tolist() == [FINISHED] * 3
    assert run.requests[:, NUM_PREEMPTIONS].tolist() == [0, 1, 0]
    away = [now_ns for now_ns, swapped, _ in seen if swapped == [1]]
    assert away[0] < 16_500 < away[-1]
    assert run.requests[2, FIRST_SCHEDULED_NS] > away[-1]
    assert all(not admitted for _, swapped, admitted in seen if swapped)
    counters = allocator.counters()
    assert counters["num_blocks_swapped_out"] == counters["num_blocks_swapped_in"] > 0
    assert len(allocator.host_free_list()) == 20, "the host has all its blocks back"


def test_swapping_keeps_what_sequences_share() -> None:
    """Case 13: two sequences of two shared blocks are two blocks on the host, and again here."""
    pool = Pool(8)
    parent = pool.enter(8)
    rows = np.array([parent, *pool.fork(parent, 1)])
    assert pool.allocator.can_swap_out(rows)
    pool.allocator.swap_out(rows)
    assert len(pool.allocator.host_free_list()) == 6
    assert len(pool.allocator.free_list()) == 8
    assert pool.allocator.can_swap_in(rows) is Admission.OK
    pool.allocator.swap_in(rows)
    assert pool.table(rows[0]) == pool.table(rows[1])
    assert pool.allocator.ref_counts()[pool.table(parent)].tolist() == [2, 2]
    assert len(pool.allocator.host_free_list()) == 8


@pytest.mark.parametrize("num_cycles", [50])
def test_swap_space_does_not_leak(num_cycles: int) -> None:
    """Case 13: fifty times there and back, and once to its end there."""
    pool = Pool(8)
    parent = pool.enter(6)
    rows = np.array([parent, *pool.fork(parent, 1)])
    for _ in range(num_cycles):
        pool.allocator.swap_out(rows)
        pool.allocator.swap_in(rows)
    pool.allocator.swap_out(rows)
    pool.allocator.drop_swapped(rows)
    assert sorted(pool.allocator.host_free_list().tolist()) == list(range(8, 16))
    assert sorted(pool.allocator.free_list().tolist()) == list(range(8))


@pytest.mark.parametrize("single_step", [False, True])
def test_running_out_of_swap_space_is_an_error_with_a_sentence(single_step: bool) -> None:
    """Case 13: two blocks of the host for a group that holds more."""
    allocator = PagedCow(4, watermark=0.0, num_cpu_blocks=2)
    with pytest.raises(SwapSpaceError, match=r"request 1 must leave the device.* enlarge swap_sp"):
        run_of([(0, 8, 20), (0, 8, 16)], allocator, 14, [2, 2], single_step=single_step)


def test_a_group_that_a_full_pool_cannot_take_back_fails_with_a_reason() -> None:
    """Case 26: alone it has outgrown the pool; it leaves for the host, and the next one runs."""
    allocator = PagedCow(4, watermark=0.0, num_cpu_blocks=20)
    run = run_of([(0, 8, 30), (0, 4, 3)], allocator, 8, [3, 1])
    assert run.requests[:, STATUS].tolist() == [FAILED, FINISHED]
    assert run.scheduler.reasons == {0: "has outgrown the memory of the whole pool"}
    assert len(allocator.host_free_list()) == 20


@pytest.mark.parametrize("policy", [VllmV1, VllmV1Async])
def test_whoever_fails_alone_gives_its_tokens_back_to_the_same_iteration(
    policy: type[Scheduler],
) -> None:
    """Case 26: the second request would wait for an event that never comes."""
    scheduler = policy(max_num_batched_tokens=1, enable_chunked_prefill=True)  # type: ignore[call-arg]
    requests = requests_of([(0, 4, 20), (3000, 4, 2)])
    allocator = CheckedAllocator(Prefix(4, enable_prefix_caching=False))
    run = simulate(requests, Memory(12, LONGEST), allocator, scheduler, Constant(1e-6))
    assert run.status == "finished"
    assert requests[:, STATUS].tolist() == [FAILED, FINISHED]


def test_every_sequence_of_a_preempted_group_keeps_its_tokens_and_gaps() -> None:
    """Case 28: 2 x 19 and 2 x 15 gaps, each sequence's from the first token to the finish."""
    allocator = PagedCow(4, watermark=0.0, num_cpu_blocks=20)
    run = run_of([(0, 8, 20), (0, 8, 16)], allocator, 14, [2, 2])
    requests, gaps = run.requests, run.scheduler.gaps
    assert requests[:, NUM_PREEMPTIONS].sum() == 1
    assert requests[:, NUM_GENERATED].tolist() == [20, 16]
    assert gaps[GAP_COUNT] == 2 * 19 + 2 * 15
    spans = requests[:, FINISH_NS] - requests[:, FIRST_TOKEN_NS]
    assert gaps[GAP_SUM_S] * 10**9 + gaps[GAP_SUM_NS] == 2 * spans.sum()


@pytest.mark.parametrize(("prompt", "output"), [(16, 1), (15, 2), (1, 16)])
def test_samples_finish_without_a_block_for_their_last_token(prompt: int, output: int) -> None:
    """Case 29: 17 tokens are four blocks of four, and the last token is in none of them.

    Three samples of a prompt of 16 and one token are one sequence until they end.
    """
    tables: list[int] = []

    def look(now_ns: int, scheduler: Scheduler) -> None:
        rows = scheduler.running[: scheduler.num_running].tolist()
        tables.extend(len(scheduler.allocator.block_table(row)) for row in rows)  # type: ignore[attr-defined]

    run = run_of([(0, prompt, output)], PagedCow(4, num_cpu_blocks=0), 20, [3], observe=look)
    assert run.requests[0, [STATUS, NUM_GENERATED]].tolist() == [FINISHED, output]
    assert max(tables) == 4


def test_a_refused_group_has_copied_nothing() -> None:
    """Case 5, for groups: the first of two copied its prefix's last block before the second failed.

    The prefix's block is pinned, and the group needs four of the three that are left.
    """
    allocator = PagedCow(4, watermark=0.0, shared_prefix_tokens=6, num_cpu_blocks=0)
    pool = Pool(5, allocator)
    pool.allocator.bind_content(same_beginnings([9, 9], 6))
    rows = [pool.sequences.open(requests_of([(0, 9, 3), (0, 9, 3)]), 0) for _ in range(2)]
    before = visible_state(allocator), allocator.counters()
    counts = np.full(2, 3)
    assert pool.allocator.admit_all(np.array(rows), counts) is Admission.LATER
    np.testing.assert_equal((visible_state(allocator), allocator.counters()), before)


@pytest.mark.parametrize("compaction", [False, True])
def test_a_refused_fork_leaves_ranges_where_they_were(compaction: bool) -> None:
    """Case 5, for forks that copy: one of two children found a place, perhaps after a slide."""
    allocator = Contiguous("oracle", "next_fit", compaction=compaction)
    pool = Pool(12, allocator)
    first, second, third = (pool.enter(8, 8, request) for request in range(3))
    pool.allocator.free(np.array([first]))
    children = [pool.sequences.fork(third) for _ in range(2)]
    before = visible_state(allocator), allocator.counters(), allocator.held_ranges(second)
    none = np.empty(0, np.int64)
    assert not pool.allocator.fork(np.array([third, third]), np.array(children), none)
    now = visible_state(allocator), allocator.counters(), allocator.held_ranges(second)
    np.testing.assert_equal(now, before)


def test_a_prefix_stays_of_use_when_a_member_of_a_static_batch_is_done() -> None:
    """Case 8: only what the member holds alone is internal from then on."""
    allocator = PagedCow(4, watermark=0.0, shared_prefix_tokens=4, num_cpu_blocks=0)
    pool = Pool(8, allocator)
    pool.allocator.bind_content(same_beginnings([6, 6], 4))
    assert allocator.terms[CACHED] == 4
    row = pool.enter(6)
    assert allocator.terms[[TOKEN_STATES, CACHED]].tolist() == [6, 0]
    pool.allocator.retire(row)
    assert allocator.terms[[TOKEN_STATES, INTERNAL, CACHED, FREE]].tolist() == [4, 4, 0, 24]
    pool.allocator.free(np.array([row]))
    assert allocator.terms[[CACHED, FREE]].tolist() == [4, 28]


@pytest.mark.parametrize(("num_blocks", "fits"), [(2, False), (3, True)])
def test_prefixes_that_would_fill_the_pool_are_refused_with_their_size(
    num_blocks: int, fits: bool
) -> None:
    """Case 1, for declared prefixes: six tokens are two blocks, and somebody must have one more."""
    allocator = PagedCow(4, watermark=0.0, shared_prefix_tokens=6, num_cpu_blocks=0)
    allocator.bind(4 * num_blocks, SequenceTable(), LONGEST)
    if fits:
        allocator.bind_content(same_beginnings([9, 9], 6))
        assert len(allocator.free_list()) == 1
    else:
        with pytest.raises(
            ValueError, match=r"1 x 2 blocks of prefixes leave none of the pool's 2"
        ):
            allocator.bind_content(same_beginnings([9, 9], 6))


def test_without_sharing_a_group_takes_all_its_memory_when_it_is_admitted() -> None:
    """Case 2, for samples: four sequences of three blocks each do not fit into eleven blocks."""
    run = run_of([(0, 9, 2), (0, 9, 2)], Paged(4), 11, [4, 3])
    assert run.requests[:, STATUS].tolist() == [FAILED, FINISHED]
    assert "runs 4 sequences at once" in run.scheduler.reasons[0]
