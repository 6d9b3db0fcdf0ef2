"""Runs on a real Ray cluster: a head on loopback, reached through Ray's client."""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
from clusters import PATIENCE_S, RayOnLoopback, ray_on_loopback
from executed import NUM_RUNS, NUM_TRACES, follow, results_of, started, told

from command import ROOT
from sim.cli import main


def kill_a_worker(ray: RayOnLoopback) -> None:
    """Kill a process that is at a run, which Ray calls after the function, as soon as there is one.

    Runs that were found done end before any is made.
    """
    for _ in range(100 * PATIENCE_S):
        for child in psutil.Process(ray.process.pid).children(recursive=True):
            with suppress(psutil.Error):  # it may end meanwhile
                if "_carry_out" in " ".join(child.cmdline()):
                    child.send_signal(signal.SIGKILL)
                    return
        time.sleep(0.01)
    raise TimeoutError(f"Ray is at no run after {PATIENCE_S} s")


@pytest.mark.slow
@pytest.mark.skipif("KVSIM_SLOW" not in os.environ, reason="Ray's processes need half a minute")
def test_a_sweep_that_is_interrupted_and_loses_a_worker_has_the_bytes_of_a_local_one(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with ray_on_loopback(f"{ROOT}:{folder}") as ray:
        process = started(folder, ray.executor)
        code, lines = follow(process, lambda: process.send_signal(signal.SIGINT))
        assert (code, lines) == (130, ["interrupted; finished runs are kept\n"])
        assert 3 <= len(list(folder.glob("results/swept/runs/*/manifest.json"))) < NUM_RUNS
        (folder / "told.txt").unlink()

        process = started(folder, ray.executor)
        code, lines = follow(process, lambda: kill_a_worker(ray))
        assert (code, lines) == (0, [])
    shipped = told(folder / "told.txt")
    assert {loader for loader, _ in shipped["loaded"]} == {process.pid}
    assert len(shipped["loaded"]) == len(set(shipped["loaded"])) <= NUM_TRACES
    assert len(shipped["unpickled"]) == len(set(shipped["unpickled"]))

    monkeypatch.chdir(folder)
    assert main(["run", "swept.yaml", "--out", "here"]) == 0
    assert results_of(folder / "results") == results_of(folder / "here")
