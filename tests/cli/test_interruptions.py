"""A sweep interrupted or killed at any moment loses the runs in flight, and nothing else."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from command import ROOT, files_below, kvsim

SWEEP = """
name: swept
kv_cache: {num_slots: 4096}
max_model_len: 2048
workload: {kind: sharegpt, num_requests: 60, arrivals: {kind: poisson, rate: 4}}
allocator: [{kind: contiguous, reservation: oracle}, {kind: paged}]
sweep: {workload.arrivals.rate: [1, 4, 9], allocator.block_size: [8, 16]}
seeds: 3
figures: [waste]
"""
NUM_RUNS = 27


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "swept.yaml").write_text(SWEEP)
    return tmp_path


@contextmanager
def running(folder: Path, *arguments: object) -> Iterator[subprocess.Popen[str]]:
    """kvsim run in a process group of its own, with a line of progress for each run."""
    command = [sys.executable, "-m", "sim.cli", "run", "swept.yaml", "--progress", "json"]
    process = subprocess.Popen(
        [*command, *map(str, arguments)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        start_new_session=True,
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait(60)
        assert process.stderr is not None
        process.stderr.close()


def wait_for_runs(process: subprocess.Popen[str], count: int) -> int:
    """Wait until so many runs have ended, or all have; how many have."""
    assert process.stderr is not None
    for line in process.stderr:
        if json.loads(line)["done"] >= count:
            return int(json.loads(line)["done"])
    return NUM_RUNS


def results_of(folder: Path) -> dict[str, bytes]:
    """All files but the manifests, which have wall times."""
    return {
        name: content
        for name, content in files_below(folder / "swept").items()
        if not name.endswith("manifest.json")
    }


@pytest.mark.parametrize("jobs", [1, 2])
def test_ctrl_c_is_one_sentence_and_finished_runs_are_kept(folder: Path, jobs: int) -> None:
    with running(folder, "-j", jobs, "--out", "out") as process:
        wait_for_runs(process, 3)
        os.killpg(process.pid, signal.SIGINT)
        assert process.stderr is not None
        rest = [line for line in process.stderr if not line.startswith("{")]
        assert process.wait(60) == 130
    assert rest == ["interrupted; finished runs are kept\n"]
    assert len(list(folder.glob("out/swept/runs/*/manifest.json"))) >= 3


def test_a_worker_that_is_killed_is_one_sentence(folder: Path) -> None:
    with running(folder, "-j", 2, "--out", "out") as process:
        wait_for_runs(process, 1)
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
        if not children.exists():
            pytest.skip("this kernel does not list the children of a process")
        workers = [
            int(child)
            for child in children.read_text().split()
            if b"popen_loky" in Path(f"/proc/{child}/cmdline").read_bytes()
        ]
        os.kill(workers[0], signal.SIGKILL)
        assert process.stderr is not None
        rest = [line for line in process.stderr if not line.startswith("{")]
        assert process.wait(60) == 2
    (line,) = rest
    assert line.startswith("out/swept: a worker process was killed, ")


def kill_and_complete(folder: Path, seed: int, num_kills: int) -> None:
    """Kill the command alone, without its workers, at moments of chance; then let it complete."""
    chance = random.Random(seed)
    assert kvsim("run", "swept.yaml", "--out", "whole", cwd=folder).returncode == 0
    seen = set()
    for _ in range(num_kills):
        with running(folder, "-j", 2, "--out", "killed") as process:
            seen.add(wait_for_runs(process, chance.randint(1, NUM_RUNS)))
            time.sleep(chance.random() * 0.05)
            process.kill()
            process.wait(60)  # the workers may still be at a run when the next one begins
        made = sorted(folder.glob("killed/swept/runs/*/manifest.json"))
        for manifest in chance.sample(made, min(2, len(made))):
            manifest.unlink()  # so that there is work left for the next time
    done = kvsim("run", "swept.yaml", "--out", "killed", "-j", 2, cwd=folder)
    assert done.returncode == 0, done.stderr
    assert len(seen) > 1 or num_kills < 3
    assert results_of(folder / "killed") == results_of(folder / "whole")


def test_a_sweep_killed_twice_completes_to_the_same_bytes(folder: Path) -> None:
    kill_and_complete(folder, seed=1, num_kills=2)


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.skipif("KVSIM_SLOW" not in os.environ, reason="minutes; CI has the one above")
def test_a_sweep_killed_ten_times_completes_to_the_same_bytes(folder: Path) -> None:
    kill_and_complete(folder, seed=2, num_kills=10)
