"""The checks find allocators that break the contract, one broken rule at a time."""

from collections.abc import Callable

import numpy as np
import pytest

from sim.allocators import ALLOCATORS, Admission, Allocator, ConservationError, blocks
from sim.allocators.base import BoolArray
from sim.allocators.cached_blocks import FIRST, KEY, LAST, NONE, PREVIOUS, PREVIOUS_SAME
from sim.allocators.paged import Paged
from sim.allocators.prefix import Prefix
from sim.allocators.terms import FREE, RESERVED
from sim.costs.linear import Constant
from sim.engine.simulation import Memory, simulate
from sim.schedulers.fcfs import Fcfs
from sim.sequence import (
    NUM_COMPUTED,
    NUM_SLOTS,
    IntArray,
    Limits,
    SequenceTable,
    new_requests,
)
from sim.testing import CheckedAllocator, SharedBeginnings, check_allocator, visible_state


class Leaks(Paged):
    """Forgets the block that was freed last."""

    def free(self, rows: IntArray) -> None:
        super().free(rows)
        self._pool[blocks.NUM_FREE] -= 1


class FreesInAnotherOrder(Paged):
    """Reverses its free list whenever it is asked a question."""

    def can_allocate(self, row: int) -> Admission:
        count = self._pool.item(blocks.NUM_FREE)
        self._free_blocks[:count] = self._free_blocks[:count][::-1].copy()
        return super().can_allocate(row)


class CountsTwice(Paged):
    """Moves a slot from free to reserved while it looks ahead."""

    def can_append(self, rows: IntArray, num_iterations: int) -> int:
        self.terms[FREE] -= 1
        self.terms[RESERVED] += 1
        return super().can_append(rows, num_iterations)


class WritesBeforeItFails(Paged):
    """Advances a row although there is no block for it."""

    def append(self, rows: IntArray, counts: IntArray) -> int:
        served = super().append(rows, counts)
        if served < len(rows):
            self.sequences.rows[rows[served], NUM_COMPUTED] += 1
        return served


class ShiftsOnRefusal(Paged):
    """A refused admission leaves one block in another place."""

    def admit(self, row: int, count: int) -> Admission:
        verdict = super().admit(row, count)
        if verdict != Admission.OK and self._pool.item(blocks.NUM_FREE) > 1:
            self._free_blocks[:2] = self._free_blocks[1::-1].copy()
        return verdict


class PromisesTooMuch(Paged):
    def can_append(self, rows: IntArray, num_iterations: int) -> int:
        return num_iterations

    def append_ahead(self, rows: IntArray, num_iterations: int, log: IntArray) -> None:
        Allocator.append_ahead(self, rows, num_iterations, log)


class PromisesTooLittle(Paged):
    def can_append(self, rows: IntArray, num_iterations: int) -> int:
        return max(0, super().can_append(rows, num_iterations) - 1)


class TakesBlocksInAnotherOrder(Paged):
    """Runs ahead row after row, where single steps go iteration after iteration."""

    def append_ahead(self, rows: IntArray, num_iterations: int, log: IntArray) -> None:
        for row in rows:
            super().append(np.array([row]), np.array([num_iterations]))
        for i in range(num_iterations):
            log[i] = self.recorded


class LogsTheEnd(Paged):
    """Logs the last iteration's terms for all of them."""

    def append_ahead(self, rows: IntArray, num_iterations: int, log: IntArray) -> None:
        super().append_ahead(rows, num_iterations, log)
        log[:num_iterations] = self.recorded


class NeverSaysNever(Paged):
    def admit(self, row: int, count: int) -> Admission:
        return min(super().admit(row, count), Admission.LATER)

    def can_allocate(self, row: int) -> Admission:
        return min(super().can_allocate(row), Admission.LATER)

    def never_fits(self, requests: IntArray) -> BoolArray:
        return np.zeros(len(requests), np.bool_)


class AdmitsOthers(Paged):
    """Says by never_fits that all are welcome."""

    def never_fits(self, requests: IntArray) -> BoolArray:
        return np.zeros(len(requests), np.bool_)


class KeepsHold(Paged):
    def free(self, rows: IntArray) -> None:
        super().free(rows)
        self.sequences.rows[rows, NUM_SLOTS] = self.block_size


BROKEN: list[tuple[type[Paged], str]] = [
    (
        Leaks,
        "the terms|blocks are lost|freeing everything",
    ),
    (FreesInAnotherOrder, "paged: can_allocate changed free_list"),
    (CountsTwice, "paged: can_append changed terms"),
    (WritesBeforeItFails, "paged: num_computed advanced by another count"),
    (ShiftsOnRefusal, "paged: a refused admit changed free_list"),
    (PromisesTooMuch, "paged: can_append promised"),
    (PromisesTooLittle, "paged: can_append promised .*, one more succeeds"),
    (TakesBlocksInAnotherOrder, "paged: (row .* holds other slots|append_ahead logs)"),
    (LogsTheEnd, "paged: append_ahead logs"),
    (NeverSaysNever, "paged: an empty pool answers LATER"),
    (AdmitsOthers, "paged: never_fits says False"),
    (KeepsHold, "paged: a freed row still holds memory"),
]


@pytest.mark.parametrize(
    ("broken", "sentence"), BROKEN, ids=lambda value: getattr(value, "kind", "")
)
def test_the_suite_names_the_rule_that_a_plug_in_breaks(broken: type[Paged], sentence: str) -> None:
    with pytest.raises(ConservationError, match=sentence):
        check_allocator(lambda: broken(block_size=3))


def trace() -> IntArray:
    """Thirty requests, more than a pool of 40 slots holds at a time."""
    count = np.arange(30, dtype=np.int64)
    output = 1 + count % 11
    return new_requests(count * 500, 1 + count % 7, output, Limits(32, output + 3))


def run_with(allocator: Allocator, num_slots: int = 40) -> tuple[list[list[int]], object, object]:
    memory = Memory(num_slots, 32)
    run = simulate(trace(), memory, allocator, Fcfs(max_num_seqs=6), Constant(1e-6))
    return run.requests.tolist(), run.recorder.timeline(), visible_state(run.allocator)


@pytest.mark.parametrize("kind", sorted(ALLOCATORS))
def test_a_checked_run_is_the_unchecked_run(kind: str) -> None:
    # the blocks that these have by default are larger than the pool, or a model's
    parameters = {"block_size": 8} if kind in {"nano_vllm", "vattention"} else {}
    plain, inner = (ALLOCATORS[kind](**parameters) for _ in range(2))
    checked = CheckedAllocator(inner)
    *outcome, state = run_with(plain)
    *checked_outcome, checked_state = run_with(checked)
    assert checked_outcome == outcome
    np.testing.assert_equal(checked_state, state)
    assert checked.kind == kind
    assert checked.num_blocks == plain.num_blocks
    assert checked.usage() == plain.usage()


@pytest.mark.parametrize("broken", [Leaks, FreesInAnotherOrder, CountsTwice, KeepsHold])
def test_a_checked_run_stops_at_the_first_broken_rule(broken: Callable[..., Allocator]) -> None:
    with pytest.raises(ConservationError, match=r"^paged: "):
        run_with(CheckedAllocator(broken(block_size=4)))


LINKS: dict[str, Callable[[IntArray, IntArray, int], None]] = {
    "the free queue differs read backwards": lambda blocks, chains, last: put(
        blocks, 9, PREVIOUS, 7
    ),
    "is in another key's chain": lambda blocks, chains, last: put(blocks, last, KEY, 0),
    "a broken chain": lambda blocks, chains, last: put(blocks, last, PREVIOUS_SAME, NONE),
    "a chain ends elsewhere": lambda blocks, chains, last: put(chains, blocks[last, KEY], LAST, 7),
    "a findable block is in no chain": lambda blocks, chains, last: put(
        chains, blocks[last, KEY], FIRST, NONE
    ),
}


def put(cells: IntArray, row: int, column: int, value: int) -> None:
    assert cells[row, column] != value
    cells[row, column] = value


@pytest.mark.parametrize("sentence", LINKS)
def test_a_broken_link_between_blocks_of_a_cache_is_found_and_named(sentence: str) -> None:
    """Two prompts of 8 are alike: the second finds a block of 4, and computes the other again."""
    memory, sequences, content = Prefix(block_size=4), SequenceTable(), SharedBeginnings()
    memory.bind(60, sequences, 32)
    memory.bind_content(content)
    lengths = [np.array([n], np.int64) for n in (0, 8, 3)]
    requests = new_requests(lengths[0], lengths[1], lengths[2], Limits(32, lengths[2]))
    rows = []
    for count in (8, 4):
        content.begin(1, 8)
        rows.append(sequences.open(requests, 0))
        assert memory.admit(rows[-1], count) == Admission.OK
    memory.check(np.array(rows))
    last = memory.block_table(rows[1]).item(1)
    assert memory._blocks.item(last, PREVIOUS_SAME) == memory.block_table(rows[0]).item(1)
    LINKS[sentence](memory._blocks, memory._chains, last)
    with pytest.raises(ConservationError, match=f"^prefix: .*{sentence}"):
        memory.check(np.array(rows))


def test_a_checked_allocator_shows_the_parameters_of_the_one_it_holds() -> None:
    checked = CheckedAllocator(Paged(block_size=4, watermark=0.25))
    assert (checked.block_size, checked.watermark) == (4, 0.25)
    with pytest.raises(AttributeError, match="no_such_parameter"):
        _ = checked.no_such_parameter
