"""Runs that fail are rows with their error, the others go on; an unwritable file is one line."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

from command import ROOT, SMALL, kvsim

PLUGINS = """\
from sim.allocators.paged import Paged
from workloads.sharegpt import ShareGPT


class FailsToLoad(ShareGPT):
    def load(self, seed):
        if seed == 1:
            raise RuntimeError("no trace\\ntoday")
        return super().load(seed)


class FailsToCount(Paged):
    def counters(self):
        raise ZeroDivisionError("nothing to count")


class LeavesAtBind(Paged):
    num_bound = 0

    def bind(self, *arguments):
        type(self).num_bound += 1
        if self.num_bound > 1:  # the check before the runs is the first
            raise SystemExit("that is all")
        super().bind(*arguments)
"""
SEEDS = SMALL.partition("workload:")[0] + (
    'workload: {kind: "mine:FailsToLoad", num_requests: 5, arrivals: {kind: poisson, rate: 4}}\n'
    "max_model_len: 512\nkv_cache: {num_slots: 1024}\nallocator: {kind: paged}\nseeds: 3\n"
).replace("max_model_len: 512\nkv_cache: {num_slots: 1024}\n", "")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "mine.py").write_text(PLUGINS)
    (tmp_path / "small.yaml").write_text(SMALL)
    return tmp_path


@pytest.mark.parametrize("jobs", [1, 2])
def test_a_trace_that_cannot_be_drawn_for_a_seed_fails_that_run_alone(
    folder: Path, jobs: int
) -> None:
    (folder / "seeds.yaml").write_text(SEEDS)
    done = kvsim("run", "seeds.yaml", "-j", jobs, cwd=folder)
    reason = "RuntimeError: no trace today (mine.py, line 8)"
    assert done.returncode == 1
    assert done.stderr == f"paged-seed=1: error: {reason}\n"
    rows = pd.read_csv(folder / "results/small/summary.csv")
    assert rows["status"].tolist() == ["finished", "error", "finished"]
    assert rows["reason"][1] == reason
    points = pd.read_csv(folder / "results/small/points.csv")
    assert points[["num_seeds", "num_not_finished"]].to_numpy().tolist() == [[2, 1]]


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        ("FailsToCount", "ZeroDivisionError: nothing to count (mine.py, line 14)"),
        ("LeavesAtBind", "SystemExit: that is all (mine.py, line 23)"),
    ],
)
def test_a_plug_in_that_raises_before_or_after_the_simulation_is_a_row(
    folder: Path, kind: str, reason: str
) -> None:
    allocators = f'allocator=[{{kind: "mine:{kind}"}}, {{kind: paged}}]'
    done = kvsim("run", "small.yaml", "--set", allocators, "--set", "figures=[]", cwd=folder)
    assert done.returncode == 1
    assert done.stderr == f"mine_{kind}-seed=0: error: {reason}\n"
    rows = pd.read_csv(folder / "results/small/summary.csv")
    assert rows["status"].tolist() == ["error", "finished"]


@pytest.mark.parametrize("jobs", [1, 2])
def test_a_full_disk_is_one_sentence(folder: Path, jobs: int) -> None:
    assert kvsim("run", "small.yaml", "--out", "warm", cwd=folder).returncode == 0  # compiles
    done = subprocess.run(
        [sys.executable, "-m", "sim.cli", "run", "small.yaml", "-j", str(jobs)],
        capture_output=True,
        text=True,
        check=False,
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"},
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (2048, 2048)),
        timeout=200,
    )
    assert done.returncode == 2, done.stderr
    (line,) = done.stderr.splitlines()
    assert line.endswith(".parquet: cannot be written: File too large")
    assert not list(folder.rglob("*.tmp"))


@pytest.mark.parametrize("jobs", [1, 2])
def test_a_folder_that_cannot_be_written_is_one_sentence(folder: Path, jobs: int) -> None:
    (folder / "results").write_text("in the way")
    done = kvsim("run", "small.yaml", "-j", jobs, cwd=folder)
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert line.startswith("results/small/runs/")
    assert line.endswith(": cannot be written: Not a directory")


def test_progress_for_machines_is_a_line_for_each_run(folder: Path) -> None:
    done = kvsim("run", "small.yaml", "--progress", "json", "--json", cwd=folder)
    lines = [json.loads(line) for line in done.stderr.splitlines()]
    assert [(line["done"], line["total"]) for line in lines] == [(1, 2), (2, 2)]
    runs = [run["run"] for run in json.loads(done.stdout)["runs"]]
    assert [line["run"] for line in lines] == runs
    assert {line["status"] for line in lines} == {"finished"}
    assert all(line["rate"] > 0 for line in lines)
    assert lines[0]["left_s"] == pytest.approx(1 / lines[0]["rate"], abs=0.06)
    assert lines[1]["left_s"] == 0


def test_rows_keep_their_order_whoever_ends_first(folder: Path) -> None:
    sizes = "sweep={kv_cache.num_slots: [4096, 160, 2048, 320], allocator.block_size: [1, 16]}"
    tables = []
    for jobs in (1, 3):
        where = f"out{jobs}"
        options = ("-j", jobs, "--out", where, "--set", sizes, "--set", "figures=[]")
        assert kvsim("run", "small.yaml", *options, cwd=folder).returncode == 0
        tables.append((folder / where / "small/summary.csv").read_bytes())
    assert tables[0] == tables[1]
