"""Static batches: taken together, padded to a rectangle, and finished together."""

import numpy as np

from sim.allocators import Allocator
from sim.allocators.contiguous import Contiguous
from sim.allocators.paged import Paged
from sim.batch import (
    DECODE_KV_TOKENS,
    KV_TOKENS,
    NUM_DECODE_SEQS,
    NUM_SEQS,
    PREFILL_PAIRS,
    PREFILL_TOKENS,
)
from sim.costs.base import CostModel
from sim.costs.linear import Constant, Linear
from sim.engine.simulation import Memory, Options, Run, simulate
from sim.metrics.summary import summarize
from sim.schedulers import Scheduler
from sim.schedulers.static import Static
from sim.sequence import (
    FINISH_NS,
    FIRST_SCHEDULED_NS,
    FIRST_TOKEN_NS,
    NUM_GENERATED,
    NUM_PREEMPTIONS,
    Limits,
    new_requests,
)

US = 1_000
STEP = Constant(1e-6)

Rows = list[tuple[int, int, int]]  # arrival in µs, prompt, output


def run(
    rows: Rows,
    allocator: Allocator | None = None,
    max_num_seqs: int = 8,
    cost: CostModel = STEP,
    num_slots: int = 200,
    observe: object = None,
) -> Run:
    arrivals, prompts, outputs = np.array(rows, np.int64).T
    requests = new_requests(arrivals * US, prompts, outputs, Limits(100, outputs))
    memory = allocator or Contiguous("oracle")
    options = Options(observe=observe)  # type: ignore[arg-type]
    return simulate(requests, Memory(num_slots, 100), memory, Static(max_num_seqs), cost, options)


def times_us(run: Run, column: int) -> list[float]:
    return (run.requests[:, column] / US).tolist()


def test_a_batch_ends_with_its_longest_output_and_all_answers_come_then() -> None:
    done = run([(0, 5, 2), (0, 3, 6), (0, 9, 1)])
    assert times_us(done, FIRST_TOKEN_NS) == [1, 1, 1]
    assert times_us(done, FINISH_NS) == [6, 6, 6]
    assert done.requests[:, NUM_GENERATED].tolist() == [2, 6, 1]


def test_a_request_that_comes_during_a_batch_waits_for_its_end() -> None:
    done = run([(0, 5, 10), (1, 5, 2), (2, 5, 3)])
    assert times_us(done, FIRST_SCHEDULED_NS) == [0, 10, 10]
    assert times_us(done, FINISH_NS) == [10, 13, 13]


def test_an_idle_engine_waits_for_nobody() -> None:
    done = run([(0, 5, 3), (7, 5, 2), (8, 5, 2)])
    assert times_us(done, FIRST_SCHEDULED_NS) == [0, 7, 9]


def test_a_batch_takes_as_many_as_max_num_seqs_and_memory_allow() -> None:
    assert times_us(run([(0, 4, 2)] * 5, max_num_seqs=2), FINISH_NS) == [2, 2, 4, 4, 6]
    small = run([(0, 4, 2)] * 5, num_slots=18)
    assert times_us(small, FINISH_NS) == [2, 2, 2, 4, 4]


def test_a_request_that_does_not_fit_holds_back_those_behind_it() -> None:
    done = run([(0, 8, 2), (0, 12, 2), (0, 2, 2)], num_slots=20)
    assert times_us(done, FIRST_SCHEDULED_NS) == [0, 2, 2]


def test_finished_members_hold_their_memory_as_internal_waste() -> None:
    """Reservations of 5 and 8; the first is done after 2 of 5 iterations."""
    seen = []

    def look(now_ns: int, scheduler: Scheduler) -> None:
        usage = scheduler.allocator.usage()
        seen.append((usage.token_states, usage.reserved, usage.internal))

    run([(0, 3, 2), (0, 3, 5)], observe=look)
    assert seen == [(6, 5, 2), (8, 3, 2), (5, 2, 6), (6, 1, 6), (7, 0, 6)]


def test_done_members_count_as_running_until_the_batch_ends() -> None:
    row = summarize(run([(0, 5, 2), (0, 3, 6)]), {})
    assert row["num_running_mean"] == row["num_running_max"] == 2


def test_the_batch_is_a_rectangle_as_wide_as_the_longest_prompt() -> None:
    """Prompts of 5 and 3 are two of 5; after three iterations two of 8, though one is done."""
    seen = []

    def look(now_ns: int, scheduler: Scheduler) -> None:
        seen.append(scheduler.batch.tolist())

    run([(0, 5, 2), (0, 3, 4)], observe=look)
    assert [cells[NUM_SEQS] for cells in seen] == [2, 2, 2, 2]
    assert [cells[KV_TOKENS] for cells in seen] == [10, 12, 14, 16]
    assert [cells[DECODE_KV_TOKENS] for cells in seen] == [0, 12, 14, 16]
    assert [cells[NUM_DECODE_SEQS] for cells in seen] == [0, 2, 2, 2]
    assert [cells[PREFILL_TOKENS] for cells in seen] == [10, 0, 0, 0]
    assert [cells[PREFILL_PAIRS] for cells in seen] == [30, 0, 0, 0]


def test_padding_costs_time() -> None:
    """7 µs a prompt token, padded ones included, then 3 µs a sequence for each iteration."""
    cost = Linear(0.0, 3e-6, 0.0, 7e-6)
    done = run([(0, 5, 2), (0, 3, 4)], cost=cost)
    assert times_us(done, FINISH_NS) == [10 * 7 + 4 * 2 * 3] * 2


def test_without_memory_the_member_taken_in_last_waits_for_the_next_batch() -> None:
    """Two prompts of 4 grow in 12 single slots: the second gives way, and is padded no more."""
    done = run([(0, 4, 8), (0, 4, 6)], Paged(block_size=1, watermark=0.0), num_slots=12)
    assert done.requests[:, NUM_PREEMPTIONS].tolist() == [0, 1]
    assert done.requests[:, NUM_GENERATED].tolist() == [8, 6]
    assert times_us(done, FINISH_NS) == [8, 11]
    assert times_us(done, FIRST_TOKEN_NS) == [1, 1]


def test_who_leaves_a_batch_is_computed_no_more() -> None:
    """3 µs a sequence and iteration: two of them for three iterations, then one for five."""
    rows = [(0, 4, 8), (0, 4, 6)]
    paged = Paged(block_size=1, watermark=0.0)
    done = run(rows, paged, num_slots=12, cost=Linear(0.0, 3e-6, 0.0, 0.0))
    assert times_us(done, FINISH_NS)[0] == 3 * 2 * 3 + 5 * 3


def test_a_batch_whose_only_generating_member_has_no_memory_ends() -> None:
    """The done member's answer is returned and its memory freed, and the other one goes on."""
    done = run([(0, 6, 1), (0, 4, 7)], Paged(block_size=1, watermark=0.0), num_slots=12)
    assert times_us(done, FINISH_NS)[0] == 3
    assert done.requests[:, NUM_PREEMPTIONS].tolist() == [0, 1]
    assert done.requests[:, NUM_GENERATED].tolist() == [1, 7]


def test_a_sequence_that_outgrows_the_whole_pool_alone_fails() -> None:
    done = run([(0, 4, 20), (0, 4, 2)], Paged(block_size=1, watermark=0.0), num_slots=12)
    assert "grew beyond the memory of the whole pool" in done.scheduler.reasons[0]
    assert done.requests.item(1, NUM_GENERATED) == 2
