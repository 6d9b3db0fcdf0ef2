"""What the probes of the worked example read, and that they would read something else."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from sim.allocators.paged import Paged
from sim.claims.probes import attention, worked_example
from sim.claims.probes.pools import Pool, made
from sim.claims.probes.results import Vacuous
from sim.sequence import IntArray

LENGTHS = [25, 47, 12]


def test_the_example_has_the_posts_numbers() -> None:
    tables = worked_example.blocks_and_padding(LENGTHS, 16, 64)
    assert tables == {"blocks": [2, 3, 1], "padding": [7, 1, 4], "waste": 12, "waste_frac": 0.125}
    assert worked_example.free_blocks(LENGTHS, 16, 64) == 58
    assert worked_example.contiguous_beside_paged(LENGTHS, 2048, 16)["ratio"] == 64


@pytest.mark.parametrize(("block_size", "free"), [(8, 52), (32, 60)])
def test_other_block_sizes_leave_another_number_free(block_size: int, free: int) -> None:
    assert worked_example.free_blocks(LENGTHS, block_size, 64) == free


@pytest.mark.parametrize(("length", "admitted"), [(16, 58), (28, 29), (33, 19)])
def test_how_many_more_fit_depends_on_their_length(length: int, admitted: int) -> None:
    assert worked_example.admitted_beside(LENGTHS, 16, 64, length) == admitted


@pytest.mark.parametrize(("extra", "blocks"), [(1, 3), (2, 4), (17, 4), (18, 5), (20, 5)])
def test_a_request_takes_a_block_when_a_token_needs_it(extra: int, blocks: int) -> None:
    assert worked_example.blocks_after_growth(47, extra, 16) == blocks


def test_a_request_that_does_not_fit_is_no_measurement() -> None:
    with pytest.raises(ValueError, match="do not all fit"):
        worked_example.free_blocks([2000], 16, 64)
    with pytest.raises(ValueError, match="do not fit"):
        worked_example.blocks_after_growth(1000, 100, 16)


def test_reservations_hold_vacuously_none_only_where_an_empty_pool_has_no_room_either() -> None:
    assert isinstance(worked_example.reservations_that_fit(1024, 2048), Vacuous)
    assert worked_example.reservations_that_fit(2048, 2048) == 1
    assert worked_example.reservations_that_fit(15728, 2048) == 7


@pytest.mark.parametrize(("holes", "admitted"), [([1500, 800], False), ([2048, 252], True)])
def test_a_hole_must_be_large_enough(holes: list[int], admitted: bool) -> None:
    assert worked_example.is_admitted_between(holes, 2048) is admitted


def test_unequal_reservations_leave_holes_that_equal_ones_do_not() -> None:
    equal = {"kind": "contiguous", "reservation": "max"}
    unequal = {"kind": "contiguous", "reservation": "oracle"}
    assert worked_example.worst_hole_slots(15728, 2048, equal, seeds=2) == 0
    assert worked_example.worst_hole_slots(15728, 2048, unequal, seeds=2) > 2048


def test_waste_is_bounded_by_a_block_in_paged_memory_alone() -> None:
    assert worked_example.worst_padding(16, [128, 512], seeds=2) == {
        "longest 128": 15,
        "longest 512": 15,
    }
    assert worked_example.worst_padding(8, [128], seeds=2) == {"longest 128": 7}
    assert worked_example.worst_padding(16, [512], "contiguous", seeds=2)["longest 512"] > 400


class SharedBlock(Paged):
    """Says that every sequence has the first block of the pool, too."""

    def block_table(self, row: int) -> IntArray:
        table = super().block_table(row)
        table[:1] = 0
        return table


@pytest.mark.parametrize(("kind", "least", "most"), [(Paged, 0, 1e-6), (SharedBlock, 1e-2, 10)])
def test_attention_through_block_tables_is_that_of_the_same_keys_side_by_side(
    monkeypatch: pytest.MonkeyPatch, kind: type[Paged], least: float, most: float
) -> None:
    def made_wrong(_: str, **knobs: Any) -> Paged:
        return kind(**knobs)

    monkeypatch.setattr(attention, "made", made_wrong)
    assert least <= attention.paged_attention_error(seeds=2, steps=60) <= most


def test_a_table_that_changes_between_writing_and_reading_changes_attention() -> None:
    """Guards the comparison: the reference does not read the tables."""
    pool = Pool(made("paged", block_size=16), 1024, 512)
    row = pool.enter(40)
    assert row is not None
    rng = np.random.default_rng(0)
    shape = attention.Shape()
    kv = rng.standard_normal((2, 40, shape.heads, shape.head_dim), np.float32)
    query = rng.standard_normal((shape.heads, shape.head_dim), np.float32)
    memory = np.zeros((2, 1024, shape.heads, shape.head_dim), np.float32)
    memory[:, attention._slots(pool, row)] = kv
    right = attention._by_block(pool, row, memory, query)
    pool.allocator._table[row, 1] = 60  # type: ignore[attr-defined]
    wrong = attention._by_block(pool, row, memory, query)
    whole = attention._at_once(kv, query)
    assert np.abs(right - whole).max() <= 1e-6
    assert np.abs(wrong - whole).max() > 1e-2
