"""TGI's two token budgets, its reservation of blocks, and the prompts that wait for others."""

from typing import Any

import numpy as np
import pytest

from sim.allocators import Admission, Allocator
from sim.allocators.paged import Paged
from sim.costs.linear import Constant
from sim.engine.simulation import Memory, Run, simulate
from sim.schedulers.tgi import Tgi
from sim.sequence import (
    FINISH_NS,
    FIRST_SCHEDULED_NS,
    FIRST_TOKEN_NS,
    Limits,
    SequenceTable,
    new_requests,
)

US = 1_000
Rows = list[tuple[float, int, int, int]]  # arrival in µs, prompt, output, max_tokens


def run(rows: Rows, num_slots: int = 1000, memory: Allocator | None = None, **knobs: Any) -> Run:
    arrivals, prompts, outputs, longest = np.array(rows).T
    counts = [column.astype(np.int64) for column in (arrivals * US, prompts, outputs)]
    limits = Limits(500, longest.astype(np.int64))
    memory = memory or Paged(block_size=1, reserve_max_tokens=True)
    requests = new_requests(*counts, limits)
    return simulate(requests, Memory(num_slots, 500), memory, Tgi(**knobs), Constant(1e-6))


def times_us(done: Run, column: int) -> list[float]:
    return (done.requests[:, column] / US).tolist()


def test_blocks_for_prompt_and_max_tokens_are_taken_at_admission() -> None:
    """10 + 20 tokens, the last of which is never written, are two blocks of 16.

    It stops after 9: 18 slots are written in the end, 14 never.
    """
    memory, sequences = Paged(block_size=16, reserve_max_tokens=True), SequenceTable()
    memory.bind(64, sequences, 500)
    cells = [np.array([n], np.int64) for n in (0, 10, 9, 20)]
    row = sequences.open(new_requests(*cells[:3], Limits(500, cells[3])), 0)
    assert memory.admit(row, 10) == Admission.OK
    usage = memory.usage()
    assert (usage.token_states, usage.reserved, usage.internal) == (10, 8, 14)
    assert usage.free == 32
    assert memory.can_append(np.array([row]), 100) == 100


@pytest.mark.parametrize(("block_size", "blocks"), [(1, 29), (16, 2), (64, 1), (256, 1)])
def test_a_reservation_in_the_blocks_of_each_attention_backend(
    block_size: int, blocks: int
) -> None:
    memory, sequences = Paged(block_size=block_size, reserve_max_tokens=True), SequenceTable()
    memory.bind(1024, sequences, 500)
    cells = [np.array([n], np.int64) for n in (0, 10, 9, 20)]
    row = sequences.open(new_requests(*cells[:3], Limits(500, cells[3])), 0)
    memory.admit(row, 10)
    assert len(memory.block_table(row)) == blocks


def test_the_total_budget_counts_prompts_and_max_tokens() -> None:
    """10 + 20 and 20 + 10 are all of 60. Their blocks are 29 and 29, which leaves 2 for 1 + 1.

    So the third joins in the next iteration, and the fourth when the first has ended.
    """
    rows = [(0.0, 10, 8, 20), (0.0, 20, 9, 10), (0.0, 1, 1, 1), (0.0, 1, 1, 1)]
    done = run(rows, max_batch_total_tokens=60)
    assert times_us(done, FIRST_SCHEDULED_NS) == [0, 0, 1, 3]


def test_the_budget_of_prompts_limits_one_iteration() -> None:
    rows = [(0.0, 30, 5, 5), (0.0, 30, 5, 5), (0.0, 10, 5, 5)]
    done = run(rows, max_batch_prefill_tokens=64)
    assert times_us(done, FIRST_SCHEDULED_NS) == [0, 0, 1]
    assert times_us(run(rows), FIRST_SCHEDULED_NS) == [0, 0, 0]


def test_running_requests_wait_while_prompts_are_computed_and_then_decode() -> None:
    """The second joins at 1 µs, so the first decodes from 2 µs on; the third must let it."""
    rows = [(0.0, 5, 4, 4), (0.5, 5, 9, 9), (1.5, 5, 9, 9)]
    done = run(rows)
    assert times_us(done, FIRST_TOKEN_NS) == [1, 2, 4]
    assert times_us(done, FIRST_SCHEDULED_NS) == [0, 1, 3]
    assert times_us(done, FINISH_NS)[0] == 6  # its iterations start at 0, 2, 4 and 5 µs


FOUR: Rows = [(0.0, 5, 30, 30)] * 4


def test_fewer_than_the_ratio_wait_until_enough_tokens_have_passed() -> None:
    """1.2 x 4 are four. One waits until five iterations have passed, the prompts' included."""
    knobs = {"waiting_served_ratio": 1.2, "max_waiting_tokens": 5}
    done = run([*FOUR, (0.5, 5, 3, 3)], **knobs)
    assert times_us(done, FIRST_SCHEDULED_NS)[4] == 5


def test_as_many_as_the_ratio_says_join_at_once() -> None:
    """Three wait from 1 µs on; with the fourth, which comes at 2.5 µs, they are enough."""
    joining: Rows = [(0.5, 5, 3, 3)] * 3 + [(2.5, 5, 3, 3)]
    done = run([*FOUR, *joining], waiting_served_ratio=1.2)
    assert times_us(done, FIRST_SCHEDULED_NS)[4:] == [3, 3, 3, 3]


def test_the_ratio_counts_those_that_the_budgets_let_in() -> None:
    """Four wait, but only two fit beside the four that run: not enough before 20 tokens."""
    joining: Rows = [(0.5, 5, 3, 5)] * 4
    done = run([*FOUR, *joining], waiting_served_ratio=1.2, max_batch_total_tokens=160)
    assert times_us(done, FIRST_SCHEDULED_NS)[4:6] == [20, 20]


def test_a_batch_has_at_most_so_many_requests() -> None:
    done = run([(0.0, 5, 3, 3)] * 3, max_num_seqs=2)
    assert times_us(done, FIRST_SCHEDULED_NS) == [0, 0, 3]


def test_what_can_never_be_within_a_budget_is_rejected_with_its_number() -> None:
    rows = [(0.0, 30, 2, 2), (0.0, 10, 3, 60), (0.0, 5, 2, 2)]
    done = run(rows, max_batch_prefill_tokens=20, max_batch_total_tokens=64)
    assert done.scheduler.reasons == {
        0: "needs 30 tokens in one iteration, max_batch_prefill_tokens is 20",
        1: "may become 70 tokens long, max_batch_total_tokens is 64",
    }


def test_nobody_is_preempted_where_all_is_reserved() -> None:
    rng = np.random.default_rng(2)
    rows: Rows = [(0.0, int(p), int(o), int(o) + 9) for p, o in rng.integers(1, 40, (80, 2))]
    for block_size in (1, 16):
        memory = Paged(block_size=block_size, reserve_max_tokens=True)
        done = run(rows, 320, memory)
        assert done.scheduler.num_preemptions == 0
        assert done.scheduler.num_finished == 80
        assert done.recorder.num_queued_iterations > 0


def test_memory_that_was_not_reserved_may_run_out_and_the_last_recomputes() -> None:
    done = run([(0.0, 6, 8, 8), (0.0, 6, 8, 8)], 16, Paged(block_size=4), max_batch_total_tokens=40)
    assert done.scheduler.num_preemptions > 0
    assert done.scheduler.num_finished == 2
