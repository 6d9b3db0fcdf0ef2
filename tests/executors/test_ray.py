"""Runs on a real Ray cluster: a head on loopback, reached through Ray's client."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from clusters import ray_on_loopback
from executed import NUM_RUNS, NUM_TRACES, SWEEP, TOLD, follow, results_of, started, told

from command import ROOT
from sim.cli import main

# memory that kills the process it is in, once, if a file says so
MORTAL = """
import signal
from contextlib import suppress

from sim.allocators import Paged


class Mortal(Paged):
    kind = "mortal"

    def bind(self, *args):
        super().bind(*args)
        with suppress(FileNotFoundError):
            os.unlink(os.environ["FATAL"])
            os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.slow
@pytest.mark.skipif("KVSIM_SLOW" not in os.environ, reason="Ray's processes need half a minute")
def test_a_sweep_that_is_interrupted_and_loses_a_worker_has_the_bytes_of_a_local_one(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fatal = folder / "fatal"
    monkeypatch.setenv("FATAL", str(fatal))
    (folder / "told.py").write_text(TOLD + MORTAL)
    (folder / "swept.yaml").write_text(SWEEP.replace("kind: paged", 'kind: "told:Mortal"'))
    with ray_on_loopback(f"{ROOT}:{folder}") as ray:
        process = started(folder, ray.executor)
        code, lines = follow(process, lambda: process.send_signal(signal.SIGINT))
        assert (code, lines) == (130, ["interrupted; finished runs are kept\n"])
        assert 3 <= len(list(folder.glob("results/swept/runs/*/manifest.json"))) < NUM_RUNS
        (folder / "told.txt").unlink()

        process = started(folder, ray.executor)
        code, lines = follow(process, fatal.touch)
        assert (code, lines) == (0, [])
        assert not fatal.exists()  # somebody has died of it
    shipped = told(folder / "told.txt")
    assert {loader for loader, _ in shipped["loaded"]} == {process.pid}
    assert len(shipped["loaded"]) == len(set(shipped["loaded"])) <= NUM_TRACES
    assert len(shipped["unpickled"]) == len(set(shipped["unpickled"]))

    monkeypatch.chdir(folder)
    assert main(["run", "swept.yaml", "--out", "here"]) == 0
    assert results_of(folder / "results") == results_of(folder / "here")
