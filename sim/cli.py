"""The command line: the only place, with the other *_cli.py, that prints or exits. Heavy modules
are imported by the command that needs them, so that --help is instant.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sim.capacity_cli import add_capacity
from sim.claims_cli import add_claims
from sim.compare_cli import add_compare
from sim.export_cli import add_export
from sim.report_cli import add_report
from sim.trace_cli import add_trace
from sim.usage import UserError, add_command

if TYPE_CHECKING:
    from sim.experiment import Experiment

EXAMPLES = """examples:
  kvsim run experiments/quickstart.yaml
  kvsim run experiments/block_size_azure.yaml --set seeds=1 --out /tmp/results -j 2
  kvsim check my_experiment.yaml
  kvsim plot results/quickstart
  kvsim export results/quickstart --perfetto
  kvsim export results/quickstart --csv /tmp/tables
  kvsim report results/quickstart
  kvsim trace info AzureLLMInferenceTrace_conv.csv --plot azure.png
  kvsim trace convert conversation_trace.jsonl mooncake.parquet
  kvsim trace fetch azure-conv-2023
  kvsim trace policies mooncake-conversation --block-size 512
  kvsim list engines
  kvsim claims --recorded
  kvsim capacity --model llama-3-8b,llama-3-70b --device h100,a100-80gb --tensor-parallel-size 1,4
  kvsim capacity experiments/capacity_slo.yaml --slo "p99 ttft < 1 s, p99 tpot < 50 ms"
  kvsim compare results/latency_vs_rate --a allocator=contiguous --b allocator=paged
  kvsim bench --json
"""


MAX_JOBS = 1024

EXIT_CODES = {
    0: "all is well",
    1: "a run stalled or failed, a figure could not be drawn, a trace has problems, or a verdict "
    "has changed",
    2: "the input is wrong: one sentence an error, before anything runs",
    130: "interrupted by Ctrl-C; finished runs are kept, and the same command goes on",
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; return the exit code."""
    if sys.stdout is None:  # closed by the caller
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # a terminal without µ still gets text
    arguments = build_parser().parse_args(argv)
    try:
        code: int = arguments.command(arguments)
        sys.stdout.flush()
    except UserError as error:
        print(error, file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("interrupted; finished runs are kept", file=sys.stderr)
        return 130
    except BrokenPipeError:
        sys.stderr.close()  # the reader has seen enough
        return 0
    except OSError as error:
        print(f"standard output: {error.strerror}", file=sys.stderr)
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115 - nothing is left to flush at exit
        return 1
    return code


def build_parser() -> argparse.ArgumentParser:
    """The parser of all commands."""
    parser = argparse.ArgumentParser(
        prog="kvsim",
        description="Where does KV-cache memory go? Replay a trace through paged and contiguous "
        "allocators and see.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    _add_run(commands)
    _add_check(commands)
    _add_others(commands)
    return parser


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


def _add_run(commands: Any) -> None:
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


def _add_check(commands: Any) -> None:
    check = add_command(
        commands, "check", "validate an experiment; say what would run", check_command
    )
    check.add_argument(
        "--schema", action="store_true", help="print the JSON Schema of experiments, for editors"
    )
    _add_experiment(check, "?")
    _add_place(check, "look for earlier runs, which tell the time, in DIR/<experiment> (results)")


def _add_others(commands: Any) -> None:
    listing = add_command(commands, "list", "list what an experiment can name", list_command)
    listing.add_argument("table", nargs="?", metavar="TABLE", help="only this table")
    plot = add_command(commands, "plot", "draw the figures again, from files alone", plot_command)
    plot.add_argument("folder", metavar="RESULTS", help="for example results/quickstart")
    plot.add_argument("--figure", action="append", metavar="NAME", help="only this figure")
    add_export(commands)
    add_report(commands)
    add_trace(commands)
    add_claims(commands)
    add_capacity(commands)
    add_compare(commands)
    bench = add_command(
        commands, "bench", "measure the simulator against bare SimPy", bench_command
    )
    bench.add_argument("--json", action="store_true", help="print one object")
    bench.add_argument(
        "--million", action="store_true", help="also run 1,000,000 requests in one run"
    )


def _load(arguments: argparse.Namespace) -> Experiment:
    from sim.config import ConfigError
    from sim.experiment import load_experiment
    from workloads.trace import TraceError

    if "" not in sys.path:
        sys.path.insert(0, "")  # "module:Class" may name a file in the current folder
    try:
        experiment = load_experiment(arguments.file, arguments.overrides)
        experiment.runs()
    except (ConfigError, TraceError) as error:
        raise UserError(str(error)) from None
    return experiment


def _jobs(given: int | None) -> int:
    jobs = 1 if given is None else given
    if not 1 <= jobs <= MAX_JOBS:
        raise UserError(f"-j: must be 1 to {MAX_JOBS}, got {jobs}")
    return jobs


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


def run_command(arguments: argparse.Namespace) -> int:
    """kvsim run."""
    from sim.executors import ExecutorError
    from sim.outcome import print_outcome, run_and_write
    from sim.results import ResultsError
    from sim.runner import RunOptions

    jobs = _jobs(arguments.jobs)
    _check_executor(arguments)
    experiment = _load(arguments)
    folder = Path(arguments.out) / experiment.name
    options = RunOptions(
        jobs,
        arguments.force,
        arguments.check,
        arguments.single_step,
        arguments.progress,
        arguments.executor,
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
        from sim.schema import experiment_schema

        print(json.dumps(experiment_schema(), indent=1, ensure_ascii=False))
        return 0
    if arguments.file is None:
        raise UserError("check: FILE is missing; accepted: an experiment (YAML), or --schema")
    jobs = _jobs(arguments.jobs)
    experiment = _load(arguments)

    from sim.estimate import time_line

    specs = experiment.runs()
    num_skipped = sum(bool(spec.skip) for spec in specs)
    skipped = f", and {num_skipped:,} that cannot be" if num_skipped else ""
    print(f"{experiment.name}: {len(specs) - num_skipped:,} runs{skipped}")
    print(f"  {time_line(specs, Path(arguments.out) / experiment.name, jobs)}")
    for line in experiment.budget_lines():
        print(f"  {line}")
    for spec in specs:
        print(f"  {spec.run_id}")
    return 0


def list_command(arguments: argparse.Namespace) -> int:
    """kvsim list."""
    from sim import catalog

    tables = catalog.tables()
    if arguments.table is not None and arguments.table not in tables:
        raise UserError(f"list: unknown table {arguments.table!r}; accepted: {', '.join(tables)}")
    related = {"costs": ("profiles", "paging")}.get(str(arguments.table), ())
    for name, entries in tables.items():
        if arguments.table in {None, name} or name in related:
            print(name)
            width = max(16, *map(len, entries))
            for entry, text in entries.items():
                indented = text.replace("\n", f"\n{'':{width + 3}}")
                print(f"  {entry:<{width}} {indented}")
    return 0


def plot_command(arguments: argparse.Namespace) -> int:
    """kvsim plot."""
    from sim.outcome import draw_again
    from sim.results import ResultsError
    from sim.slo.report import draw_from_files

    folder = Path(arguments.folder)
    try:
        if (folder / "capacity_rates.csv").exists() and not arguments.figure:
            paths, problems = draw_from_files(folder), list[str]()
        else:
            paths, problems = draw_again(folder, arguments.figure)
    except (ResultsError, ValueError) as error:
        raise UserError(str(error)) from None
    for path in paths:
        print(path)
    for problem in problems:
        print(problem, file=sys.stderr)
    return 1 if problems else 0


def bench_command(arguments: argparse.Namespace) -> int:
    """kvsim bench."""
    from sim import bench

    facts = bench.measure(arguments.million)
    if arguments.json:
        print(json.dumps(facts, allow_nan=False))
    else:
        for name, value in facts.items():
            print(f"{name:<32} {value:,.3f}" if isinstance(value, float) else f"{name:<32} {value}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
