"""The walk-throughs of the PagedAttention paper (SOSP 2023), with the numbers of its figures."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from command import ROOT
from walk_throughs import walk_through

NAMES = [
    "fig03_contiguous_waste",
    "fig06_block_table",
    "fig08_parallel_sampling",
    "fig09_beam_search",
]


def test_figure_3_two_reservations_hold_three_kinds_of_slots(tmp_path: Path) -> None:
    run = walk_through("fig03_contiguous_waste", tmp_path)
    rows = run.at(2).set_index("request")
    unused = rows["num_slots"] - rows["num_written"] - rows["num_reserved"]
    assert rows["num_slots"].to_dict() == {0: 2048, 2: 512}
    assert rows["num_written"].to_dict() == {0: 7 + 1, 2: 3 + 1}
    assert rows["num_reserved"].to_dict() == {0: 2, 2: 1}
    assert unused.to_dict() == {0: 2038, 2: 507}
    # a third request has left a hole, and the free slots are of no use to a fourth
    assert rows["num_external"].tolist() == [1536, 1536]
    assert run.at(1)["num_external"].unique().tolist() == [0]
    assert run.at(4)["request"].tolist() == [0, 3]


def test_figure_6_the_third_block_comes_with_the_second_decode_step(tmp_path: Path) -> None:
    run = walk_through("fig06_block_table", tmp_path, block_size=4)
    assert [run.filled(i) for i in (1, 2, 3)] == [[[4, 3]], [[4, 4]], [[4, 4, 1]]]
    # the paper's 7, 1 and 3
    assert [run.tables(i) for i in (1, 2, 3)] == [[[7, 6]], [[7, 6]], [[7, 6, 5]]]
    assert set(run.points["num_holders"]) == {1}


def test_figure_8_the_first_sample_that_writes_copies_the_block(tmp_path: Path) -> None:
    run = walk_through("fig08_parallel_sampling", tmp_path, block_size=4)
    assert run.tables(1, end=True) == [[7, 6], [7, 6]]
    assert run.ref_counts(1, end=True) == {7: 2, 6: 2}
    assert run.tables(2) == [[7, 5], [7, 6]]
    assert run.ref_counts(2) == {7: 2, 6: 1, 5: 1}
    assert run.filled(2) == [[4, 4], [4, 4]]
    copies = run.points[run.points["moved"] == "copy"]
    assert (copies[["start_slot", "from_slot"]] // 4).values.tolist() == [[5, 6]]
    assert copies["iteration"].tolist() == [2]
    assert run.summary["num_copied_tokens"] == 4  # one block


def test_figure_9_candidates_that_die_free_four_blocks(tmp_path: Path) -> None:
    run = walk_through("fig09_beam_search", tmp_path)
    ours = dict(enumerate([12, 11, 10, 8, 9, 6, 5, 4, 7]))  # the paper's id: ours
    before = [[0, 1, 3, 5], [0, 2, 4, 8], [0, 1, 3, 6], [0, 1, 3, 7]]  # candidates 0, 3, 1, 2
    after = [[0, 1, 3, 6], [0, 1, 3, 7]]
    assert run.tables(4) == [[ours[block] for block in table] for table in before]
    assert run.tables(4, end=True) == [[ours[block] for block in table] for table in after * 2]
    counts = run.ref_counts(4, end=True)
    assert set(run.ref_counts(4)) - set(counts) == {ours[block] for block in (2, 4, 5, 8)}
    assert {block: counts[ours[block]] for block in (0, 1, 3, 6, 7)} == {
        0: 4,
        1: 4,
        3: 4,
        6: 2,
        7: 2,
    }
    taken = [table[4] for table in run.tables(5)]
    assert set(taken) == {ours[block] for block in (2, 4, 5, 8)}  # 9 to 12 in the paper
    assert run.summary["num_copied_tokens"] == 0  # full blocks are never copied


@pytest.mark.parametrize("name", NAMES)
def test_the_committed_picture_shows_what_a_run_gives(name: str, tmp_path: Path) -> None:
    run = walk_through(name, tmp_path)
    committed = ROOT / "results" / name
    pd.testing.assert_frame_equal(
        run.points, pd.read_csv(committed / "figures" / "block_tables.csv")
    )
