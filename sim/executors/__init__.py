"""Where the runs of an experiment are made: on this machine, or on a cluster that is there.

EXECUTORS is the table of schemes, and the class of each, which is imported when it is asked for:
those of clusters need packages of their own. All give numbered rows as runs end, so an experiment
is one loop, and the files are the same whoever made the runs.
"""

from __future__ import annotations

import importlib
from contextlib import closing
from pathlib import Path

from sim.config.experiment import Experiment
from sim.executors.base import Executor, ExecutorError, by_trace
from sim.results import files as results
from sim.runs.progress import OnDone
from sim.runs.runner import Row, RunOptions, Work, code_digest

EXECUTORS = {
    "local": ("sim.executors.local", "Local"),
    "dask": ("sim.executors.dask", "DaskCluster"),
    "ray": ("sim.executors.ray", "RayCluster"),
}

__all__ = ["EXECUTORS", "Executor", "ExecutorError", "find_executor", "run_experiment"]


def find_executor(text: str) -> Executor:
    """The executor that is meant by "local", "dask://HOST:PORT" or "ray://HOST:PORT".

    Nothing is connected yet. Raises ExecutorError if there is none, or its packages are missing.
    """
    scheme, colon, address = text.partition("://")
    if scheme not in EXECUTORS or bool(colon) == (scheme == "local"):
        accepted = ", ".join(name + "://HOST:PORT" * (name != "local") for name in EXECUTORS)
        raise ExecutorError(f"--executor: unknown executor {text!r}; accepted: {accepted}")
    module, name = EXECUTORS[scheme]
    try:
        found = getattr(importlib.import_module(module), name)
    except ImportError as error:
        raise ExecutorError(
            f"--executor {text}: needs {error.name or scheme}: pip install 'kvsim[{scheme}]'"
        ) from None
    executor: Executor = found(address)
    return executor


def run_experiment(
    experiment: Experiment,
    folder: Path,
    options: RunOptions,
    on_done: OnDone = lambda done, row: None,
) -> list[Row]:
    """Execute the runs that are not done yet; return the summary rows of all, in order.

    on_done is told how many have ended, and the row of the last. Files appear below folder as they
    are ready. Raises ResultsError if files cannot be written, or a worker process of this machine
    is killed; ExecutorError if a cluster cannot make the runs.
    """
    executor = find_executor(options.executor)
    results.tidy(folder, folder / "runs", folder / "figures")
    specs = experiment.runs()
    rows: list[Row] = [{}] * len(specs)
    with closing(executor.ended(by_trace(specs), Work(folder, code_digest(), options))) as ended:
        for done, (number, row) in enumerate(ended, 1):
            rows[number] = row
            on_done(done, row)
    return rows
