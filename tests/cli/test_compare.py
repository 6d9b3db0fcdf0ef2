"""kvsim compare as a user meets it, on results that kvsim run has just written."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from command import ROOT, files_below
from comparisons import folder_of, values_of
from sim.cli import main

SYNTHETIC = """
name: {name}
kv_cache: {{num_slots: 2048}}
max_model_len: 512
workload:
  kind: synthetic
  num_requests: 150
  arrivals: {{kind: poisson, rate: 30}}
  prompt_tokens: 40
  output_tokens: {{kind: uniform, low: 10, high: 60}}
allocator:
  - {{kind: contiguous, reservation: max}}
  - {{kind: paged, block_size: {block_size}}}
seeds: {seeds}
"""


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Twelve seeds of blocks of 16, twelve of blocks of 256, and one run of each."""
    folder = tmp_path_factory.mktemp("compare")
    for name, block_size, seeds in (
        ("small", 16, 12),
        ("large", 256, 12),
        ("one", 16, 1),
        ("other", 256, 1),
    ):
        path = folder / f"{name}.yaml"
        path.write_text(SYNTHETIC.format(name=name, block_size=block_size, seeds=seeds))
        assert main(["run", str(path), "--out", str(folder), "--json"]) == 0
    return folder


def compared(capsys: pytest.CaptureFixture[str], *arguments: object) -> dict[str, Any]:
    assert main(["compare", *map(str, arguments), "--json"]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def test_two_experiments_of_the_same_seeds_are_compared_in_pairs(capsys, done: Path) -> None:
    found = compared(capsys, done / "small", done / "large")
    assert found["matched_by"] == ["allocator"]
    assert found["differ_in"] == ["allocator.1.block_size: 16 -> 256"]
    rows = {(row["allocator"], row["metric"]): row for row in found["rows"]}
    for metric in ("ttft_s_p50", "e2e_s_p50"):
        assert rows[("contiguous", metric)]["verdict"] == "equal"
        assert rows[("paged", metric)]["verdict"] == "A better"
        assert rows[("paged", metric)]["method"] == "pairs"
    summaries = [pd.read_csv(done / name / "summary.csv") for name in ("small", "large")]
    means = [t.loc[t["allocator"] == "paged", "ttft_s_p50"].mean() for t in summaries]
    row = rows[("paged", "ttft_s_p50")]
    assert row["difference"] == pytest.approx(means[1] - means[0])


def test_two_allocators_of_one_experiment(capsys, done: Path) -> None:
    given = ["--a", "allocator=contiguous", "--b", "allocator=paged", "--metric", "ttft_s_p99"]
    (row,) = compared(capsys, done / "small", *given)["rows"]
    assert row["verdict"] == "B better"
    assert row["p"] == 2 / 4096


def test_single_runs_compare_their_requests(capsys, done: Path) -> None:
    given = ["--a", "allocator=paged", "--b", "allocator=paged"]
    found = compared(capsys, done / "one", done / "other", *given)
    rows = {row["metric"]: row for row in found["rows"]}
    assert rows["ttft_s_p50"]["verdict"] == "one seed: no significance"
    assert rows["ttft_s_mean"]["method"] == rows["e2e_s_mean"]["method"] == "stretches"
    summary = pd.read_csv(done / "one" / "summary.csv").set_index("allocator")
    assert rows["e2e_s_mean"]["mean_a"] == pytest.approx(summary.loc["paged", "e2e_s_mean"])
    assert found["notes"] == []


def test_tables_and_a_figure_are_written_and_are_the_same_the_next_time(
    capsys, done: Path, tmp_path: Path
) -> None:
    given = ["compare", str(done / "small"), str(done / "large")]
    for folder in ("first", "second"):
        assert main([*given, "--out", str(tmp_path / folder)]) == 0
        shown = capsys.readouterr().out
    assert files_below(tmp_path / "first") == files_below(tmp_path / "second")
    assert set(files_below(tmp_path / "first")) == {
        "compare.csv",
        "compare.json",
        "figures/compare.csv",
        "figures/compare.png",
        "figures/compare.svg",
    }
    table = pd.read_csv(tmp_path / "first" / "compare.csv")
    assert {"allocator", "metric", "difference", "p_holm", "verdict"} <= set(table)
    for text in ("differ in     allocator.1.block_size: 16 -> 256", "A better", "Holm", "pair"):
        assert text in shown


def test_a_script_may_ask_whether_it_became_worse(capsys, done: Path) -> None:
    small, large = str(done / "small"), str(done / "large")
    assert main(["compare", small, large, "--fail-if-worse", "ttft_s_p50,e2e_s_p99"]) == 1
    assert main(["compare", large, small, "--fail-if-worse", "ttft_s_p50,e2e_s_p99"]) == 0
    shown = capsys.readouterr().out
    assert "e2e_s_p99" in shown  # what is guarded is shown
    one, other = str(done / "one"), str(done / "other")
    assert main(["compare", one, other, "--fail-if-worse", "ttft_s_p50"]) == 0


def test_unmatched_points_are_rows_without_numbers(capsys, tmp_path: Path) -> None:
    rows = [values_of("hit_rate", [0.5, 0.6], policy=p) for p in ("lru", "fifo")]
    for letter, own in (("A", rows[0]), ("B", rows[0] + rows[1])):
        folder_of(tmp_path / letter, own)
    sides = [tmp_path / "A", tmp_path / "B"]
    for side in sides:  # as policies are replayed: no allocator
        table = pd.read_csv(side / "summary.csv").drop(columns=["allocator"])
        table.to_csv(side / "summary.csv", index=False)
    found = compared(capsys, *sides, "--out", tmp_path / "out")
    assert found["not_compared"] == [
        {"side": "B", "point": "policy=fifo", "reason": "no such point in A"}
    ]
    table = pd.read_csv(tmp_path / "out" / "compare.csv")
    assert table["verdict"].iloc[-1] == "not compared: no such point in A"
    assert main(["compare", *map(str, sides)]) == 0
    assert "not compared: B: policy=fifo: no such point in A" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["A"], "B is missing; accepted: two folders, or one with --a KEY=VALUE and"),
        (["A", "none"], "none: no such folder; accepted: a folder that kvsim run has written"),
        (["A", "empty"], "empty/experiment.json: No such file or directory; accepted: a folder"),
        (["A", "search"], "search: is a search of capacities"),
        (["A", "nameless"], "nameless/summary.csv: names neither allocators nor policies"),
        (["A", "B", "--a", "seed"], "--a: must be KEY=VALUE, got 'seed'"),
        (["A", "B", "--a", "sed=1"], "--a: unknown 'sed', did you mean seed; accepted: allocator"),
        (["A", "B", "--b", "seed=7"], "--b: no row of B has seed=7; there: 0, 1"),
        (["A", "B", "--b", "seed=1", "--b", "seed=1"], "--b: seed is given twice"),
        (["A", "B", "--metric", "ttft"], "--metric: unknown 'ttft'; accepted: ttft_s_p50"),
        (["A", "B", "--metric", "seed"], "--metric: unknown 'seed'"),
        (["A", "B", "--by", "rate"], "--by: unknown 'rate'; accepted: allocator"),
        (["A", "B", "--fail-if-worse", "num_slots"], "'num_slots' has no better direction"),
        (["A", "B", "--fail-if-worse", "hit_rate"], "--metric: unknown 'hit_rate'"),
        (["A", "failed"], "no point of A can be compared with one of B (nothing to match by)"),
        (["A", "texts"], "the points that match have no metric in common"),
        (["A", "B", "--out", "A/summary.csv"], "A/summary.csv/compare.csv: cannot be written"),
    ],
)
def test_what_cannot_be_compared_is_one_sentence(
    capsys, tmp_path: Path, monkeypatch, arguments: list[str], sentence: str
) -> None:
    monkeypatch.chdir(tmp_path)
    rows = values_of("ttft_s_p50", [1, 2])
    for name in ("A", "B", "nameless"):
        folder_of(Path(name), rows)
    folder_of(Path("failed"), [{**row, "status": "error", "reason": "boom"} for row in rows])
    folder_of(Path("texts"), [{**row, "ttft_s_p50": None} for row in rows])
    Path("empty").mkdir()
    Path("search").symlink_to(ROOT / "results" / "capacity_slo")
    Path("nameless/summary.csv").write_text("run,status\nrun-0,finished\nrun-1,finished\n")
    assert main(["compare", *arguments]) == 2
    shown = capsys.readouterr()
    assert sentence in shown.err
    assert len(shown.err.splitlines()) == 1
    assert shown.out == ""
