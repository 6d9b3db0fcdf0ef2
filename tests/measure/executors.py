"""The sweep of sweep.py through real clusters on this machine, each losing a worker: not a test.

python tests/measure/executors.py [--seeds 5] dask ray

With so many seeds, of 320 runs each: wall time of the command with two processes, and through a
cluster of two workers on loopback of which one is killed (SIGKILL) at a third of the runs, and,
with Dask, another joins. Compares all files, and of manifests all but wall times. Needs a machine
that does nothing else.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import psutil

ROOT = Path(__file__).parents[2]
sys.path += [str(ROOT), str(ROOT / "tests" / "support")]

from clusters import dask_on_loopback, end, ray_on_loopback  # noqa: E402
from executed import results_of  # noqa: E402

FILE = Path(__file__).with_name("sweep.yaml")


def timed_sweep(folder: Path, options: list[str], lose: Callable[[], None]) -> float:
    """Wall time of the command, in s; lose() is called when a third of the runs have ended."""
    command = [sys.executable, "-m", "sim.cli", "run", str(FILE), "--out", str(folder)]
    started = time.perf_counter()
    process = subprocess.Popen(
        [*command, "--progress", "json", *options],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert process.stderr is not None
    is_lost = False
    for line in process.stderr:
        if not line.startswith("{"):
            print(line, end="")
            continue
        facts = json.loads(line)
        if not is_lost and facts["done"] >= facts["total"] // 3:
            is_lost = True
            lose()
    assert process.wait() == 0
    return time.perf_counter() - started


def through_dask(folder: Path, options: list[str]) -> float:
    with tempfile.TemporaryDirectory() as own, dask_on_loopback(Path(own)) as dask:
        first, _ = dask.add_worker(), dask.add_worker()

        def lose() -> None:
            end(first)
            dask.add_worker()

        return timed_sweep(folder, [*options, "--executor", dask.executor], lose)


def through_ray(folder: Path, options: list[str]) -> float:
    with ray_on_loopback() as ray:

        def lose() -> None:
            children = psutil.Process(ray.process.pid).children(recursive=True)
            workers = [child for child in children if "carry_out" in " ".join(child.cmdline())]
            workers[0].send_signal(signal.SIGKILL)

        return timed_sweep(folder, [*options, "--executor", ray.executor], lose)


CLUSTERS = {"dask": through_dask, "ray": through_ray}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("clusters", nargs="+", choices=CLUSTERS)
    parser.add_argument("--seeds", type=int, default=5, help="of 320 runs each (5)")
    arguments = parser.parse_args()
    options = ["--set", f"seeds={arguments.seeds}"]
    with tempfile.TemporaryDirectory() as folder:
        here = Path(folder) / "here"
        local = timed_sweep(here, [*options, "-j", "2"], lambda: None)
        print(f"two processes: {local:.0f} s", flush=True)
        expected = results_of(here)
        for name in arguments.clusters:
            there = Path(folder) / name
            wall = CLUSTERS[name](there, options)
            found = results_of(there)
            differ = [file for file in expected | found if expected.get(file) != found.get(file)]
            print(
                f"{name}, a worker killed: {wall:.0f} s, {wall / local:.2f} of two processes; "
                f"{len(expected):,} files, {len(differ)} differ",
                flush=True,
            )


if __name__ == "__main__":
    main()
