"""What a run of a large sweep costs, in CPU seconds, and which part of it: not a test.

python tests/measure/sweep.py              every 40th of the 1,600 runs, in one process, by part
python tests/measure/sweep.py --whole      all of them on one core and on two: wall time, CPU
                                           time, memory; needs a machine that does nothing else
"""

from __future__ import annotations

import resource
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from sim.config.experiment import load_experiment
from sim.config.runspec import RunSpec
from sim.metrics import summary as metrics
from sim.results import files as results
from sim.runs import runner

FILE = Path(__file__).with_suffix(".yaml")
EVERY = 40
PARTS: list[tuple[str, object, str]] = [
    ("trace, building", RunSpec, "build"),
    ("key", RunSpec, "key"),
    ("simulation", runner, "simulate"),
    ("summary row", metrics, "summarize"),
    ("tables", runner, "_write"),
    ("hashes, manifest", results, "write_manifest"),
    ("opening the folder", results, "open_run"),
]


def timed(spent: Counter[str], name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    def call(*arguments: Any, **more: Any) -> Any:
        started = time.process_time()
        try:
            return function(*arguments, **more)
        finally:
            spent[name] += time.process_time() - started

    return call


def measure_parts() -> None:
    """Milliseconds of CPU time a run, by part."""
    started = time.process_time()
    specs = load_experiment(FILE).runs()
    print(f"reading {len(specs):,} runs: {time.process_time() - started:.2f} s of CPU time")
    spent: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as folder:
        work = runner.Work(Path(folder), runner.code_digest(), runner.RunOptions())
        for spec in specs[:: len(specs) // 4]:  # compiles
            runner.execute(spec, work)
        for name, owner, attribute in PARTS:
            setattr(owner, attribute, timed(spent, name, getattr(owner, attribute)))
        chosen = specs[1::EVERY]
        started = time.process_time()
        for spec in chosen:
            row = runner.execute(spec, work)
            assert row["status"] == "finished", row
        spent["all"] = time.process_time() - started
    spent["the rest"] = 2 * spent["all"] - spent.total()
    for name, seconds in spent.items():
        print(f"{name:<20} {1000 * seconds / len(chosen):8.1f} ms a run")


def measure_whole(options: list[str]) -> None:
    """Wall and CPU time of the command with one and two processes, and memory."""
    walls = []
    for jobs in (1, 2):
        with tempfile.TemporaryDirectory() as folder:
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            started = time.perf_counter()
            command = [sys.executable, "-m", "sim.cli", "run", str(FILE), "--out", folder]
            subprocess.run(
                [*command, "-j", str(jobs), *options], check=True, stdout=subprocess.DEVNULL
            )
            walls.append(time.perf_counter() - started)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        memory = after.ru_maxrss / 1e6
        print(f"-j {jobs}: {walls[-1]:.0f} s, {cpu:.0f} s of CPU time, {memory:.2f} GB a process")
    print(f"speed-up of two cores over one: {walls[0] / walls[1]:.2f}")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--whole"]:
        measure_whole(sys.argv[2:])
    else:
        measure_parts()
