"""kvsim capacity --slo as a user meets it, on queues whose limits are known."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import pytest

from command import files_below
from searches import LLAMA, SINGLE, rows, trace
from sim.cli import main

FULL = """
name: full
kv_cache: {num_slots: 2048}
max_model_len: 1024
workload:
  kind: synthetic
  num_requests: 10
  arrivals: {kind: poisson, rate: 0.5}
  prompt_tokens: 16
  output_tokens: {kind: uniform, low: 200, high: 300}
allocator: {kind: paged}
scheduler: {kind: fcfs, max_num_seqs: 256}
cost: {kind: linear, base_s: 0.02, per_seq_s: 0, per_kv_token_s: 0, per_prefill_token_s: 0.00005}
"""


def test_one_request_at_a_time_sustains_what_its_service_time_allows(
    capsys, tmp_path: Path
) -> None:
    """Evenly spaced arrivals wait for nobody up to 10 a second, and without end above."""
    given = ("--seeds", 2, "--requests", 500, "--price-per-hour", 3.6)
    found = rows(capsys, tmp_path, SINGLE, "p99 ttft < 50 ms", *given)
    assert set(found) == {"paged", "offline: unbounded memory", "offline: oracle lengths"}
    for row in found.values():
        assert row["status"] == "found"
        assert row["rate_req_s"] <= 10 < row["next_rate_req_s"] < row["rate_req_s"] * 1.05
        assert row["limited_by"] == "p99 ttft < 0.05 s"
        assert row["ttft_s_p99"] == pytest.approx(0.02)
        assert row["num_sustaining"] == row["num_seeds"] == 2
        assert row["goodput_tokens_s"] == pytest.approx(5 * row["rate_req_s"], rel=1e-3)
        assert row["peak_goodput_tokens_s"] == pytest.approx(50)
        # 0.001 a second for 5 tokens x rate
        price = row["price_per_million_output_tokens"]
        assert price == pytest.approx(200 / row["rate_req_s"], rel=1e-3)
        # a queue that gains 2 x sqrt(500) of 500 arrivals: 8.9 % more than leave
        assert 10 < row["diverges_from_req_s"] < 11.5
        assert row["preempts_from_req_s"] is row["thrashes_from_req_s"] is None
        assert row["num_requests"] == 625


def test_random_arrivals_wait_as_queueing_theory_says(capsys, tmp_path: Path) -> None:
    """M/D/1: the mean wait is rho S / (2 (1 - rho)), which is 0.1 s for S = 0.1 s at rho = 2/3."""
    text = SINGLE.replace("constant, rate: 3", "poisson, rate: 3")
    given = ("--requests", 2000, "--agree", 3, "--no-offline")
    (row,) = rows(capsys, tmp_path, text, "mean ttft < 120 ms", *given).values()
    assert row["seeds_low_req_s"] <= 20 / 3 <= row["seeds_high_req_s"] * 1.05
    assert row["seeds_low_req_s"] <= row["rate_req_s"] <= row["seeds_high_req_s"]
    assert row["median_confidence"] == 1 - 2**-4
    assert row["num_sustaining"] >= 3


def test_recomputing_costs_goodput_where_prompts_are_dear(capsys, tmp_path: Path) -> None:
    """Denning's curve: the same memory thrashes or not, by what a preemption costs."""
    text = FULL + "sweep: {cost.per_prefill_token_s: [0.00005, 0.01]}\n"
    given = ("--requests", 300, "--seeds", 3, "--tolerance", 0.2, "--out", tmp_path / "out")
    found = rows(capsys, tmp_path, text, "mean e2e < 60 s", *given)
    cheap = found["paged, per_prefill_token_s=5e-05"]
    dear = found["paged, per_prefill_token_s=0.01"]
    assert cheap["thrashes_from_req_s"] is None
    assert dear["peak_rate_req_s"] < dear["thrashes_from_req_s"]
    assert dear["lost_goodput_frac"] > 0.2 > cheap["lost_goodput_frac"]
    for row in (cheap, dear):
        assert row["preempts_from_req_s"] <= row["diverges_from_req_s"]
    assert len(found) == 6
    best = found["offline: unbounded memory, per_prefill_token_s=0.01"]
    assert best["rate_req_s"] > dear["rate_req_s"]
    points = pd.read_csv(tmp_path / "out" / "capacity_points.csv")
    mine = points[(points["label"] == dear["label"]) & (points["seed"] == 0)]
    highest = mine.sort_values("rate_req_s").iloc[-1]
    assert highest["recomputed_tokens_frac"] > 0.2
    for suffix in ("png", "svg", "csv"):
        assert (tmp_path / "out/figures" / f"capacity_rates.{suffix}").stat().st_size > 1000


def test_a_tighter_slo_is_met_at_no_higher_rate_and_runs_are_used_again(
    capsys, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    given = ("--requests", 200, "--seeds", 2, "--no-offline", "--out", out)
    slos = [f"p90 ttft < {limit} ms, p90 e2e < {2 * limit} s" for limit in (8000, 2000, 500, 30)]
    found = [rows(capsys, tmp_path, FULL, slo, *given)["paged"]["rate_req_s"] for slo in slos]
    assert found == sorted(found, reverse=True)
    assert found[0] > found[-1]
    before = {path: path.stat().st_mtime_ns for path in out.rglob("manifest.json")}
    tables = files_below(out)
    rows(capsys, tmp_path, FULL, slos[-1], *given)
    assert {path: path.stat().st_mtime_ns for path in out.rglob("manifest.json")} == before
    assert files_below(out) == tables


def test_what_no_rate_meets_and_what_every_rate_meets_is_said(capsys, tmp_path: Path) -> None:
    given = ["--requests", "10", "--seeds", "1", "--no-offline"]
    path = tmp_path / "x.yaml"
    path.write_text(SINGLE)
    assert main(["capacity", str(path), "--slo", "mean ttft < 10 ms", *given]) == 1
    shown = capsys.readouterr().out
    assert "paged: not met at any rate down to" in shown
    assert "mean ttft < 0.01 s" in shown
    assert "with fewer than 2,000 requests a run can end before its queue has grown" in shown
    path.write_text(SINGLE.replace("max_num_seqs: 1", "max_num_seqs: 100"))
    assert main(["capacity", str(path), "--slo", "mean ttft < 1 s", *given]) == 0
    assert "paged: met at every rate up to" in capsys.readouterr().out


@pytest.mark.parametrize(("count", "seeds"), [(300, 1), (1000, 3)])
def test_a_trace_is_brought_to_the_rate_that_is_tried(
    capsys, tmp_path: Path, count: int, seeds: int
) -> None:
    """Of its own times only the pattern counts; a long one has a window for each seed."""
    given = ["--trace", str(trace(tmp_path, count)), *LLAMA, "--slo", "p90 ttft < 50 ms", "--json"]
    given += ["--seeds", "3", "--requests", "200", "--no-offline"]
    given += ["--set", "scheduler={kind: fcfs, max_num_seqs: 1}"]
    given += ["--set", "cost={kind: constant, seconds: 0.02}"]
    assert main(["capacity", *given]) == 0
    (row,) = json.loads(capsys.readouterr().out)["capacity"]
    assert row["num_seeds"] == seeds
    assert row["num_requests"] == 250
    assert row["rate_req_s"] <= 10 < row["next_rate_req_s"]


def test_an_allocator_or_engine_that_cannot_be_is_a_row_with_its_reason(
    capsys, tmp_path: Path
) -> None:
    """The engine's scheduler runs on its own memory alone."""
    text = SINGLE.replace("allocator: {kind: paged}\n", "engine: sglang\n").replace(
        "scheduler: {kind: fcfs, max_num_seqs: 1}\n", ""
    )
    text = text.replace(
        "prompt_tokens: 10", "max_tokens: output\n  prefix: [4]\n  prompt_tokens: 10"
    )
    found = rows(capsys, tmp_path, text, "mean ttft < 1 s", "--requests", 20, "--seeds", 1)
    assert found["radix"]["status"] in {"found", "always"}
    others = [row for row in found.values() if row["offline"]]
    assert len(others) == 2
    for row in others:
        assert row["status"] == "skipped"
        assert "sglang" in row["reason"]


GOOD = "p99 ttft < 1 s"


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["x.yaml"], "capacity: FILE needs --slo; accepted: --slo"),
        (["--trace", "t.csv"], "capacity: --trace needs --slo; accepted: --slo"),
        (["--slo", GOOD], "needs an experiment (FILE) or --trace FILE, and only one"),
        (["x.yaml", "--slo", GOOD, "--trace", "t.csv"], "and only one"),
        (["x.yaml", "--slo", "p99 tft < 1 s"], "--slo: 'p99 tft < 1 s': unknown metric 'tft'"),
        (["x.yaml", "--slo", GOOD, "--seeds", "0"], "--seeds: must be 1 to 100, got 0"),
        (["x.yaml", "--slo", GOOD, "--agree", "6"], "--agree: must be 1 to 5, got 6"),
        (
            ["x.yaml", "--slo", GOOD, "--requests", "0"],
            "--requests: must be 1 to 10,000,000, got 0",
        ),
        (
            ["x.yaml", "--slo", GOOD, "--tolerance", "nan"],
            "--tolerance: must be 0.001 to 1, got nan",
        ),
        (
            ["x.yaml", "--slo", GOOD, "--price-per-hour", "-1"],
            "--price-per-hour: must be at least 0",
        ),
        (["x.yaml", "--slo", GOOD, "-j", "0"], "-j: must be 1 to 1,024, got 0"),
        (["x.yaml", "--slo", GOOD, "--model", "llama-3-8b"], "--model and --device: are in FILE"),
        (
            ["x.yaml", "--slo", GOOD, "--set", "allocator.kind=pagd"],
            "allocator.kind: unknown kind 'pagd'",
        ),
        (["none.yaml", "--slo", GOOD], "none.yaml:1: No such file"),
        (["p.yaml", "--slo", GOOD], "p.yaml:2: policies: are replayed without time"),
        (["--trace", "t.csv", "--slo", GOOD], "--model: is missing; --trace needs"),
        (["--trace", "none.csv", "--slo", GOOD, *LLAMA], "none.csv"),
        (["--trace", "t.csv", "--slo", GOOD, *LLAMA, "--block-size", "x"], "--block-size: must be"),
        (
            ["--trace", "t.csv", "--slo", GOOD, *LLAMA],
            "capacity: 2,000 requests are to be measured after a warm-up of 500, and the workload "
            "has 40; accepted: a longer trace, a lower percentile, or --requests 31",
        ),
        (["--trace", "same.csv", "--slo", GOOD, *LLAMA, "--requests", "9"], "a rate needs gaps"),
        (["--device", "h100"], "--model: is missing; accepted: --model and --device, or FILE"),
    ],
)
def test_what_cannot_be_searched_is_one_sentence(
    capsys, tmp_path: Path, monkeypatch, arguments: list[str], sentence: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "x.yaml").write_text(SINGLE)
    (tmp_path / "p.yaml").write_text("name: p\npolicies: [lru]\ntraces: {}\n")
    trace(tmp_path, 40).rename("t.csv")
    trace(tmp_path, 40, gap_s=0.0).rename("same.csv")
    assert main(["capacity", *arguments]) == 2
    shown = capsys.readouterr()
    assert sentence in shown.err
    assert len(shown.err.splitlines()) == 1
    assert shown.out == ""


def test_a_search_may_ask_for_its_page_which_says_how_to_search_again(
    capsys, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    given = ("--requests", 20, "--seeds", 2, "--no-offline", "--out", out, "--set", "report=true")
    found = rows(capsys, tmp_path, SINGLE, "mean ttft < 1 s", *given)
    text = (out / "report.html").read_text()
    assert found["paged"]["status"] in text
    again = (
        f"kvsim capacity {tmp_path / 'x.yaml'} --set report=true "
        "--slo &#39;mean ttft &lt; 1 s&#39; "
        "--seeds 2 --agree 2 --tolerance 0.05 --requests 20 --no-offline --out results/out"
    )
    assert again in text


def test_the_picture_is_drawn_again_from_its_files(capsys, tmp_path: Path) -> None:
    out = tmp_path / "out"
    given = ("--requests", 20, "--seeds", 2, "--no-offline", "--out", out)
    rows(capsys, tmp_path, SINGLE, "mean ttft < 1 s", *given)
    figures = files_below(out / "figures")
    for name in figures:
        (out / "figures" / name).unlink()
    assert main(["plot", str(out)]) == 0
    assert files_below(out / "figures") == figures
    (out / "experiment.json").write_text("{")
    assert main(["plot", str(out)]) == 2
    assert "experiment.json: is not JSON (line 1); accepted: a folder" in capsys.readouterr().err
