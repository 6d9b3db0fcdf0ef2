"""kvsim run and kvsim check: an experiment, made or looked at. Part of the command line."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sim.commands.usage import UserError, add_command, checked_jobs

if TYPE_CHECKING:
    from sim.config.experiment import Experiment


def add_run(commands: Any) -> None:
    """Add kvsim run."""
    run = add_command(
        commands, "run", "run an experiment and write its tables and figures", run_command
    )
    _add_experiment(run)
    _add_place(run, "write to DIR/<experiment> (results)")
    run.add_argument("--force", action="store_true", help="run again what is done")
    run.add_argument("--check", action="store_true", help="verify every allocator operation (slow)")
    run.add_argument(
        "--single-step", action="store_true", help="one event an iteration; same results, slower"
    )
    run.add_argument(
        "--progress",
        choices=("bar", "json"),
        default="bar",
        help="on stderr: a bar in a terminal (bar), or a line of JSON for each run that ends",
    )
    run.add_argument(
        "--executor",
        metavar="WHERE",
        default="local",
        help="where runs are made: local, or a cluster: dask://HOST:PORT, ray://HOST:PORT",
    )
    run.add_argument("--json", action="store_true", help="print the summary rows as one object")


def add_check(commands: Any) -> None:
    """Add kvsim check."""
    check = add_command(
        commands, "check", "validate an experiment; say what would run", check_command
    )
    check.add_argument(
        "--schema", action="store_true", help="print the JSON Schema of experiments, for editors"
    )
    _add_experiment(check, "?")
    _add_place(check, "look for earlier runs, which tell the time, in DIR/<experiment> (results)")


def run_command(arguments: argparse.Namespace) -> int:
    """kvsim run."""
    from sim.executors import ExecutorError
    from sim.results.files import ResultsError
    from sim.runs.outcome import print_outcome, run_and_write
    from sim.runs.runner import RunOptions

    jobs = checked_jobs(arguments.jobs)
    _check_executor(arguments)
    experiment = _load(arguments)
    folder = Path(arguments.out) / experiment.name
    options = RunOptions(
        jobs=jobs,
        force=arguments.force,
        check=arguments.check,
        single_step=arguments.single_step,
        progress=arguments.progress,
        executor=arguments.executor,
    )
    if experiment.is_replay and (options.check or options.single_step):
        raise UserError("--check and --single-step are of engines; policies are replayed without")
    if not arguments.json:
        for line in experiment.budget_lines():
            print(line, flush=True)
    try:
        outcome = run_and_write(experiment, folder, options)
    except (ResultsError, ExecutorError) as error:
        raise UserError(str(error)) from None
    if arguments.json:
        rows = {"experiment": experiment.name, "runs": outcome.rows}
        print(json.dumps(rows, allow_nan=False, ensure_ascii=False))
    else:
        print_outcome(experiment, outcome)
    for problem in outcome.problems:
        print(problem, file=sys.stderr)
    return 1 if outcome.problems else 0


def check_command(arguments: argparse.Namespace) -> int:
    """kvsim check."""
    if arguments.schema:
        from sim.config.schema import experiment_schema

        print(json.dumps(experiment_schema(), indent=1, ensure_ascii=False))
        return 0
    if arguments.file is None:
        raise UserError("check: FILE is missing; accepted: an experiment (YAML), or --schema")
    jobs = checked_jobs(arguments.jobs)
    experiment = _load(arguments)

    from sim.runs.estimate import time_line

    specs = experiment.runs()
    num_skipped = sum(bool(spec.skip) for spec in specs)
    skipped = f", and {num_skipped:,} that cannot be" if num_skipped else ""
    num_runs = len(specs) - num_skipped
    print(f"{experiment.name}: {num_runs:,} {'run' if num_runs == 1 else 'runs'}{skipped}")
    print(f"  {time_line(specs, Path(arguments.out) / experiment.name, jobs)}")
    for line in experiment.budget_lines():
        print(f"  {line}")
    for spec in specs:
        print(f"  {spec.run_id}")
    return 0


def _add_experiment(parser: argparse.ArgumentParser, nargs: str | None = None) -> None:
    parser.add_argument("file", metavar="FILE", nargs=nargs, help="an experiment (YAML)")
    parser.add_argument(
        "--set",
        dest="overrides",
        metavar="A.B=C",
        action="append",
        default=[],
        help="override a key of the file; may be repeated",
    )


def _add_place(parser: argparse.ArgumentParser, about_out: str) -> None:
    parser.add_argument("--out", metavar="DIR", default="results", help=about_out)
    parser.add_argument(
        "-j", dest="jobs", metavar="N", type=int, help="runs at a time on this machine (1)"
    )


def _load(arguments: argparse.Namespace) -> Experiment:
    """The experiment of a file and its overrides. Raises UserError about all that is wrong."""
    from sim.config.experiment import load_experiment
    from sim.config.point import ConfigError
    from workloads.trace import TraceError

    if "" not in sys.path:
        sys.path.insert(0, "")  # "module:Class" may name a file in the current folder
    try:
        return load_experiment(arguments.file, arguments.overrides)
    except (ConfigError, TraceError) as error:
        raise UserError(str(error)) from None


def _check_executor(arguments: argparse.Namespace) -> None:
    from sim.executors import ExecutorError, find_executor

    try:
        find_executor(arguments.executor)
    except ExecutorError as error:
        raise UserError(str(error)) from None
    if arguments.executor != "local" and arguments.jobs is not None:
        raise UserError(
            "-j is of this machine; how many runs go at a time, a cluster's workers say"
        )
