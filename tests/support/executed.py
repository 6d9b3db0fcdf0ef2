"""Sweeps that tests send to clusters, and what they compare."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from command import ROOT, files_below

NUM_TRACES, NUM_RUNS = 6, 24
SWEEP = """
name: swept
kv_cache: {num_slots: 4096}
max_model_len: 2048
workload: {kind: "told:Told", num_requests: 60, arrivals: {kind: poisson, rate: 4}}
allocator: [{kind: contiguous, reservation: oracle}, {kind: paged}]
sweep: {workload.arrivals.rate: [1, 4, 9], allocator.block_size: [4, 8, 16]}
seeds: 2
figures: [waste]
"""
# a workload whose traces tell which process loads them, and which unpickles them
TOLD = """
import os
from dataclasses import fields

from workloads.sharegpt import ShareGPT
from workloads.trace import Trace


def tell(what, trace):
    with open(os.environ["TOLD"], "a") as file:
        file.write(f"{what} {os.getpid()} {trace.digest()}\\n")


class Telling(Trace):
    def __setstate__(self, state):
        self.__dict__.update(state)
        tell("unpickled", self)


class Told(ShareGPT):
    def load(self, seed):
        trace = super().load(seed)
        tell("loaded", trace)
        return Telling(**{field.name: getattr(trace, field.name) for field in fields(trace)})
"""


def told(file: Path) -> dict[str, list[tuple[int, str]]]:
    """By what was done to a trace: the processes that did it, and the traces."""
    found: dict[str, list[tuple[int, str]]] = {"loaded": [], "unpickled": []}
    for line in file.read_text().splitlines():
        what, process, digest = line.split()
        found[what].append((int(process), digest))
    return found


def results_of(folder: Path) -> dict[str, Any]:
    """All files, of manifests what does not depend on the machine and the moment."""
    files: dict[str, Any] = dict(files_below(folder))
    for name, content in files.items():
        if name.endswith("manifest.json"):
            files[name] = json.loads(content)
            for measured in {"wall_s", "requests_per_s"} & files[name].keys():
                del files[name][measured]
    return files


def started(folder: Path, executor: str) -> subprocess.Popen[str]:
    command = ["run", "swept.yaml", "--progress", "json", "--executor", executor]
    return subprocess.Popen(
        [sys.executable, "-m", "sim.cli", *command],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )


def follow(process: subprocess.Popen[str], act: Callable[[], object]) -> tuple[int, list[str]]:
    """Do something when three runs have ended; the exit code, and what else was on stderr."""
    assert process.stderr is not None
    lines = []
    with process.stderr:
        for line in process.stderr:
            if not line.startswith("{"):
                lines.append(line)
            elif json.loads(line)["done"] == 3:
                act()
    return process.wait(60), lines
