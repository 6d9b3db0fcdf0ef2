"""Behaviours that real systems got wrong (cases 1-8, 26-29): memory, preemption, progress."""

from typing import Any

import numpy as np
import pytest

from sim.allocators import ALLOCATORS, Admission, Allocator
from sim.allocators.contiguous import Contiguous
from sim.allocators.paged import Paged
from sim.allocators.terms import FREE, TOKEN_STATES
from sim.costs.linear import Constant
from sim.engine.arrivals import FOREVER_NS
from sim.engine.simulation import Memory, Options, Run, simulate
from sim.gaps import GAP_COUNT, GAP_SUM_NS, GAP_SUM_S
from sim.schedulers.base import Scheduler
from sim.schedulers.fcfs import Fcfs
from sim.sequence import (
    FAILED,
    FINISH_NS,
    FINISHED,
    FIRST_TOKEN_NS,
    NUM_GENERATED,
    NUM_PREEMPTIONS,
    REJECTED,
    REQUEST,
    STATUS,
    IntArray,
    Limits,
    SequenceTable,
    new_requests,
)
from sim.testing import CheckedAllocator, visible_state

IN_BLOCKS = ("paged", "nano_vllm", "vattention")
PARAMETERS: dict[str, dict[str, Any]] = {kind: {"block_size": 4} for kind in IN_BLOCKS}


def requests_of(requests: list[tuple[int, int, int]], max_model_len: int = 4096) -> IntArray:
    columns = np.array(requests, np.int64).T
    return new_requests(*columns, Limits(max_model_len, columns[2]))


def run_of(
    requests: list[tuple[int, int, int]],
    allocator: Allocator,
    num_slots: int,
    scheduler: Scheduler | None = None,
    seconds: float = 1e-6,
) -> Run:
    """Requests of (arrival ns, prompt, output); the allocator is checked throughout."""
    return simulate(
        requests_of(requests),
        Memory(num_slots, 4096),
        CheckedAllocator(allocator),
        scheduler or Fcfs(),
        Constant(seconds),
    )


def admitted(allocator: Allocator, num_slots: int, prompt: int, output: int = 50) -> int:
    """Bind the allocator and admit one request; return its row."""
    sequences = SequenceTable()
    allocator.bind(num_slots, sequences, 4096)
    row = sequences.open(requests_of([(0, prompt, output)]), 0)
    assert allocator.admit(row, prompt) == Admission.OK
    return row


def test_a_request_that_never_fits_is_rejected_at_arrival_and_those_behind_it_proceed() -> None:
    """Case 1: 1,002 prompt tokens need 63 blocks of 16, the pool has 50."""
    run = run_of([(5, 1002, 10), (5, 20, 4), (6, 30, 2)], Paged(16), 800)
    assert run.requests[:, STATUS].tolist() == [REJECTED, FINISHED, FINISHED]
    assert run.requests[0, FINISH_NS] == 5
    assert run.scheduler.reasons == {0: "needs 63 blocks of 16 slots, the pool has 50"}
    assert run.requests[1, FIRST_TOKEN_NS] == 1005


def test_a_reservation_larger_than_the_pool_is_rejected_with_a_reason() -> None:
    """Case 1, on contiguous memory: it is the reservation that never fits."""
    run = run_of([(0, 700, 200), (0, 20, 4)], Contiguous("oracle"), 800)
    assert run.requests[:, STATUS].tolist() == [REJECTED, FINISHED]
    assert run.scheduler.reasons == {0: "needs a reservation of 900 slots, the pool has 800"}


def test_growth_beyond_the_whole_pool_fails_once_and_is_not_readmitted_for_ever() -> None:
    """Case 2: the prompt of 60 fits into 64 slots, its 20 tokens of output do not."""
    run = run_of([(0, 60, 20), (0, 10, 3)], Paged(16), 64)
    assert run.requests[:, STATUS].tolist() == [FAILED, FINISHED]
    assert "grew beyond the memory of the whole pool" in run.scheduler.reasons[0]
    assert run.requests[0, NUM_GENERATED] == 5, "64 slots hold 60 + 4 written tokens"
    assert run.requests[0, NUM_PREEMPTIONS] == 0
    assert run.status == "finished"


def test_a_preempted_request_too_long_to_resume_fails_with_a_reason() -> None:
    """Case 2: after preemption, prompt and output exceed what the watermark leaves of the pool."""
    run = run_of([(0, 4, 26), (0, 32, 12)], Paged(4, watermark=0.2), 44)
    assert run.requests[:, STATUS].tolist() == [FINISHED, FAILED]
    assert run.requests[1, NUM_PREEMPTIONS] == 1
    assert "must keep 2 free" in run.scheduler.reasons[1]


def test_a_contiguous_reservation_is_rounded_up_to_the_granularity() -> None:
    """Case 3: 1,000 tokens at 16 slots reserve 1,008, not 992."""
    allocator = Contiguous("oracle", granularity=16)
    row = admitted(allocator, 4096, prompt=900, output=100)
    assert allocator.held_ranges(row).tolist() == [[0, 1008]]


@pytest.mark.parametrize("kind", sorted(ALLOCATORS))
def test_the_pool_does_not_depend_on_the_maximum_length(kind: str) -> None:
    """Case 3: the same pool for sequences of at most 100 and of at most 100,000 tokens."""
    states = []
    for max_model_len in (100, 100_000):
        allocator = ALLOCATORS[kind](**PARAMETERS.get(kind, {}))
        allocator.bind(1600, SequenceTable(), max_model_len)
        states.append(visible_state(allocator))
    np.testing.assert_equal(states[0], states[1])


def test_every_prefill_chunk_gets_its_blocks_when_it_is_computed() -> None:
    """Case 4: 100 tokens in two chunks of 50 hold 4 blocks of 16, then 7."""
    allocator, sequences = Paged(16), SequenceTable()
    scheduler = Fcfs(max_num_batched_tokens=50, enable_chunked_prefill=True)
    allocator.bind(1600, sequences, 4096)
    scheduler.bind(requests_of([(0, 100, 5)]), sequences, allocator)
    scheduler.add(0)
    held = []
    for now in range(3):
        assert scheduler.schedule(now)
        held.append(len(allocator.held_ranges(scheduler.running.item(0))))
        scheduler.complete(np.array([now, now + 1], np.int64), 1)
    assert held == [4, 7, 7]


@pytest.mark.parametrize("kind", ["contiguous", "paged"])
def test_a_refused_admission_and_a_failed_append_change_nothing(kind: str) -> None:
    """Case 5: sizes, free order and sequences are as before."""
    allocator = Contiguous("oracle") if kind == "contiguous" else Paged(4)
    first = admitted(allocator, 40, prompt=30, output=6)
    sequences = allocator.sequences
    second = sequences.open(requests_of([(0, 12, 3)]), 0)
    before, rows = visible_state(allocator), sequences.rows.copy()
    assert allocator.can_allocate(second) == Admission.LATER
    assert allocator.admit(second, 12) == Admission.LATER
    assert allocator.append(np.array([second, first]), np.array([12, 1])) == 0
    np.testing.assert_equal(visible_state(allocator), before)
    assert np.array_equal(sequences.rows, rows)


@pytest.mark.parametrize("block_size", [1, 4, 16])
def test_terms_count_slots_and_not_blocks(block_size: int) -> None:
    """Case 6: ten tokens are ten slots, whatever the size of a block."""
    allocator = Paged(block_size)
    row = admitted(allocator, 160, prompt=10)
    held = -(-10 // block_size)
    assert len(allocator.block_table(row)) == held
    assert allocator.usage() == (10, held * block_size - 10, 0, 0, 0, 160 - held * block_size)


@pytest.mark.parametrize("kind", sorted(ALLOCATORS))
def test_no_count_is_ever_negative_or_above_the_total(kind: str) -> None:
    """Case 7: looked at in every iteration of a run that preempts where it can."""
    requests = requests_of([(300 * i, 1 + i % 13, 1 + 7 * i % 17) for i in range(40)], 40)
    seen = []

    def look(now_ns: int, scheduler: Scheduler) -> None:
        seen.append(scheduler.allocator.terms.tolist())

    allocator = ALLOCATORS[kind](**PARAMETERS.get(kind, {}))
    simulate(requests, Memory(60, 40), allocator, Fcfs(), Constant(1e-6), Options(observe=look))
    total = 60 if kind != "unbounded" else max(map(sum, seen))
    assert len(seen) > 20
    assert min(map(min, seen)) == 0
    assert max(map(max, seen)) <= total
    assert all(sum(terms) == total for terms in seen if kind != "unbounded")


def test_block_usage_and_token_usage_are_two_figures() -> None:
    """Case 8: sequences of 17 tokens in blocks of 16 fill 17/32 of the blocks they hold."""
    allocator = Paged(16)
    admitted(allocator, 320, prompt=17, output=1)
    sequences = allocator.sequences
    for _ in range(4):
        row = sequences.open(requests_of([(0, 17, 1)]), 0)
        assert allocator.admit(row, 17) == Admission.OK
    held = 320 - allocator.usage().free
    assert (held // 16, allocator.num_blocks) == (10, 20)
    assert allocator.usage().token_states / held == 17 / 32
    assert allocator.usage().internal == 5 * 15, "with one token of output nothing is reserved"


class GivesNothing(Paged):
    """Admits everybody and has no slot for any further token; freeing does not help."""

    def append(self, rows: IntArray, counts: IntArray) -> int:
        return 0

    def can_append(self, rows: IntArray, num_iterations: int) -> int:
        return 0


@pytest.mark.timeout(20)
def test_when_preempting_frees_nothing_the_run_stops_with_a_reason() -> None:
    """Case 26: every request ends, none is preempted and readmitted for ever."""
    run = run_of([(0, 4, 5), (0, 4, 5), (0, 4, 5)], GivesNothing(4), 64)
    assert run.requests[:, STATUS].tolist() == [FAILED] * 3
    assert sorted(run.scheduler.reasons) == [0, 1, 2]
    assert run.recorder.num_iterations < 20


@pytest.mark.parametrize("single_step", [False, True])
def test_work_that_takes_no_compute_time_still_lets_time_advance(single_step: bool) -> None:
    """Case 27: iterations of zero seconds last a nanosecond each."""
    requests = requests_of([(0, 3, 4), (2, 3, 2)])
    options = Options(single_step=single_step)
    run = simulate(requests, Memory(64, 64), Paged(4), Fcfs(), Constant(0.0), options)
    assert requests[:, FINISH_NS].tolist() == [4, 4]
    assert run.end_ns == 4 < FOREVER_NS


def preempting_run() -> Run:
    """Two sequences of 4 + 12 tokens in 6 blocks of 4: the second is preempted once."""
    return run_of([(0, 4, 12), (0, 4, 12)], Paged(4), 24)


def test_token_times_and_counts_survive_preemption() -> None:
    """Case 28: both hold 3 blocks from the ninth token on; the thirteenth preempts the second.

    It has then sampled 9 tokens, resumes when the first has finished, and its tokens stay its.
    """
    run = preempting_run()
    assert run.requests[:, NUM_PREEMPTIONS].tolist() == [0, 1]
    assert run.requests[:, FIRST_TOKEN_NS].tolist() == [1000, 1000]
    assert run.requests[:, FINISH_NS].tolist() == [12_000, 15_000]
    assert run.requests[:, NUM_GENERATED].tolist() == [12, 12]


def test_gaps_between_tokens_are_one_fewer_than_tokens_also_after_preemption() -> None:
    """Case 28: 11 + 11 gaps; the second's longest covers its wait, and none is lost."""
    run = preempting_run()
    gaps = run.scheduler.gaps
    assert gaps[GAP_COUNT] == 22
    spans = run.requests[:, FINISH_NS] - run.requests[:, FIRST_TOKEN_NS]
    assert gaps[GAP_SUM_S] * 10**9 + gaps[GAP_SUM_NS] == spans.sum()


def test_a_resumed_request_computes_its_tokens_once_more_as_prompt() -> None:
    """Case 28: recomputation writes 4 + 9 tokens again and counts none of them as output."""
    states = []

    def look(now_ns: int, scheduler: Scheduler) -> None:
        rows = scheduler.running[: scheduler.num_running]
        states.append((now_ns, scheduler.sequences.rows[rows, REQUEST].tolist()))

    requests = requests_of([(0, 4, 12), (0, 4, 12)])
    memory, options = Memory(24, 64), Options(observe=look)
    simulate(requests, memory, Paged(4), Fcfs(), Constant(1e-6), options)
    assert [ids for _, ids in states] == [[0, 1]] * 9 + [[0]] * 3 + [[1]] * 3


@pytest.mark.parametrize(("prompt", "output"), [(16, 1), (15, 2), (1, 16)])
def test_the_last_tokens_kv_is_never_written_so_finishing_needs_no_block(
    prompt: int, output: int
) -> None:
    """Case 29: 17 tokens finish in a pool of one block of 16."""
    run = run_of([(0, prompt, output)], Paged(16), 16)
    assert run.requests[0, [STATUS, NUM_GENERATED]].tolist() == [FINISHED, output]
    assert run.allocator.terms[[TOKEN_STATES, FREE]].tolist() == [0, 16]
