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
from typing import Any

from sim.commands.capacity import add_capacity
from sim.commands.claims import add_claims
from sim.commands.compare import add_compare
from sim.commands.export import add_export
from sim.commands.report import add_report
from sim.commands.run import add_check, add_run
from sim.commands.trace import add_trace
from sim.commands.usage import UserError, add_command

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
    add_run(commands)
    add_check(commands)
    _add_others(commands)
    return parser


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
    from sim.results.files import ResultsError
    from sim.runs.outcome import draw_again
    from sim.slo.report import draw_from_files
    from sim.stored import open_folder

    folder = Path(arguments.folder)
    try:
        if open_folder(folder).facts.is_search and not arguments.figure:
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
    from sim.bench import events as bench

    facts = bench.measure(arguments.million)
    if arguments.json:
        print(json.dumps(facts, allow_nan=False))
    else:
        for name, value in facts.items():
            print(f"{name:<32} {value:,.3f}" if isinstance(value, float) else f"{name:<32} {value}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
