"""Where contiguous memory puts reservations, what that wastes, and what compaction copies."""

import numpy as np
import pytest

from sim.allocators import Admission
from sim.allocators.contiguous import Contiguous
from sim.costs.linear import Linear
from sim.engine.simulation import Memory, Run, simulate
from sim.metrics.summary import summarize
from sim.schedulers import Fcfs
from sim.sequence import FINISH_NS, FIRST_TOKEN_NS, Limits, SequenceTable, new_requests

ORCA_SLOTS = 15_728  # 12 GiB of KV for OPT-13B, PagedAttention paper, Table 1


class Arena:
    """A contiguous allocator whose reservations are as long as asked for."""

    def __init__(self, num_slots: int, max_model_len: int = 4096, **parameters: object) -> None:
        self.memory = Contiguous(reservation="oracle", **parameters)  # type: ignore[arg-type]
        self.sequences = SequenceTable()
        self.memory.bind(num_slots, self.sequences, max_model_len)

    def ask(self, size: int) -> tuple[int, Admission]:
        """A row that reserves size slots and writes all but one; the answer it got."""
        cells = [np.array([n], np.int64) for n in (0, size - 1, 1)]
        request = new_requests(*cells, Limits(self.memory.max_model_len, cells[2]))
        row = self.sequences.open(request, 0)
        return row, self.memory.admit(row, size - 1)

    def put(self, *sizes: int) -> list[int]:
        """Rows with reservations of these sizes; each must fit."""
        answers = [self.ask(size) for size in sizes]
        assert [verdict for _, verdict in answers] == [Admission.OK] * len(sizes)
        return [row for row, _ in answers]

    def drop(self, *rows: int) -> None:
        self.memory.free(np.array(rows))
        self.check(without=rows)

    def check(self, without: tuple[int, ...] = ()) -> None:
        held = np.flatnonzero(self.sequences.rows[:, 6])
        self.memory.check(np.setdiff1d(held, without))

    def starts(self, *rows: int) -> list[int]:
        return [int(self.memory.held_ranges(row)[0, 0]) for row in rows]

    def holes(self) -> list[list[int]]:
        return self.memory.holes().tolist()


def test_a_greedy_arena_is_the_powers_of_two_of_its_size() -> None:
    arena = Arena(ORCA_SLOTS, placement="buddy")
    sizes = [size for _, size in arena.holes()]
    assert sizes == [8192, 4096, 2048, 1024, 256, 64, 32, 16]
    assert arena.memory.usage().external == 0


def test_an_arena_of_longest_chunks_loses_the_rest() -> None:
    arena = Arena(ORCA_SLOTS, 2048, placement="buddy", arena="max_len_chunks")
    assert [size for _, size in arena.holes()] == [2048] * 7
    assert arena.memory.usage().external == ORCA_SLOTS - 7 * 2048 == 1392


@pytest.mark.parametrize("kind", ["greedy", "max_len_chunks"])
def test_seven_longest_sequences_fit_into_the_papers_pool(kind: str) -> None:
    arena = Arena(ORCA_SLOTS, 2048, placement="buddy", arena=kind)
    arena.put(*[2048] * 7)
    assert arena.ask(2048)[1] == Admission.LATER


def test_a_chunk_is_the_longest_sequence_rounded_up_to_a_power_of_two() -> None:
    arena = Arena(10_000, 3000, placement="buddy", arena="max_len_chunks")
    assert arena.holes() == [[0, 4096], [4096, 4096]]


def test_what_is_smaller_than_the_smallest_block_is_external() -> None:
    arena = Arena(100, placement="buddy", min_block=16)
    assert [size for _, size in arena.holes()] == [64, 32]
    assert arena.memory.usage().external == 4


def test_buddy_rounding_is_external_and_comes_back() -> None:
    """33 slots take a block of 64: 32 written, one reserved, 31 nobody's."""
    arena = Arena(256, placement="buddy")
    (row,) = arena.put(33)
    usage = arena.memory.usage()
    assert (usage.token_states, usage.internal, usage.external) == (32, 1, 31)
    assert usage.free == 256 - 64
    arena.drop(row)
    assert arena.memory.usage().free == 256


def test_a_small_reservation_takes_the_smallest_block() -> None:
    arena = Arena(64, placement="buddy", min_block=16)
    arena.put(3)
    assert arena.holes() == [[16, 16], [32, 32]]


def test_halves_are_merged_only_with_each_other() -> None:
    """[16, 32) and [32, 48) touch, but are halves of different blocks."""
    arena = Arena(64, placement="buddy", min_block=16)
    rows = arena.put(16, 16, 16, 16)
    arena.drop(rows[1], rows[2])
    assert arena.holes() == [[16, 16], [32, 16]]
    arena.drop(rows[3])
    assert arena.holes() == [[16, 16], [32, 32]]
    arena.drop(rows[0])
    assert arena.holes() == [[0, 64]]


def test_chunks_are_never_merged_into_something_larger() -> None:
    arena = Arena(64, 16, placement="buddy", arena="max_len_chunks", min_block=4)
    arena.drop(*arena.put(16, 4, 4, 13))
    assert arena.holes() == [[0, 16], [16, 16], [32, 16], [48, 16]]


def test_a_buddy_system_halves_the_smallest_block_that_is_large_enough() -> None:
    arena = Arena(64 + 16, placement="buddy", min_block=4)
    (row,) = arena.put(5)
    assert arena.starts(row) == [64]


@pytest.mark.parametrize(
    ("placement", "start"), [("first_fit", 0), ("best_fit", 40), ("next_fit", 75)]
)
def test_each_placement_chooses_its_own_hole(placement: str, start: int) -> None:
    """Holes of 30 at 0, of 10 at 40, and all from 75 on; the last was placed at 50."""
    arena = Arena(100, placement=placement)
    rows = arena.put(30, 10, 10, 25)
    arena.drop(rows[0], rows[2])
    assert arena.holes() == [[0, 30], [40, 10], [75, 25]]
    (row,) = arena.put(10)
    assert arena.starts(row) == [start]


def test_next_fit_looks_below_where_it_last_placed_something() -> None:
    """shared case 10: the search covers the whole arena."""
    arena = Arena(100, placement="next_fit")
    rows = arena.put(40, 40, 20)
    arena.drop(rows[0])
    assert arena.starts(*arena.put(40)) == [0]


def test_next_fit_goes_on_with_the_hole_that_reaches_beyond_its_last_range() -> None:
    """The last range ends at 70, within the hole [30, 100) once it is given back; [0, 20) waits."""
    arena = Arena(100, placement="next_fit")
    rows = arena.put(20, 10, 30, 10)
    arena.drop(rows[0], rows[2], rows[3])
    assert arena.holes() == [[0, 20], [30, 70]]
    assert arena.starts(*arena.put(10)) == [30]


def test_next_fit_leaves_a_hole_that_ends_with_its_last_range_behind() -> None:
    """The last range was [10, 20), which is a hole again: the next one is looked for from 20 on."""
    arena = Arena(100, placement="next_fit")
    rows = arena.put(10, 10, 30, 50)
    arena.drop(rows[1])
    (last,) = arena.put(10)
    arena.drop(last, rows[3])
    assert arena.holes() == [[10, 10], [50, 50]]
    assert arena.starts(*arena.put(5)) == [50]


def test_the_lowest_of_equal_holes_is_the_best_fit() -> None:
    arena = Arena(60, placement="best_fit")
    rows = arena.put(10, 5, 10, 35)
    arena.drop(rows[0], rows[2])
    assert arena.starts(*arena.put(10)) == [0]


@pytest.mark.parametrize(
    ("placement", "inspected"), [("first_fit", 2), ("best_fit", 3), ("next_fit", 1)]
)
def test_the_holes_that_a_search_looks_at_are_counted(placement: str, inspected: int) -> None:
    """Holes of 5 at 0, of 20 at 10 and of 60 at 40, where the last placed range ends."""
    arena = Arena(100, placement=placement)
    rows = arena.put(5, 5, 20, 10)
    arena.drop(rows[0], rows[2])
    before = arena.memory.counters()
    arena.put(15)
    after = arena.memory.counters()
    assert after["num_placements"] - before["num_placements"] == 1
    assert after["num_holes_inspected"] - before["num_holes_inspected"] == inspected


def test_a_buddy_search_looks_at_one_list_for_each_halving_and_the_first() -> None:
    arena = Arena(64, placement="buddy", min_block=16)
    arena.put(16)
    assert arena.memory.counters()["num_holes_inspected"] == 3


@pytest.mark.parametrize("placement", ["first_fit", "best_fit", "next_fit"])
def test_without_a_hole_large_enough_only_compaction_helps(placement: str) -> None:
    """shared case 9: 40 slots are free in two holes, a request needs 35."""
    refused, sliding = (Arena(100, placement=placement, compaction=c) for c in (False, True))
    for arena in (refused, sliding):
        rows = arena.put(20, 30, 20, 30)
        arena.drop(rows[0], rows[2])
    row, verdict = refused.ask(35)
    assert verdict == Admission.LATER
    assert refused.memory.fragmented_for(row)
    row, verdict = sliding.ask(35)
    assert verdict == Admission.OK
    assert not sliding.memory.fragmented_for(row)
    assert sliding.starts(rows[1], rows[3], row) == [0, 70, 30]
    assert sliding.holes() == [[65, 5]]
    sliding.check()
    counters = sliding.memory.counters()
    assert (counters["num_compactions"], counters["num_copied_tokens"]) == (1, 29)


def test_compaction_stops_once_the_hole_is_large_enough() -> None:
    """The range above the second hole stays, and so does the third hole."""
    arena = Arena(100, placement="first_fit", compaction=True)
    rows = arena.put(10, 20, 10, 20, 10, 30)
    arena.drop(rows[0], rows[2], rows[4])
    (row,) = arena.put(15)
    assert arena.starts(rows[1], row, rows[3], rows[5]) == [0, 20, 40, 70]
    assert arena.holes() == [[35, 5], [60, 10]]
    assert arena.memory.copied_tokens() == 19


def test_holes_that_suffice_exactly_are_enough_for_compaction() -> None:
    """10 + 10 slots for 20: the third hole and what lies before it stay where they are."""
    arena = Arena(100, placement="first_fit", compaction=True)
    rows = arena.put(10, 20, 10, 20, 10, 30)
    arena.drop(rows[0], rows[2], rows[4])
    (row,) = arena.put(20)
    assert arena.starts(rows[1], row, rows[3], rows[5]) == [0, 20, 40, 70]
    assert arena.holes() == [[60, 10]]


def test_free_slots_that_would_hold_a_reservation_but_not_its_block_are_fragmented() -> None:
    """17 slots take a block of 32; 16 + 16 are free in two blocks, 31 of them would do."""
    arena = Arena(64, placement="buddy", min_block=16)
    rows = arena.put(16, 16, 16, 16)
    arena.drop(rows[1])
    row, verdict = arena.ask(17)
    assert (verdict, arena.memory.fragmented_for(row)) == (Admission.LATER, False)
    arena.drop(rows[2])
    row, verdict = arena.ask(17)
    assert (verdict, arena.memory.fragmented_for(row)) == (Admission.LATER, True)


def test_free_slots_between_a_reservation_and_its_block_count_as_fragmented() -> None:
    """20 slots take a block of 32; a block of 16 and one of 8 are free, 24 slots."""
    arena = Arena(64, placement="buddy", min_block=8)
    rows = arena.put(32, 16, 8, 8)
    arena.drop(rows[1], rows[3])
    row, verdict = arena.ask(20)
    assert (verdict, arena.memory.fragmented_for(row)) == (Admission.LATER, True)


def test_what_lies_below_all_holes_is_not_copied() -> None:
    arena = Arena(50, placement="first_fit", compaction=True)
    rows = arena.put(10, 10, 10, 10, 10)
    arena.drop(rows[1], rows[3])
    arena.put(20)
    assert arena.memory.copied_tokens() == 9


def run(per_copied_token_s: float, compaction: bool) -> Run:
    """Four requests fill the pool; the first and third end, and a fifth needs both holes."""
    lengths = [(8, 2), (8, 40), (8, 2), (8, 40), (18, 2)]
    prompts, outputs = np.array(lengths, np.int64).T
    arrivals = np.array([0, 0, 0, 0, 1], np.int64)
    requests = new_requests(arrivals, prompts, outputs, Limits(64, outputs))
    allocator = Contiguous("oracle", "first_fit", compaction=compaction)
    cost = Linear(1e-6, 0, 0, 0, per_copied_token_s)
    return simulate(requests, Memory(10 + 48 + 10 + 48, 64), allocator, Fcfs(), cost)


def test_copies_take_the_time_that_the_cost_model_says() -> None:
    """One range slides: 10 tokens count as written, the third iteration's own included."""
    free, charged = run(0.0, True), run(1e-7, True)
    assert summarize(charged, {})["num_copied_tokens"] == 10
    late = charged.requests.item(4, FIRST_TOKEN_NS) - free.requests.item(4, FIRST_TOKEN_NS)
    assert late == 1000
    assert free.requests.item(4, FINISH_NS) < run(0.0, False).requests.item(4, FINISH_NS)


def test_the_summary_reports_the_search_and_leaves_others_empty() -> None:
    row = summarize(run(0.0, True), {})
    assert row["num_placements"] == 5
    assert row["holes_per_search_mean"] == row["num_holes_inspected"] / 5  # type: ignore[operator]
