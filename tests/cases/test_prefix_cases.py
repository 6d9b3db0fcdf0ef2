"""Behaviours that real systems got wrong (cases 14-18, 21-28): prefix caches, preemption."""

import time

import numpy as np
import pytest

from sim.allocators import Admission
from sim.allocators.checked import CheckedAllocator
from sim.allocators.prefix import Prefix
from sim.costs.linear import Constant
from sim.engine.simulation import Memory, Options, Run, simulate
from sim.gaps import GAP_COUNT, GAP_SUM_NS, GAP_SUM_S
from sim.schedulers.base import Scheduler
from sim.schedulers.vllm_v1 import VllmV1
from sim.schedulers.vllm_v1_async import VllmV1Async
from sim.sequence import (
    FAILED,
    FINISH_NS,
    FINISHED,
    FIRST_TOKEN_NS,
    NUM_GENERATED,
    NUM_PREEMPTIONS,
    NUM_TOKENS,
    STATUS,
    IntArray,
    Limits,
    SequenceTable,
    new_requests,
)
from workloads import content as text
from workloads.content import ContentBuilder, own_output
from workloads.sequences import SequenceContent

Prompt = list[text.Run]

LONGEST = 4096


def contents(prompts: list[Prompt]) -> SequenceContent:
    builder = ContentBuilder()
    for runs in prompts:
        builder.add(runs, sum(length for _, _, length in runs))
    return SequenceContent(builder.build())


def requests_of(prompts: list[Prompt], outputs: list[int], every_ns: int = 0) -> IntArray:
    lengths = np.array([sum(length for _, _, length in runs) for runs in prompts])
    columns = every_ns * np.arange(len(prompts)), lengths, np.array(outputs)
    return new_requests(*columns, Limits(LONGEST, columns[2]))


class Cache:
    """A prefix cache of num_blocks usable blocks that sequences enter and leave one by one."""

    def __init__(
        self, num_blocks: int, prompts: list[Prompt], output: int, memory: Prefix | None = None
    ) -> None:
        memory = memory or Prefix(4)
        size = memory.block_size
        self.allocator, self.sequences = CheckedAllocator(memory), SequenceTable()
        self.allocator.bind((num_blocks + 1) * size, self.sequences, LONGEST)
        self.allocator.bind_content(contents(prompts))
        self.requests = requests_of(prompts, [output] * len(prompts))

    def open(self, request: int) -> int:
        return self.sequences.open(self.requests, request)

    def enter(self, request: int) -> tuple[int, int]:
        """Admit a request with its whole prompt; return its row and what it hit."""
        row = self.open(request)
        hit = self.allocator.lookup(row)
        count = self.sequences.rows.item(row, NUM_TOKENS) - hit
        assert self.allocator.admit(row, count) is Admission.OK
        return row, hit

    def generate(self, row: int, count: int) -> None:
        self.sequences.rows[row, NUM_TOKENS] += count
        assert self.allocator.append(np.array([row]), np.array([count])) == 1

    def leave(self, row: int) -> None:
        self.allocator.free(np.array([row]))
        self.sequences.close(row)

    def hit(self, request: int) -> int:
        row = self.open(request)
        found = self.allocator.lookup(row)
        self.sequences.close(row)
        return found


@pytest.mark.parametrize(("length", "hit"), [(1, 0), (4, 0), (5, 4), (8, 4), (9, 8), (64, 60)])
def test_a_fully_cached_prompt_computes_its_last_block_again(length: int, hit: int) -> None:
    """Case 14: the hit is at most the prompt less one token."""
    cache = Cache(40, [[(1, 0, length)], [(1, 0, length)]], 3)
    cache.enter(0)
    assert cache.enter(1)[1] == hit


def test_a_block_computed_again_is_a_duplicate_and_the_first_one_is_hit() -> None:
    """Case 14: both hold the content; tables only grow at their ends, so neither is replaced."""
    cache = Cache(40, [[(1, 0, 8)], [(1, 0, 8)], [(1, 0, 9)]], 3)
    first, second, third = (cache.enter(request)[0] for request in (0, 1, 2))
    tables = [cache.allocator.block_table(row).tolist() for row in (first, second, third)]
    assert tables == [[1, 2], [1, 3], [1, 2, 4]]


def test_only_full_blocks_are_found() -> None:
    """Case 15: of ten tokens in blocks of four, eight."""
    cache = Cache(40, [[(1, 0, 10)], [(1, 0, 30)]], 3)
    cache.enter(0)
    assert cache.hit(1) == 8


def test_a_blocks_identity_includes_everything_before_it() -> None:
    """Case 15: the same four tokens behind others are another block."""
    cache = Cache(40, [[(1, 0, 4), (2, 0, 4)], [(3, 0, 4), (2, 0, 5)], [(2, 0, 5)]], 3)
    cache.enter(0)
    assert [cache.hit(1), cache.hit(2)] == [0, 0]


def test_namespaces_share_nothing() -> None:
    """Case 16: equal prompts under no, one and another adapter or salt."""
    prompts = [[(1, 0, 9)]] * 4
    cache = Cache(40, prompts, 3)
    builder = ContentBuilder()
    for runs in prompts:
        builder.add(runs, 9)
    cache.allocator.bind_content(SequenceContent(builder.build(), np.array([0, 1, 2, 1])))
    assert [cache.enter(request)[1] for request in range(4)] == [0, 0, 0, 8]


def test_contents_with_equal_hashes_do_not_alias() -> None:
    """Case 17: Python hashes -1 and -2 alike, and so tuples that differ in them only."""
    assert hash((0, -1, 0)) == hash((0, -2, 0))
    cache = Cache(40, [[(-1, 0, 9)], [(-2, 0, 9)], [(-1, 0, 9)]], 3)
    assert [cache.enter(request)[1] for request in range(3)] == [0, 0, 8]


def test_within_a_chain_the_deepest_block_is_evicted_first() -> None:
    """Case 18: three blocks are cached, one is needed; the next hit is two."""
    cache = Cache(3, [[(1, 0, 12)], [(2, 0, 2)], [(1, 0, 13)]], 2)
    cache.leave(cache.enter(0)[0])
    assert cache.hit(2) == 12
    cache.enter(1)
    assert cache.hit(2) == 8


def test_generated_tokens_are_found_too() -> None:
    """Case 21: 100 + 50 tokens are 37 full blocks of 4, the last token is never written."""
    first = [(1, 0, 100)]
    follow = [*first, (own_output(0), 0, 50), (2, 0, 50)]
    cache = Cache(200, [first, follow], 50)
    row, _ = cache.enter(0)
    cache.generate(row, 49)
    cache.leave(row)
    assert cache.hit(1) == 148


def test_what_is_hit_is_not_evicted_for_the_rest_of_the_same_request() -> None:
    """Case 22: two hit blocks are oldest in the free queue; the third comes from behind them."""
    cache = Cache(4, [[(1, 0, 8)], [(2, 0, 8)], [(1, 0, 12)]], 3)
    cache.leave(cache.enter(0)[0])
    cache.leave(cache.enter(1)[0])
    row, hit = cache.enter(2)
    assert hit == 8
    assert cache.allocator.block_table(row).tolist() == [1, 2, 4]


def test_hits_that_are_free_count_against_what_is_free() -> None:
    """Case 22: four blocks are free, two of them are the hit; three more are one too many."""
    cache = Cache(4, [[(1, 0, 8)], [(2, 0, 1)], [(1, 0, 13)]], 3)
    cache.leave(cache.enter(0)[0])
    cache.enter(1)
    row = cache.open(2)
    assert cache.allocator.lookup(row) == 8
    assert cache.allocator.admit(row, 5) is Admission.LATER


def test_a_block_that_was_given_away_is_not_found_under_its_old_content() -> None:
    """Case 23: its number is the same, its content is not."""
    cache = Cache(2, [[(1, 0, 8)], [(2, 0, 8)], [(1, 0, 9)], [(2, 0, 9)]], 2)
    cache.leave(cache.enter(0)[0])
    cache.leave(cache.enter(1)[0])
    assert [cache.hit(2), cache.hit(3)] == [0, 8]


@pytest.mark.timeout(60)
def test_an_eviction_does_not_look_at_all_blocks() -> None:
    """Case 24: as many evictions of ten times as many blocks take no ten times as long."""
    seconds = []
    for num_blocks in (2_000, 200_000):
        prompts = [[(1, 0, 16 * num_blocks)], [(2, 0, 16 * 1_000)]]
        allocator, sequences = Prefix(16), SequenceTable()
        allocator.bind(16 * (num_blocks + 1), sequences, 16 * (num_blocks + 1))
        allocator.bind_content(contents(prompts))
        lengths = np.array([16 * num_blocks, 16 * 1_000])
        ones = np.ones(2, np.int64)
        requests = new_requests(0 * ones, lengths, ones, Limits(16 * (num_blocks + 1), ones))
        rows = [sequences.open(requests, request) for request in (0, 1)]
        allocator.admit(rows[0], int(lengths[0]))
        allocator.free(np.array(rows[:1]))
        begin = time.perf_counter()
        assert allocator.admit(rows[1], 16_000) is Admission.OK
        seconds.append(time.perf_counter() - begin)
        assert allocator.counters()["num_evicted_blocks"] >= 999
    assert seconds[1] < 10 * seconds[0] + 0.01


def run_of(prompts: list[Prompt], outputs: list[int], num_blocks: int, scheduler: Scheduler) -> Run:
    """Everybody arrives at 0; an iteration takes 1,000 ns; the allocator is checked throughout."""
    return simulate(
        requests_of(prompts, outputs),
        Memory(4 * (num_blocks + 1), LONGEST),
        CheckedAllocator(Prefix(4)),
        scheduler,
        Constant(1e-6),
        Options(content=contents(prompts)),
    )


@pytest.mark.parametrize("policy", [VllmV1, VllmV1Async])
def test_a_preempted_request_finds_its_own_blocks_again(policy: type[Scheduler]) -> None:
    """Case 25: 4 + 12 tokens each in 6 blocks; the second is preempted and resumes on a hit.

    Its three blocks were full; the first request has taken the deepest one.
    """
    run = run_of([[(1, 0, 4)], [(2, 0, 4)]], [12, 12], 6, policy())
    assert run.requests[:, NUM_PREEMPTIONS].tolist() == [0, 1]
    assert run.scheduler.counters()["num_hit_tokens"] == 8


class GivesNothing(Prefix):
    """Admits everybody and has no slot for any further token; freeing does not help."""

    def append(self, rows: IntArray, counts: IntArray) -> int:
        return 0

    def can_append(self, rows: IntArray, num_iterations: int) -> int:
        return 0


@pytest.mark.timeout(60)
def test_when_preempting_frees_nothing_every_request_ends_with_a_reason() -> None:
    """Case 26: none is preempted and readmitted for ever."""
    requests = requests_of([[(i, 0, 4)] for i in (1, 2, 3)], [5, 5, 5])
    parts = GivesNothing(4), VllmV1(), Constant(1e-6)
    run = simulate(requests, Memory(64, LONGEST), *parts)
    assert requests[:, STATUS].tolist() == [FAILED] * 3
    assert sorted(run.scheduler.reasons) == [0, 1, 2]


def test_waiting_for_ever_as_the_engine_does_ends_as_a_stall() -> None:
    """Case 26: the first needs more blocks than there are, and the second waits behind it."""
    run = run_of([[(1, 0, 40)], [(2, 0, 4)]], [2, 2], 6, VllmV1(wait_forever=True))
    assert run.status == "stalled"
    assert "2 requests wait" in run.reason
    other = run_of([[(1, 0, 40)], [(2, 0, 4)]], [2, 2], 6, VllmV1())
    assert other.requests[1, STATUS] == FINISHED
    assert other.scheduler.reasons == {0: "needs 10 blocks of 4 slots, the pool has 6 to give"}


@pytest.mark.parametrize("single_step", [False, True])
def test_a_fully_cached_prompt_takes_time_even_if_computing_costs_none(single_step: bool) -> None:
    """Case 27: iterations of zero seconds last a nanosecond each."""
    prompts = [[(1, 0, 9)], [(1, 0, 9)]]
    requests = requests_of(prompts, [2, 2])
    options = Options(single_step=single_step, content=contents(prompts))
    run = simulate(requests, Memory(64, 64), Prefix(4), VllmV1(), Constant(0.0), options)
    assert requests[:, FINISH_NS].tolist() == [2, 2]
    tally = run.scheduler.tally
    assert (tally.num_queried_tokens, tally.num_hit_tokens, tally.num_hit_requests) == (18, 8, 1)


@pytest.mark.parametrize("policy", [VllmV1, VllmV1Async])
def test_tokens_and_the_gaps_between_them_survive_preemption(policy: type[Scheduler]) -> None:
    """Case 28: gaps are outputs less one, and span from the first token to the finish."""
    prompts = [[(i, 0, 5 + i)] for i in range(1, 5)]
    run = run_of(prompts, [14, 11, 9, 12], 9, policy())
    requests, gaps = run.requests, run.scheduler.gaps
    assert requests[:, NUM_PREEMPTIONS].sum() > 0
    assert requests[:, NUM_GENERATED].tolist() == [14, 11, 9, 12]
    assert gaps[GAP_COUNT] == 13 + 10 + 8 + 11
    spans = requests[:, FINISH_NS] - requests[:, FIRST_TOKEN_NS]
    assert gaps[GAP_SUM_S] * 10**9 + gaps[GAP_SUM_NS] == spans.sum()


def test_the_example_of_vllms_documentation_goes_as_it_is_told() -> None:
    """docs/design/prefix_caching.md, whose blocks are numbered from 0: here block 0 is nobody's.

    Ten blocks of 4. The second prompt begins with 10 tokens of the first one's 15, the third one,
    of 29 tokens, with 12 of them.
    """
    prompts = [[(1, 0, 15)], [(1, 0, 10), (2, 0, 4)], [(1, 0, 12), (3, 0, 17)]]
    cache = Cache(10, prompts, 9, Prefix(4, free_order="append"))
    tables = cache.allocator.block_table
    first, hit = cache.enter(0)
    assert (hit, tables(first).tolist()) == (0, [1, 2, 3, 4])
    cache.generate(first, 2)
    assert tables(first).tolist() == [1, 2, 3, 4, 5]
    second, hit = cache.enter(1)
    assert (hit, tables(second).tolist()) == (8, [1, 2, 6, 7])
    cache.leave(first)
    cache.leave(second)
    free = [block - 1 for block in cache.allocator.free_list().tolist()]
    assert free == [7, 8, 9, 4, 3, 2, 6, 5, 1, 0]
    third, hit = cache.enter(2)
    assert hit == 12
    assert [block - 1 for block in tables(third).tolist()] == [0, 1, 2, 7, 8, 9, 4, 3]
