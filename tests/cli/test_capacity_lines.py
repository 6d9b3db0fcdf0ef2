"""kvsim capacity --slo over replicas and over sweeps of any form; lines that cannot be searched."""

from __future__ import annotations

from pathlib import Path

import pytest

from searches import LLAMA, SINGLE, rows, trace
from sim.cli import main

FEW = ("--seeds", 1, "--requests", 100, "--tolerance", 0.2, "--no-offline")
GOOD = "p99 ttft < 50 ms"
FLEET = "replicas: {count: 3, router: {kind: round_robin}}\n"


def test_a_fleet_sustains_as_many_times_the_rate_and_costs_as_many_gpus(
    capsys, tmp_path: Path
) -> None:
    """Ten requests a second each, evenly spaced and in turn: 10, and 30 of three."""
    sweep = "sweep: {replicas: [{count: 1}, {count: 3, router: {kind: round_robin}}]}\n"
    found = rows(capsys, tmp_path, SINGLE + sweep, GOOD, *FEW, "--price-per-hour", 3.6)
    for name, count in (("paged, replicas=1", 1), ("paged, replicas=3 round_robin", 3)):
        row = found[name]
        assert row["rate_req_s"] <= 10 * count < row["next_rate_req_s"]
        assert row["goodput_tokens_s"] == pytest.approx(5 * row["rate_req_s"], rel=0.02)
        price = row["price_per_million_output_tokens"]
        assert price == pytest.approx(count * 0.001 / row["goodput_tokens_s"] * 1e6)
        assert row.get("num_replicas") == (3 if count == 3 else None)


def test_that_rates_are_of_the_whole_fleet_is_said(capsys, tmp_path: Path) -> None:
    path = tmp_path / "x.yaml"
    given = ["capacity", str(path), "--slo", GOOD, *map(str, FEW)]
    for text, is_said in ((SINGLE + FLEET, True), (SINGLE, False)):
        path.write_text(text)
        assert main(given) == 0
        sentence = "are of the whole fleet, all its replicas together (3)."
        assert (sentence in capsys.readouterr().out) == is_said


@pytest.mark.parametrize(
    "sweep",
    [
        "zip: {workload.arrivals.rate: [1, 2, 3], scheduler.max_num_seqs: [1, 2, 2]}",
        "list: [{workload.arrivals.rate: 1, scheduler.max_num_seqs: 1}, "
        "{workload.arrivals.rate: 2, scheduler.max_num_seqs: 1}, "
        "{workload.arrivals.rate: 2, scheduler.max_num_seqs: 2}]",
        "latin_hypercube: {num_points: 6, keys: {workload.arrivals.rate: {min: 1, max: 4}, "
        "scheduler.max_num_seqs: [1, 2]}}",
    ],
)
def test_the_rates_of_a_sweep_are_searched_not_lines_whatever_form_they_have(
    capsys, tmp_path: Path, sweep: str
) -> None:
    found = rows(capsys, tmp_path, f"{SINGLE}sweep: {{{sweep}}}\n", GOOD, *FEW)
    assert set(found) == {"paged, max_num_seqs=1", "paged, max_num_seqs=2"}
    rates = [found[f"paged, max_num_seqs={count}"]["rate_req_s"] for count in (1, 2)]
    assert rates[1] > rates[0]


def test_a_point_that_cannot_be_is_a_row_beside_the_others(capsys, tmp_path: Path) -> None:
    sweep = "zip: {allocator.block_size: [16, 8192], scheduler.max_num_seqs: [1, 2]}"
    found = rows(capsys, tmp_path, f"{SINGLE}sweep: {{{sweep}}}\n", GOOD, *FEW)
    status = {label: row["status"] for label, row in found.items()}
    assert status == {
        "paged, block_size=16, max_num_seqs=1": "found",
        "paged, block_size=8192, max_num_seqs=2": "skipped",
    }
    assert "larger than the pool" in found["paged, block_size=8192, max_num_seqs=2"]["reason"]


def test_a_trace_that_is_too_short_is_a_row_beside_one_that_is_not(capsys, tmp_path: Path) -> None:
    trace(tmp_path, 30).rename(tmp_path / "short.csv")
    trace(tmp_path, 600).rename(tmp_path / "long.csv")
    text = "\n".join(line for line in SINGLE.splitlines() if not line.startswith("  "))
    text = text.replace("workload:", "workload: {kind: table, path: long.csv}")
    text += "\nsweep: {workload.path: [long.csv, short.csv]}\n"
    found = rows(capsys, tmp_path, text, GOOD, *FEW)
    assert found["paged, path=long.csv"]["status"] == "found"
    short = found["paged, path=short.csv"]
    assert short["status"] == "skipped"
    assert "the workload has 30" in short["reason"]


PLUGIN = """
from sim.allocators.paged import Paged

class Breaks(Paged):
    kind = "breaks"

    def append(self, *arguments):
        raise RuntimeError("no such luck")
"""


def test_a_run_that_raises_is_a_row_with_its_sentence(capsys, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "breaks.py").write_text(PLUGIN)
    allocators = "allocator: [{kind: paged}, {kind: 'breaks:Breaks'}]"
    text = SINGLE.replace("allocator: {kind: paged}", allocators)
    found = rows(capsys, tmp_path, text, GOOD, *FEW)
    assert found["paged"]["status"] == "found"
    broken = found["breaks:Breaks"]
    assert broken["status"] == "error"
    assert "RuntimeError: no such luck" in broken["reason"]
    path = tmp_path / "x.yaml"
    path.write_text(SINGLE.replace("kind: paged", "kind: 'breaks:Breaks'"))
    assert main(["capacity", str(path), "--slo", GOOD, *map(str, FEW)]) == 1
    shown = capsys.readouterr()
    assert "breaks:Breaks: at" in shown.out
    assert shown.err == ""


def test_no_engine_without_a_cache_stands_beside_a_router_that_asks_caches(
    capsys, tmp_path: Path
) -> None:
    text = f"""
name: fleet
model: {LLAMA[1]}
device: {LLAMA[3]}
max_model_len: 4096
workload:
  kind: synthetic
  num_requests: 20
  arrivals: {{kind: poisson, rate: 5}}
  prompt_tokens: 100
  output_tokens: {{kind: uniform, low: 10, high: 200}}
  prefix: [400]
allocator: {{kind: prefix}}
scheduler: {{kind: vllm_v1}}
cost: {{kind: roofline}}
replicas: {{count: 2, router: {{kind: prefix_aware}}}}
"""
    found = rows(capsys, tmp_path, text, "p90 ttft < 300 ms", *FEW[:-1])
    assert found["prefix"]["status"] in {"found", "always"}
    for name in ("unbounded memory", "oracle lengths"):
        assert "prefix_aware asks replicas" in found[f"offline: {name}"]["reason"]
