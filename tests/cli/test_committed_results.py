"""Rows of committed results, made again: an excerpt of each experiment, to the last digit."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import pytest

from command import ROOT, SHARED, kvsim
from sim.config.engine_presets import ENGINES
from sim.config.yaml_nodes import read_document
from sim.runs.runner import RunOptions
from sim.slo.lines import searched
from sim.slo.objectives import read_objectives
from sim.slo.rates import Bench, Rates, Sampling
from sim.slo.search import ladder

MOONCAKE = SHARED / "traces" / "mooncake" / "conversation_trace.jsonl.gz"
NEEDS_MOONCAKE = pytest.mark.skipif(not MOONCAKE.exists(), reason=f"{MOONCAKE} is not there")


def committed(name: str) -> pd.DataFrame:
    return pd.read_csv(ROOT / "results" / name / "summary.csv").set_index("run")


def made(name: str, folder: Path, *overrides: str) -> pd.DataFrame:
    """The summary of an experiment with some keys overridden, and without figures."""
    options = [part for override in (*overrides, "figures=[]") for part in ("--set", override)]
    done = kvsim("run", ROOT / "experiments" / f"{name}.yaml", *options, cwd=folder)
    assert done.returncode == 0, done.stderr
    return pd.read_csv(folder / "results" / name / "summary.csv").set_index("run")


def assert_committed(found: pd.DataFrame, name: str) -> None:
    expected = committed(name)
    assert len(found)
    columns = [column for column in expected if column in found]
    pd.testing.assert_frame_equal(
        found[columns], expected.loc[found.index, columns], check_dtype=False
    )


def test_block_sizes_lose_what_is_committed(tmp_path: Path) -> None:
    found = made(
        "block_size_sharing",
        tmp_path,
        "sweep={workload.prefix.0.tokens.mean: [128, 4096], allocator.block_size: [16, 256]}",
    )
    assert len(found) == 8
    assert_committed(found, "block_size_sharing")


@NEEDS_MOONCAKE
def test_engines_do_what_is_committed(tmp_path: Path) -> None:
    found = made("engine_zoo", tmp_path, "sweep={engine: [orca-pow2, sglang, vllm-0.32]}")
    assert_committed(found, "engine_zoo")


@NEEDS_MOONCAKE
def test_policies_find_what_is_committed(tmp_path: Path) -> None:
    workload = "{kind: trace, name: mooncake-conversation}"
    found = made(
        "prefix_policies",
        tmp_path,
        f"traces={{mooncake-conversation: {{workload: {workload}, block_size: 512}}}}",
        "capacity_tokens=[1433088]",
    )
    assert len(found) == 9
    assert_committed(found, "prefix_policies")


@NEEDS_MOONCAKE
def test_a_router_finds_what_is_committed(tmp_path: Path) -> None:
    replicas = "{count: 10, router: {kind: prefix_aware}}"
    sweep = f"sweep={{replicas: [{replicas}], kv_cache.num_slots: [3000000]}}"
    found = made("mooncake_routing", tmp_path, sweep)
    assert len(found) == 1
    assert_committed(found, "mooncake_routing")


def test_a_router_that_asks_ten_caches_finds_nearly_what_one_cache_does() -> None:
    table = committed("mooncake_routing").set_index(["num_replicas", "router", "num_slots"])
    one = table.loc[(1, "round_robin", 30_000_000), "hit_rate"]
    turns, asks = (
        table.loc[(10, r, 30_000_000), "hit_rate"] for r in ("round_robin", "prefix_aware")
    )
    assert one / turns > 3
    assert 0.95 * one < asks < one


def test_every_engine_has_a_row_in_which_requests_wait_for_memory() -> None:
    table = committed("engine_zoo")
    assert set(table["engine"]) == set(ENGINES)
    made_rows = table[table["status"] == "finished"]
    assert (made_rows["queued_time_frac"] > 0.55).all()
    assert table.loc[table["status"] != "finished", "reason"].notna().all()


def test_every_policy_lies_between_none_and_the_clairvoyant() -> None:
    table = committed("prefix_policies").reset_index()
    rates = table.pivot(index=["trace", "capacity_tokens"], columns="policy", values="hit_rate")
    online = rates.drop(columns=["none", "clairvoyant", "unbounded"])
    assert len(online.columns) == 6
    assert (rates["none"] == 0).all()
    assert online.le(rates["clairvoyant"], axis=0).all(axis=None)
    assert (rates["clairvoyant"] <= rates["unbounded"]).all()


def test_a_point_of_a_capacity_search_is_what_is_committed(tmp_path: Path) -> None:
    """The run of one seed at the rate that was found, from the experiment's own file."""
    name, label = "capacity_slo", "paged"
    folder = ROOT / "results" / name
    facts = json.loads((folder / "experiment.json").read_text())
    points = pd.read_csv(folder / "capacity_points.csv").set_index(["label", "rate_req_s", "seed"])
    row = pd.read_csv(folder / "capacity_rates.csv").set_index("label").loc[label]
    document = read_document(ROOT / "experiments" / f"{name}.yaml")
    _, lines = searched(document, ROOT / "experiments")
    (line,) = (line for line in lines if line.label == label)
    rungs = ladder(float(row["rate_req_s"]), facts["tolerance"])
    sampling = Sampling((0,), int(row["num_requests"]), read_objectives(", ".join(facts["slo"])))
    found = Rates(line, rungs, sampling, Bench(tmp_path, RunOptions())).of_seed(0, 0)
    expected = points.loc[(label, row["rate_req_s"], 0)]
    for key, value in found.items():
        assert expected[key] == value, key


def test_memory_decides_which_rate_can_be_promised() -> None:
    table = pd.read_csv(ROOT / "results" / "capacity_slo" / "capacity_rates.csv")
    rates = table.set_index("label")["rate_req_s"]
    kinds = ["contiguous, reservation=max", "contiguous, reservation=pow2"]
    kinds += ["contiguous, reservation=oracle", "paged", "offline: unbounded memory"]
    assert rates[kinds].is_monotonic_increasing
    assert rates["paged"] > rates["offline: oracle lengths"]


def test_memory_thrashes_only_where_computing_again_is_dear() -> None:
    table = pd.read_csv(ROOT / "results" / "capacity_thrashing" / "capacity_rates.csv")
    by_price = table.set_index("cost.per_prefill_token_s").sort_index()
    assert by_price["thrashes_from_req_s"].notna().tolist() == [False, False, True]
    assert by_price["lost_goodput_frac"].is_monotonic_increasing
