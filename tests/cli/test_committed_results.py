"""Rows of committed results, made again: an excerpt of each experiment, to the last digit."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from command import ROOT, SHARED, kvsim
from sim.engine_presets import ENGINES

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
