"""The experiments of this repository, run as a user runs them."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import pytest

from command import ROOT, SHARED, kvsim

AZURE = SHARED / "traces" / "azure" / "AzureLLMInferenceTrace_conv.csv"


def test_quickstart_shows_that_paging_holds_more_requests(tmp_path: Path) -> None:
    found = json.loads(
        kvsim("run", ROOT / "experiments" / "quickstart.yaml", "--json", cwd=tmp_path).stdout
    )["runs"]
    longest = found[0]["num_running_max"]
    paged = next(run for run in found if run["allocator"] == "paged")
    assert longest == 4096 // 512
    assert paged["num_running_max"] > 2 * longest


def test_the_worked_example_holds_the_blocks_it_says(tmp_path: Path) -> None:
    kvsim("run", ROOT / "experiments" / "worked_example.yaml", cwd=tmp_path)
    folder = tmp_path / "results" / "worked_example" / "runs"
    blocks = pd.read_parquet(next(folder.glob("paged*")) / "blocks.parquet")
    first = blocks[blocks["time_s"] == blocks["time_s"].min()]
    held = first.groupby("request")["num_slots"].sum()
    written = first.groupby("request")["num_written"].sum()
    assert list(held // 16) == [2, 3, 1]
    assert list(written) == [25, 47, 12]
    assert list(held - written) == [7, 1, 4]
    assert 64 - held.sum() // 16 == 58
    last = blocks[(blocks["request"] == 1) & (blocks["time_s"] == blocks["time_s"].max())]
    assert last["num_written"].sum() == 67
    assert len(last) == 5


@pytest.mark.skipif(not AZURE.exists(), reason=f"{AZURE} is not there")
def test_the_azure_trace_runs_from_its_published_file(tmp_path: Path) -> None:
    experiment = ROOT / "experiments" / "block_size_azure.yaml"
    done = kvsim(
        "run",
        experiment,
        "--set",
        "sweep={}",
        "--set",
        f"workload={{kind: azure, path: {AZURE}, limit: 2000}}",
        "--set",
        "figures=[]",
        "--json",
        cwd=tmp_path,
    )
    for row in json.loads(done.stdout)["runs"]:
        assert row["num_finished"] == row["num_requests"] == 2000
