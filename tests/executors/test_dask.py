"""Runs on a real Dask cluster: a scheduler and workers that talk over TCP on loopback."""

from __future__ import annotations

import shutil
import signal
from pathlib import Path

import pytest
from clusters import DaskOnLoopback, dask_on_loopback, end
from executed import NUM_RUNS, NUM_TRACES, follow, results_of, started, told

from command import ROOT, SMALL
from sim.cli import main
from sim.config.experiment import load_experiment
from sim.executors import ExecutorError, cluster, run_experiment
from sim.runs.runner import RunOptions, code_digest


def test_a_sweep_that_is_interrupted_and_loses_a_worker_has_the_bytes_of_a_local_one(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with dask_on_loopback(folder, f"{ROOT}:{folder}") as dask:
        workers = [dask.add_worker(), dask.add_worker()]
        process = started(folder, dask.executor)
        code, lines = follow(process, lambda: process.send_signal(signal.SIGINT))
        assert (code, lines) == (130, ["interrupted; finished runs are kept\n"])
        made = len(list(folder.glob("results/swept/runs/*/manifest.json")))
        assert 3 <= made < NUM_RUNS
        first = told(folder / "told.txt")
        (folder / "told.txt").unlink()

        process = started(folder, dask.executor)
        code, lines = follow(process, lambda: end(workers[0]))
        assert (code, lines) == (0, [])
    second = told(folder / "told.txt")
    for shipped in (first, second):
        assert len(shipped["loaded"]) == len(set(shipped["loaded"])) <= NUM_TRACES
        assert {worker for worker, _ in shipped["unpickled"]} <= {w.pid for w in workers}
        assert len(shipped["unpickled"]) == len(set(shipped["unpickled"]))
    assert {loader for loader, _ in second["loaded"]} == {process.pid}

    monkeypatch.chdir(folder)
    assert main(["run", "swept.yaml", "--out", "here"]) == 0
    assert results_of(folder / "results") == results_of(folder / "here")


KILLS = """
import os
import signal

from sim.allocators.paged import Paged


class Kills(Paged):
    def counters(self):
        os.kill(os.getpid(), signal.SIGKILL)
"""
SMALL_AND_ONE_THAT_KILLS = SMALL.replace("figures: [waste]\n", '  - {kind: "kills:Kills"}\n')


@pytest.fixture
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "kills.py").write_text(KILLS)
    (tmp_path / "small.yaml").write_text(SMALL_AND_ONE_THAT_KILLS)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


def run(dask: DaskOnLoopback, capsys: pytest.CaptureFixture[str]) -> tuple[int, list[str]]:
    """The exit code, and what is on stderr."""
    code = main(["run", "small.yaml", "--executor", dask.executor])
    return code, capsys.readouterr().err.splitlines()


def test_what_goes_wrong_with_a_cluster_is_one_sentence(
    small: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    failures = {"DASK_DISTRIBUTED__SCHEDULER__ALLOWED_FAILURES": "0"}
    with dask_on_loopback(small, f"{ROOT}:{small}", **failures) as dask:
        with monkeypatch.context() as patched:
            patched.setattr(cluster, "WORKERS_S", 0.5)
            assert run(dask, capsys) == (2, [f"{dask.executor}: no workers within 0.5 s"])

        other = dask.add_worker(path=str(_other_code(small)))
        code, (line,) = run(dask, capsys)
        assert code == 2
        assert line.startswith(f"{dask.executor}: the worker on ")
        assert f", this machine {code_digest()}; install the same version on both" in line
        end(other)

        dask.add_worker("--nanny")  # which starts a worker again that was killed
        killed = "error: the workers that made it were killed, perhaps for want of memory"
        assert run(dask, capsys) == (1, [f"kills_Kills-seed=0: {killed}"])
        assert len(list(small.glob("results/small/runs/*/manifest.json"))) == 2

        swept = f"sweep={{allocator.block_size: {[*range(1, 41)]}}}"
        specs = load_experiment("small.yaml", ["allocator={kind: paged}", swept])
        with pytest.raises(ExecutorError, match="the cluster is gone; finished runs are kept"):
            run_experiment(
                specs,
                small / "gone",
                RunOptions(executor=dask.executor),
                lambda done, row: end(dask.scheduler) if done == 2 else None,
            )
        assert len(list(small.glob("gone/runs/*/manifest.json"))) >= 2


def _other_code(folder: Path) -> Path:
    """A copy of the code in which something is different."""
    other = folder / "other"
    for name in ("sim", "workloads"):
        shutil.copytree(ROOT / name, other / name)
    with (other / "sim" / "usage.py").open("a") as file:
        file.write("# different\n")
    return other
