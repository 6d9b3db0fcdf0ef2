"""Two folders of results become rows: what is paired with what, and what is said of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from comparisons import Rows, folder_of, values_of, with_requests
from sim.compare.comparison import Comparison, compare
from sim.compare.differences import differing_lines
from sim.compare.metrics import BETTER, OF_REQUESTS, SHOWN, better
from sim.compare.sides import CompareError, read_side
from sim.compare.significance import ALPHA

TTFT = "ttft_s_p50"
TEN = [1.0, 1.2, 0.9, 1.1, 1.3, 1.0, 0.8, 1.2, 1.1, 1.0]


def compared(folder: Path, first: Rows, second: Rows, **given: Any) -> Comparison:
    sides = [
        read_side(letter, folder_of(folder / letter, rows), given.pop(letter, ()))
        for letter, rows in (("A", first), ("B", second))
    ]
    return compare(sides[0], sides[1], **given)


def only(found: Comparison) -> dict[str, Any]:
    (row,) = found.rows
    return row


def test_pairs_of_seeds_by_hand(tmp_path: Path) -> None:
    """Differences -1, -2, -3 of 10, 10, 10: mean -2, -20 %, p of three pairs 2 / 8."""
    row = only(compared(tmp_path, values_of(TTFT, [10, 10, 10]), values_of(TTFT, [9, 8, 7])))
    assert row["method"] == "pairs"
    assert (row["mean_a"], row["mean_b"], row["difference"]) == (10, 8, -2)
    assert row["relative"] == -0.2
    assert (row["num_a"], row["num_agree"]) == (3, 3)
    assert row["p"] == row["p_holm"] == 0.25
    assert -3 <= row["low"] < -2 < row["high"] <= -1
    assert row["verdict"] == "too few runs to tell"


def test_who_is_better_depends_on_the_metric(tmp_path: Path) -> None:
    higher = [value + 0.1 for value in TEN]
    for metric, verdict in (
        (TTFT, "A better"),
        ("hit_rate", "B better"),
        ("num_running_mean", "B higher"),
    ):
        place = tmp_path / metric
        row = only(compared(place, values_of(metric, TEN), values_of(metric, higher)))
        assert row["verdict"] == verdict
        assert row["p"] == 2 / 1024
    assert better("external_frac_queued") == better("e2e_s_p99") == "lower"
    assert better("token_states_frac") == "" != better("token_states_frac_queued")
    assert set(BETTER.values()) == {"lower", "higher"}


def test_rows_are_paired_by_seed_in_whatever_order_they_stand(tmp_path: Path) -> None:
    first = values_of(TTFT, TEN)
    second = values_of(TTFT, [value - 0.01 for value in TEN])[::-1]
    row = only(compared(tmp_path, first, second))
    assert row["difference"] == pytest.approx(-0.01)
    assert row["verdict"] == "B better"


def test_other_seeds_are_two_samples_and_seeds_of_one_side_are_counted(tmp_path: Path) -> None:
    first = values_of(TTFT, TEN)
    second = [{**row, "seed": row["seed"] + 100} for row in values_of(TTFT, TEN)]
    row = only(compared(tmp_path, first, second))
    assert (row["method"], row["p"], row["num_agree"]) == ("two samples", 1, None)
    more = [{**row, "seed": row["seed"] + 2} for row in values_of(TTFT, TEN)]
    found = compared(tmp_path / "some", first, more)
    assert only(found)["num_a"] == 8
    assert found.notes == ["4 runs have a seed that the other side lacks, and are left out"]


def test_p_values_are_corrected_for_all_rows_that_differ(tmp_path: Path) -> None:
    """Equal rows could not have been found to differ, and cost nothing."""
    names = [TTFT, "ttft_s_p99", "hit_rate", "e2e_s_p50"]
    base = [dict.fromkeys(names, value) | {"seed": i} for i, value in enumerate(TEN)]
    other = [
        row | {TTFT: row[TTFT] + 1, "ttft_s_p99": row[TTFT] + (-1) ** row["seed"]} for row in base
    ]
    found = {row["metric"]: row for row in compared(tmp_path, base, other).rows}
    assert found[TTFT]["p_holm"] == pytest.approx(2 * 2 / 1024)
    assert found["ttft_s_p99"]["verdict"] == "no difference found"
    for name in ("hit_rate", "e2e_s_p50"):
        assert (found[name]["verdict"], found[name]["p_holm"]) == ("equal", None)


def test_points_are_matched_by_the_cells_that_vary_and_the_rest_is_listed(tmp_path: Path) -> None:
    def rows(sizes: list[int], **more: object) -> list[dict[str, Any]]:
        found = [values_of(TTFT, TEN, **{"allocator.block_size": size}, **more) for size in sizes]
        return [row for point in found for row in point]

    first, second = rows([8, 16]), rows([16, 32], allocator="prefix")
    skipped = {"allocator.block_size": 64, "status": "skipped", "reason": "too\nlarge"}
    found = compared(tmp_path, [*first, skipped], second)
    assert found.by == ["allocator.block_size"]
    assert only(found)["allocator.block_size"] == "16"
    assert [(alone.side, alone.point, alone.reason) for alone in found.alone] == [
        ("A", "run-20", "skipped: too large"),
        ("A", "allocator.block_size=8", "no such point in B"),
        ("B", "allocator.block_size=32", "no such point in A"),
    ]


def test_a_key_that_one_side_lacks_needs_a_choice(tmp_path: Path) -> None:
    keys = [{"allocator.block_size": size} for size in (8, 16)]
    first = [row for key in keys for row in values_of(TTFT, TEN, **key)]
    with pytest.raises(CompareError, match=r"2 points here differ in allocator\.block_size"):
        compared(tmp_path, first, values_of(TTFT, TEN))
    chosen = compared(tmp_path, first, values_of(TTFT, TEN), A=["block_size=8.0"])
    assert only(chosen)["verdict"] == "equal"
    assert chosen.first.label.endswith("A, allocator.block_size=8")


def test_by_names_the_cells_to_match_by(tmp_path: Path) -> None:
    rates = [{"workload.rate": rate, "allocator": kind} for rate in (1, 2) for kind in ("a", "b")]
    first = [row for key in rates for row in values_of(TTFT, TEN, **key)]
    found = compared(tmp_path, first, first, by=["rate", "allocator"])
    assert found.by == ["workload.rate", "allocator"]
    assert len(found.rows) == 4
    with pytest.raises(CompareError, match="2 points here differ in allocator"):
        compared(tmp_path, first, first, by=["rate"])
    with pytest.raises(CompareError, match=r"--by: unknown 'rte'; accepted"):
        compared(tmp_path, first, first, by=["rte"])


def test_the_parts_of_one_experiment_are_compared_point_by_point(tmp_path: Path) -> None:
    rows = [
        row
        for kind, more in (("paged", 0.0), ("contiguous", 0.5))
        for rate in (1, 2)
        for row in values_of(
            TTFT, [v + more for v in TEN], allocator=kind, **{"workload.rate": rate}
        )
    ]
    folder = folder_of(tmp_path / "x", rows)
    sides = [
        read_side(letter, folder, [f"allocator={kind}"])
        for letter, kind in (("A", "contiguous"), ("B", "paged"))
    ]
    found = compare(*sides)
    assert found.by == ["workload.rate"]
    assert [row["verdict"] for row in found.rows] == ["B better", "B better"]


def test_what_the_experiments_differ_in_is_said(tmp_path: Path) -> None:
    sides = []
    for letter, size in (("A", 8), ("B", 16)):
        allocator = [{"kind": "paged", "block_size": size}]
        folder = folder_of(tmp_path / letter, values_of(TTFT, TEN), allocator=allocator, dtype="x")
        sides.append(read_side(letter, folder, ()))
    assert differing_lines(*sides, []) == ["allocator.0.block_size: 8 -> 16"]
    assert differing_lines(*sides, ["allocator.block_size"]) == []


def test_equal_experiments_are_not_told_apart_and_unequal_ones_are(tmp_path: Path) -> None:
    """Sixty points, twelve seeds. How rarely equal ones are is tested in test_significance.py."""
    drawn = np.random.default_rng(4)

    def rows(effect: float) -> list[dict[str, Any]]:
        return [
            {"seed": number, "workload.rate": rate, "allocator": "paged"}
            | {TTFT: 40 + common + drawn.standard_normal() + effect}
            for rate in range(60)
            for number, common in enumerate(shared[rate])
        ]

    shared = 5 * drawn.standard_normal((60, 12))
    equal = compared(tmp_path / "equal", rows(0), rows(0))
    assert len(equal.rows) == 60
    assert {row["verdict"] for row in equal.rows} == {"no difference found"}
    assert sum(row["p"] <= ALPHA for row in equal.rows) <= 8  # 3 expected
    apart = compared(tmp_path / "apart", rows(0), rows(6))
    assert {row["verdict"] for row in apart.rows} == {"A better"}


def test_missing_values_are_left_out_of_a_pair(tmp_path: Path) -> None:
    first = values_of(TTFT, [1, 2, np.nan, 4, np.nan])
    second = values_of(TTFT, [2, np.nan, 3, 6, 7])
    row = only(compared(tmp_path, first, second))
    assert (row["num_a"], row["mean_a"], row["difference"]) == (2, 2.5, 1.5)
    nothing = values_of(TTFT, [np.nan, np.nan])
    found = compared(tmp_path / "none", nothing, values_of(TTFT, [1, 2]), metrics=[TTFT])
    assert (only(found)["verdict"], only(found)["mean_a"]) == ("no value", None)
    with pytest.raises(CompareError, match="no metric in common"):
        compared(tmp_path / "nothing", nothing, nothing)


def test_a_mean_of_zero_has_no_relative_change(tmp_path: Path) -> None:
    row = only(compared(tmp_path, values_of(TTFT, [0] * 10), values_of(TTFT, [2] * 10)))
    assert row["relative"] is None
    assert (row["low"], row["high"], row["verdict"]) == (2, 2, "A better")


def test_runs_that_did_not_finish_are_named(tmp_path: Path) -> None:
    first = values_of(TTFT, TEN)
    first[3]["status"] = "stalled"
    (note,) = compared(tmp_path, first, values_of(TTFT, TEN)).notes
    assert note == "A: run-3 is stalled: what it measured covers less"


def single(folder: Path, first: Any, second: Any, digest: str = "d") -> Comparison:
    """One run on each side, with the end-to-end latencies of its requests."""
    for letter, latencies, own in (("A", first, "d"), ("B", second, digest)):
        row = {"e2e_s_mean": float(np.mean(latencies)), TTFT: 1.0}
        with_requests(folder_of(folder / letter, [row]), "run-0", latencies, own)
    sides = [read_side(letter, folder / letter, ()) for letter in ("A", "B")]
    return compare(*sides, metrics=["e2e_s_mean", TTFT])


def test_requests_of_single_runs_are_compared_in_stretches(tmp_path: Path) -> None:
    latencies = np.tile([5.0, 9.0], 100)
    e2e, ttft = single(tmp_path, latencies, latencies - 1).rows
    assert (e2e["method"], e2e["num_a"], e2e["num_agree"]) == ("stretches", 10, 10)
    assert (e2e["difference"], e2e["p"], e2e["verdict"]) == (-1, 2 / 1024, "B better")
    assert (ttft["method"], ttft["verdict"]) == ("one run", "one seed: no significance")


def test_stretches_that_hang_together_are_no_evidence(tmp_path: Path) -> None:
    """A queue that grows in one run: every request waits longer, and all for the one reason."""
    latencies = np.full(400, 5.0)
    row = single(tmp_path, latencies, latencies + np.linspace(0, 10, 400)).rows[0]
    assert row["verdict"] == "stretches depend: no significance"
    assert row["p"] is None is row["low"]
    assert row["difference"] == pytest.approx(5)


def test_requests_that_remember_each_other_are_not_taken_for_many(tmp_path: Path) -> None:
    """Equal runs whose differences decay by a tenth a request: 1 in 20 is found at most, and a
    test over requests would find nearly half.
    """
    from sim.compare.significance import sign_flip
    from sim.compare.stretches import stretched

    drawn = np.random.default_rng(5)
    found = naive = 0
    for _ in range(200):
        noise = np.zeros(1000)
        for place, shock in enumerate(drawn.standard_normal(999)):
            noise[place + 1] = 0.9 * noise[place] + shock
        tables = [_table(np.full(1000, 50.0)), _table(50 + noise)]
        means = stretched(*tables)["e2e_s_mean"]
        found += not means.depend and sign_flip(means.differences).p <= ALPHA
        naive += abs(noise.mean()) > 1.96 * noise.std(ddof=1) / np.sqrt(len(noise))
    assert found <= 18
    assert naive > 80


def _table(latencies: Any) -> pd.DataFrame:
    arrival = np.arange(len(latencies), dtype=float)
    return pd.DataFrame(
        {
            "arrival_s": arrival,
            "first_token_s": arrival + 0.1,
            "finish_s": arrival + latencies,
            "output_tokens": 11,
            "status": "finished",
        }
    )


def test_why_requests_are_not_compared_is_said(tmp_path: Path) -> None:
    many, few = np.full(200, 5.0), np.full(20, 5.0)
    for name, latencies, digest, reason in (
        ("other", many, "e", "the runs have different requests"),
        ("few", few, "d", "20 requests finished in both runs, and 100 are needed"),
    ):
        found = single(tmp_path / name, latencies, latencies, digest)
        assert {row["method"] for row in found.rows} == {"one run"}
        assert found.notes == [f"requests are not compared one by one: {reason}"]
    (tmp_path / "few/A/runs/run-0/manifest.json").write_text("changed")
    sides = [read_side(letter, tmp_path / "few" / letter, ()) for letter in ("A", "B")]
    (note,) = compare(*sides, metrics=["e2e_s_mean"]).notes
    assert note.endswith("are not there, or not of this summary")


def test_the_metrics_that_are_shown_are_columns_of_a_summary() -> None:
    committed = pd.read_csv(Path(__file__).parents[2] / "results/quickstart/summary.csv")
    assert set(SHOWN) | set(OF_REQUESTS) <= set(committed)
    families = [name for name in BETTER if not any(c.startswith(name) for c in committed)]
    assert families == []
