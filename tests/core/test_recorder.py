"""The recorder's integrals are exact, in bounded memory, and follow the definition of queued."""

import random

import numpy as np
import pytest

from sim.allocators.paged import Paged
from sim.allocators.terms import (
    EXTERNAL,
    FREE,
    NUM_RECORDED,
    NUM_TERMS,
    RESERVED,
    TERM_NAMES,
    TOKEN_STATES,
)
from sim.costs.linear import Constant
from sim.engine.recorder import (
    COLUMN_NAMES,
    FIRST_WIDTH_NS,
    MAX_STRETCH,
    NUM_BUCKETS,
    Recorder,
    exact_sums,
)
from sim.engine.simulation import Memory, Run, simulate
from sim.schedulers.fcfs import Fcfs
from sim.sequence import Limits, new_requests

Stretch = tuple[list[int], list[list[int]], list[int], int, bool, bool]


def write(recorder: Recorder, stretch: Stretch) -> None:
    """Record iterations with the boundaries, terms and queue lengths given."""
    boundaries, log, waiting, num_running, queued, fragmented = stretch
    count = len(log)
    recorder.boundaries[: count + 1] = boundaries
    recorder.log[:count, : len(log[0])] = log
    recorder.joined[:count] = [length - waiting[0] for length in waiting]
    recorder.iterations(count, num_running, waiting[0], queued, fragmented)


def one(start: int, end: int, terms: list[int], queued: bool = False) -> Stretch:
    return [start, end], [terms], [1 if queued else 0], 2, queued, False


def random_stretches(seed: int, longest_ns: int, num_slots: int) -> list[Stretch]:
    rng = random.Random(seed)
    now, stretches = 10**9 * seed + 123, []
    for _ in range(60):
        count = rng.choice([1, 1, 2, 7])
        boundaries = [now]
        for _ in range(count):
            boundaries.append(boundaries[-1] + rng.randint(1, longest_ns))
        now = boundaries[-1]
        log = [[rng.randint(0, num_slots) for _ in range(NUM_RECORDED)] for _ in range(count)]
        waiting = [rng.randint(0, 500) for _ in range(count)]
        queued, fragmented = rng.random() < 0.5, rng.random() < 0.3
        stretches.append((boundaries, log, waiting, rng.randint(0, 300), queued, fragmented))
    return stretches


def values_of(stretch: Stretch, i: int) -> list[int]:
    """What is integrated during iteration i, in the order of the columns."""
    _, log, waiting, num_running, queued, fragmented = stretch
    terms = list(log[i])
    if fragmented:
        terms[EXTERNAL] += terms[FREE]
        terms[FREE] = 0
    return [*terms, num_running, waiting[i], int(queued), num_running * int(queued)]


def integrate(stretches: list[Stretch], start: int, end: int) -> list[int]:
    """Value x ns between two times, in Python integers."""
    totals = [0] * len(COLUMN_NAMES)
    for stretch in stretches:
        for i in range(len(stretch[1])):
            overlap = min(end, stretch[0][i + 1]) - max(start, stretch[0][i])
            if overlap > 0:
                for c, value in enumerate(values_of(stretch, i)):
                    totals[c] += value * overlap
    return totals


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(
    ("longest_ns", "num_slots"), [(5_000, 400), (400_000_000, 10**5), (9 * 10**13, 10**8)]
)
def test_every_bucket_holds_the_exact_integral(seed: int, longest_ns: int, num_slots: int) -> None:
    """Up to 10**8 slots over 180 days: far beyond 64 bits."""
    stretches = random_stretches(seed, longest_ns, num_slots)
    recorder = Recorder(stretches[0][0][0])
    for stretch in stretches:
        write(recorder, stretch)
    table = recorder.timeline()
    assert list(table) == ["start_ns", "width_ns", *COLUMN_NAMES]
    assert 1 <= len(table["start_ns"]) <= NUM_BUCKETS
    last = stretches[-1][0][-1]
    assert table["start_ns"][-1] < last <= table["start_ns"][-1] + table["width_ns"][-1]
    for k in range(len(table["start_ns"])):
        start = table["start_ns"][k]
        found = [table[name][k] for name in COLUMN_NAMES]
        assert found == integrate(stretches, start, start + table["width_ns"][k])


@pytest.mark.parametrize("seed", range(4))
def test_the_queued_sums_hold_the_exact_integral(seed: int) -> None:
    stretches = random_stretches(seed, 9 * 10**13, 10**8)
    recorder = Recorder(stretches[0][0][0])
    for stretch in stretches:
        write(recorder, stretch)
    queued = [stretch for stretch in stretches if stretch[4]]
    expected = integrate(queued, 0, 1 << 80)
    assert recorder.queued_integrals() == dict(zip(COLUMN_NAMES, expected, strict=True))
    assert max(expected) > 1 << 63, "the example must overflow 64 bits to mean something"
    assert recorder.num_queued_iterations == sum(len(stretch[1]) for stretch in queued)


def test_it_does_not_matter_in_how_many_pieces_time_is_recorded() -> None:
    whole, pieces = Recorder(0), Recorder(0)
    count = MAX_STRETCH
    boundaries = [i * 3_333_333 for i in range(count + 1)]
    log = [[i, 2 * i, 3, 4, 5, 10**7 - i] for i in range(count)]
    write(whole, (boundaries, log, list(range(count)), 9, True, False))
    for i in range(count):
        write(pieces, (boundaries[i : i + 2], log[i : i + 1], [i], 9, True, False))
    assert whole.timeline() == pieces.timeline()
    assert whole.queued_integrals() == pieces.queued_integrals()
    assert whole.num_iterations == pieces.num_iterations == count


def test_nanoseconds_beyond_whole_seconds_are_carried_before_they_overflow() -> None:
    """Each of 1,024 iterations adds 10**17 to the cell of the nanoseconds."""
    recorder, span, slots = Recorder(0), 999_999_999, 10**8
    boundaries = [i * span for i in range(MAX_STRETCH + 1)]
    log = [[slots, 0, 0, 0, 0, 0]] * MAX_STRETCH
    write(recorder, (boundaries, log, [1] * MAX_STRETCH, 1, True, False))
    assert recorder.queued_integrals()["token_states"] == slots * span * MAX_STRETCH
    assert sum(recorder.timeline()["token_states"]) == slots * span * MAX_STRETCH


def test_buckets_double_in_width_until_the_run_fits() -> None:
    recorder = Recorder(7)
    write(recorder, one(7, 7 + NUM_BUCKETS * FIRST_WIDTH_NS, [1, 0, 0, 0, 0, 9]))
    assert recorder.timeline()["width_ns"] == [FIRST_WIDTH_NS] * NUM_BUCKETS
    end = 7 + NUM_BUCKETS * FIRST_WIDTH_NS
    write(recorder, one(end, end + 1, [5, 0, 0, 0, 0, 5]))
    table = recorder.timeline()
    assert table["width_ns"] == [2 * FIRST_WIDTH_NS] * (NUM_BUCKETS // 2 + 1)
    assert table["start_ns"][:3] == [7, 7 + 2 * FIRST_WIDTH_NS, 7 + 4 * FIRST_WIDTH_NS]
    assert table["token_states"] == [2 * FIRST_WIDTH_NS] * (NUM_BUCKETS // 2) + [5]


def test_a_run_of_an_odd_number_of_buckets_is_halved_without_loss() -> None:
    recorder = Recorder(0)
    write(recorder, one(0, 3 * FIRST_WIDTH_NS, [4, 0, 0, 0, 0, 0]))
    far = 5 * NUM_BUCKETS * FIRST_WIDTH_NS
    write(recorder, one(far, far + 1, [1, 0, 0, 0, 0, 0]))
    table = recorder.timeline()
    assert table["width_ns"][0] == 8 * FIRST_WIDTH_NS
    assert table["token_states"][0] == 12 * FIRST_WIDTH_NS
    assert sum(table["token_states"]) == 12 * FIRST_WIDTH_NS + 1


def test_free_slots_without_a_hole_for_the_head_count_as_external() -> None:
    recorder = Recorder(0)
    write(recorder, ([0, 10], [[1, 2, 3, 4, 0, 30]], [1], 2, True, True))
    table = recorder.timeline()
    assert table["external"] == [340]
    assert table["free"] == [0]
    assert table["token_states"] == [10]


def test_idle_time_is_integrated_but_is_no_iteration() -> None:
    recorder = Recorder(0)
    recorder.boundaries[:2] = (0, 50)
    recorder.log[0] = (0, 0, 0, 1, 0, 9, 0, 0)
    recorder.idle(num_waiting=3)
    table = recorder.timeline()
    assert (table["free"], table["external"], table["num_waiting"]) == ([450], [50], [150])
    assert table["num_running"] == table["queued"] == [0]
    assert recorder.num_iterations == recorder.num_queued_iterations == 0


def run_of(arrivals: list[tuple[int, int, int]], num_slots: int, scheduler: Fcfs) -> Run:
    """Paged memory in blocks of 4 slots, iterations of 1,000 ns."""
    columns = np.array(arrivals, np.int64).T
    requests = new_requests(*columns, Limits(64, columns[2]))
    return simulate(requests, Memory(num_slots, 64), Paged(4), scheduler, Constant(1e-6))


def test_the_six_terms_add_to_the_pool_at_every_moment() -> None:
    """Two million nanoseconds in buckets of one million."""
    run = run_of([(0, 5, 1500), (100, 9, 40), (700_000, 3, 9)], 63, Fcfs())
    table = run.recorder.timeline()
    totals = [sum(table[name][k] for name in TERM_NAMES) for k in range(len(table["free"]))]
    spans = [min(run.end_ns, start + FIRST_WIDTH_NS) - start for start in table["start_ns"]]
    assert totals == [63 * span for span in spans]
    assert [external / span for external, span in zip(table["external"], spans, strict=True)] == [
        3.0 for _ in spans
    ]


def test_a_queue_behind_max_num_seqs_is_queued_time() -> None:
    """B waits for the three iterations of A, then runs alone for two."""
    run = run_of([(0, 4, 3), (0, 4, 2)], 64, Fcfs(max_num_seqs=1))
    assert run.recorder.num_queued_iterations == 3
    queued = run.recorder.queued_integrals()
    assert (queued["queued"], queued["num_running"], queued["num_waiting"]) == (3000, 3000, 3000)
    assert queued["token_states"] == 1000 * (4 + 5 + 6)
    assert sum(run.recorder.timeline()["queued"]) == 3000


def test_a_queue_behind_the_token_budget_is_not_queued_time() -> None:
    """Both prompts would fit into memory; only the budget keeps the second one waiting."""
    run = run_of([(0, 8, 3), (0, 8, 3)], 64, Fcfs(max_num_batched_tokens=10))
    assert run.recorder.timeline()["num_waiting"] == [1000]
    assert run.recorder.num_queued_iterations == 0
    assert run.recorder.queued_integrals() == dict.fromkeys(COLUMN_NAMES, 0)
    assert run.recorder.timeline()["queued"] == [0]


def test_an_arrival_during_an_iteration_queues_from_the_next_boundary() -> None:
    run = run_of([(0, 4, 4), (1500, 4, 1)], 64, Fcfs(max_num_seqs=1))
    assert run.recorder.num_queued_iterations == 2
    assert run.recorder.timeline()["num_waiting"] == [2000]


def test_warm_up_drops_until_as_many_have_finished_as_ran_when_memory_was_full() -> None:
    """A pool of 3 blocks. A and B run (one block each) when C (two blocks) is first refused.

    A finishes at 2,000 ns, B at 3,000 ns: two have finished, so measuring starts there. C's
    admission at 2,000 ns ends the queue of C; D (two blocks) is refused from then on until C
    finishes at 6,000 ns. Measured are the iterations from 3,000 to 6,000 ns.
    """
    arrivals = [(0, 2, 2), (0, 2, 3), (0, 5, 4), (0, 8, 1)]
    run = run_of(arrivals, 12, Fcfs())
    recorder = run.recorder
    assert run.requests[:, 6].tolist() == [2000, 3000, 6000, 7000]
    assert recorder.measured_from_ns == 3000
    assert recorder.num_queued_iterations == 3
    assert recorder.queued_integrals()["num_running"] == 3000
    assert recorder.queued_integrals()["num_waiting"] == 3000
    assert recorder.queued_integrals()["token_states"] == 1000 * (6 + 7 + 8)
    assert sum(recorder.timeline()["queued"]) == 6000, "the timeline keeps the warm-up"


def test_without_a_full_memory_nothing_is_dropped() -> None:
    run = run_of([(500, 4, 3), (500, 4, 2)], 64, Fcfs(max_num_seqs=1))
    assert run.recorder.measured_from_ns == run.start_ns == 500


def test_columns_follow_the_terms_in_their_order() -> None:
    assert COLUMN_NAMES[:NUM_TERMS] == TERM_NAMES
    assert (TERM_NAMES[TOKEN_STATES], TERM_NAMES[RESERVED]) == ("token_states", "reserved")


@pytest.mark.parametrize("seconds", [0, 1, 8_999_999_999, 9_000_000_000, (1 << 62) // 10**9])
def test_sums_are_exact_on_both_sides_of_what_an_int64_holds(seconds: int) -> None:
    cells = np.array([[seconds, 999_999_999], [0, 0], [1, 1]])
    expected = [seconds * 10**9 + 999_999_999, 0, 10**9 + 1]
    found = exact_sums(cells)
    assert found == expected
    assert {type(value) for value in found} == {int}
