"""What figures make of tables: labels, buckets, axes."""

import pandas as pd
import pytest

from figure_data import summary_row, timeline
from sim.figures.pool_map import grid_columns
from sim.figures.sweep import is_power_of_two
from sim.figures.tables import MAX_BUCKETS, TERMS, buckets, groups


def test_labels_name_what_differs() -> None:
    rows = [
        summary_row("a", "contiguous", **{"allocator.reservation": "max", "rate": 2.0}),
        summary_row("b", "paged", **{"allocator.block_size": 16.0}),
    ]
    frame = pd.DataFrame(rows)[
        ["run", "status", "allocator.reservation", "allocator.block_size", "allocator"]
    ]
    assert [group.label for group in groups(frame)] == [
        "contiguous, reservation=max",
        "paged, block_size=16",
    ]
    frame.loc[0, "status"] = "stalled"
    assert groups(frame)[0].label == "contiguous, reservation=max (stalled)"


def test_a_swept_key_without_a_dot_tells_runs_apart() -> None:
    frame = pd.DataFrame(
        {"run": ["a", "b"], "allocator": ["paged"] * 2, "engine": ["x", "y"], "reason": [None] * 2}
    )
    frame["num_slots"] = 5
    assert [group.label for group in groups(frame)] == ["paged, engine=x", "paged, engine=y"]


def test_parameters_with_one_ending_keep_their_full_names() -> None:
    frame = pd.DataFrame({"run": ["a"], "x.rate": [1], "y.rate": [2.5], "allocator": ["paged"]})
    assert groups(frame)[0].label == "paged, x.rate=1, y.rate=2.5"


def test_neighbouring_buckets_merge_into_their_mean_over_time() -> None:
    table = timeline(1000)
    table.loc[999, "width_s"] = 0.1
    merged = buckets(table, TERMS)
    assert len(merged) <= MAX_BUCKETS
    assert merged["width_s"].sum() == pytest.approx(table["width_s"].sum())
    for term in TERMS:
        area = (table[term] * table["width_s"]).sum()
        assert (merged[term] * merged["width_s"]).sum() == pytest.approx(area)


def test_powers_of_two() -> None:
    assert [x for x in (0, 0.25, 1, 3, 4, -2, 1000, 1024) if is_power_of_two(x)] == [
        0.25,
        1,
        4,
        1024,
    ]


@pytest.mark.parametrize("num_slots", [1, 31, 100, 1024, 4096])
def test_the_grid_has_few_rows_and_room_for_every_slot(num_slots: int) -> None:
    columns = grid_columns(num_slots)
    assert 1 <= -(-num_slots // columns) <= 16
