"""kvsim capacity --slo: the highest rate within an SLO. Part of the command line."""

from __future__ import annotations

import argparse
import json
import math
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sim.commands.usage import UserError

if TYPE_CHECKING:
    from sim.config.yaml_nodes import Document
    from sim.slo.survey import Question

MAX_SEEDS = 100
MAX_JOBS = 1024
GIB = 1 << 30
ACCEPTED = 'accepted: --slo "p99 ttft < 1 s, p99 tpot < 50 ms"'


def add_slo_options(parser: argparse.ArgumentParser) -> None:
    """The options of kvsim capacity that belong to --slo."""
    search = parser.add_argument_group("the highest rate within an SLO")
    search.add_argument("file", metavar="FILE", nargs="?", help="an experiment (YAML)")
    search.add_argument("--slo", metavar="TEXT", help=f"limits: {ACCEPTED[16:]}")
    search.add_argument(
        "--trace", metavar="FILE", help="instead of an experiment: requests, by name too"
    )
    search.add_argument(
        "--set",
        dest="overrides",
        metavar="A.B=C",
        action="append",
        default=[],
        help="override a key",
    )
    search.add_argument("--seeds", metavar="N", type=int, default=5, help="runs at each rate (5)")
    search.add_argument("--agree", metavar="K", type=int, help="of them must meet it (four fifths)")
    search.add_argument(
        "--tolerance", metavar="X", type=float, default=0.05, help="of rates (0.05)"
    )
    search.add_argument(
        "--requests",
        metavar="N",
        type=int,
        help="measured in a run, instead of as many as it takes",
    )
    search.add_argument(
        "--no-offline", action="store_true", help="without the two lines that no engine can have"
    )
    search.add_argument("--price-per-hour", metavar="X", type=float, help="of one GPU")
    search.add_argument(
        "-j", dest="jobs", metavar="N", type=int, default=1, help="runs at a time (1)"
    )


def slo_command(arguments: argparse.Namespace) -> int:
    """kvsim capacity --slo."""
    from sim.config.yaml_nodes import ConfigError
    from sim.results.files import ResultsError
    from sim.slo.lines import searched
    from sim.slo.report import facts_of, print_capacities, write_capacities
    from sim.slo.survey import TooFewError, survey
    from workloads.trace import TraceError

    question = _question(arguments)
    try:
        document, folder = _document(arguments)
        found, lines = searched(document, folder, not arguments.no_offline)
        overrides = tuple(arguments.overrides)
        experiment = replace(found, file=arguments.file or "", overrides=overrides)
        with _folder(arguments.out) as out, _progress(len(lines)) as on_run:
            rows, points = survey(question, lines, out, arguments.jobs, on_run)
            facts = facts_of(question, experiment)
            paths = []
            if arguments.out is not None:
                paths = write_capacities(experiment, rows, points, facts, out)
    except TooFewError as error:
        raise UserError(f"capacity: {error}") from None
    except (ConfigError, TraceError, ResultsError) as error:
        raise UserError(str(error)) from None
    if arguments.json:
        print(json.dumps({**facts, "capacity": rows}, allow_nan=False, ensure_ascii=False))
    else:
        print_capacities(experiment, question, rows)
        for path in paths:
            print(path)
    return 0 if any(row["status"] in {"found", "always"} for row in rows) else 1


def _question(arguments: argparse.Namespace) -> Question:
    """What is asked. Raises UserError."""
    from sim.slo.objectives import MAX_MEASURED, read_objectives
    from sim.slo.survey import Question

    if arguments.slo is None:
        raise UserError(
            f"capacity: {'FILE' if arguments.file else '--trace'} needs --slo; {ACCEPTED}"
        )
    if (arguments.file is None) == (arguments.trace is None):
        raise UserError("capacity: --slo needs an experiment (FILE) or --trace FILE, and only one")
    try:
        objectives = read_objectives(arguments.slo)
    except ValueError as error:
        raise UserError(f"--slo: {error}") from None
    agree = arguments.agree
    if agree is None:
        agree = math.ceil(arguments.seeds * 0.8)
    measured = 1 if arguments.requests is None else arguments.requests
    for option, value, most in (
        ("--seeds", arguments.seeds, MAX_SEEDS),
        ("--agree", agree, arguments.seeds),
        ("--requests", measured, MAX_MEASURED),
        ("-j", arguments.jobs, MAX_JOBS),
    ):
        if not 1 <= value <= most:
            raise UserError(f"{option}: must be 1 to {most:,}, got {value}")
    if not 0.001 <= arguments.tolerance <= 1:
        raise UserError(f"--tolerance: must be 0.001 to 1, got {arguments.tolerance:g}")
    price = arguments.price_per_hour
    if price is not None and not 0 <= price < 1e9:
        raise UserError(f"--price-per-hour: must be at least 0 and below 1e9, got {price:g}")
    return Question(
        objectives, arguments.seeds, agree, arguments.tolerance, arguments.requests, price
    )


def _document(arguments: argparse.Namespace) -> tuple[Document, Path]:
    """The experiment that is meant, and the folder of its paths. Raises ConfigError."""
    from sim.config.experiment import override_all
    from sim.config.yaml_nodes import Document, read_document

    if arguments.file is not None:
        if arguments.model is not None or arguments.device is not None:
            raise UserError("--model and --device: are in FILE; accepted: --set model=…")
        document, folder = read_document(arguments.file), Path(arguments.file).parent
    else:
        document, folder = Document(_trace_experiment(arguments), "--trace"), Path()
    override_all(document, arguments.overrides)
    return document, folder


def _trace_experiment(arguments: argparse.Namespace) -> dict[str, Any]:
    """The experiment of --trace: a trace on paged memory, with the times of a roofline."""
    from workloads.publictraces import named
    from workloads.trace import TraceError

    for option in ("model", "device"):
        if getattr(arguments, option) is None:
            raise UserError(f"--{option}: is missing; --trace needs --model and --device")
    workload = {"kind": "file", "path": arguments.trace}
    if not Path(arguments.trace).exists():
        try:
            named(arguments.trace)
            workload = {"kind": "trace", "name": arguments.trace}
        except (ValueError, TraceError):
            pass  # no public trace either: the file's own error is the better one
    numbers = {}
    for option in ("tensor_parallel_size", "block_size", "max_model_len"):
        text = getattr(arguments, option)
        if text is not None and not (text.isascii() and text.isdigit()):
            name = option.replace("_", "-")
            raise UserError(f"--{name}: must be one whole number with --trace, got {text!r}")
        numbers[option] = None if text is None else int(text)
    return {
        "name": "capacity",
        "model": arguments.model,
        "device": arguments.device,
        "gpu_memory_utilization": arguments.gpu_memory_utilization,
        "activation_bytes": int(arguments.activation_gib * GIB),
        "non_torch_bytes": int(arguments.non_torch_gib * GIB),
        "tensor_parallel_size": numbers["tensor_parallel_size"],
        "dtype": arguments.dtype,
        "kv_cache_dtype": arguments.kv_cache_dtype,
        "max_model_len": numbers["max_model_len"],
        "workload": workload,
        "allocator": {"kind": "paged", "block_size": numbers["block_size"]},
        "cost": {"kind": "roofline"},
    }


@contextmanager
def _folder(out: str | None) -> Iterator[Path]:
    """Where runs are kept: they are reused from a folder that is named, and forgotten else."""
    if out is not None:
        yield Path(out)
        return
    with tempfile.TemporaryDirectory(prefix="kvsim-capacity-") as folder:
        yield Path(folder)


@contextmanager
def _progress(num_lines: int) -> Iterator[Callable[[int, int], None]]:
    """A line on a terminal's standard error that says how far the search is."""
    from rich.console import Console

    console = Console(file=sys.stderr)
    with console.status("searching", spinner="line") as status:
        yield lambda line, runs: status.update(f"line {line + 1} of {num_lines}, {runs:,} runs")
