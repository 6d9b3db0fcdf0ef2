"""kvsim capacity --slo: the highest rate within a service level objective. Part of the command line."""

from __future__ import annotations

import argparse
import json
import math
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sim.usage import UserError

if TYPE_CHECKING:
    from sim.experiment import Experiment
    from sim.slo.lines import Line
    from sim.slo.objectives import Objective
    from sim.slo.rates import Bench, Row, Sampling
    from sim.yaml_nodes import Document

MAX_SEEDS = 100
MAX_JOBS = 1024
GIB = 1 << 30
ACCEPTED = 'accepted: --slo "p99 ttft < 1 s, p99 tpot < 50 ms"'


def add_slo_options(parser: argparse.ArgumentParser) -> None:
    """The options of kvsim capacity that belong to --slo."""
    search = parser.add_argument_group("the highest rate within an SLO")
    search.add_argument("file", metavar="FILE", nargs="?", help="an experiment (YAML)")
    search.add_argument("--slo", metavar="TEXT", help=f"limits: {ACCEPTED[16:]}")
    search.add_argument("--trace", metavar="FILE", help="instead of an experiment: requests, by name too")
    search.add_argument(
        "--set", dest="overrides", metavar="A.B=C", action="append", default=[], help="override a key"
    )
    search.add_argument("--seeds", metavar="N", type=int, default=5, help="runs at each rate (5)")
    search.add_argument("--agree", metavar="K", type=int, help="of them must meet it (four fifths)")
    search.add_argument("--tolerance", metavar="X", type=float, default=0.05, help="of rates (0.05)")
    search.add_argument("--requests", metavar="N", type=int, help="measured in a run, fewer or more")
    search.add_argument("--price-per-hour", metavar="X", type=float, help="of one GPU")
    search.add_argument("-j", dest="jobs", metavar="N", type=int, default=1, help="runs at a time (1)")


def slo_command(arguments: argparse.Namespace) -> int:
    """kvsim capacity --slo."""
    from sim.results import ResultsError
    from sim.slo.lines import searched
    from sim.slo.report import print_capacities, write_capacities
    from sim.yaml_nodes import ConfigError
    from workloads.trace import TraceError

    objectives = _checked(arguments)
    try:
        document, folder = _document(arguments)
        experiment, lines = searched(document, folder)
        with _folder(arguments.out) as out:
            rows, points = _search(arguments, objectives, lines, out)
            facts = _facts(arguments, experiment, objectives)
            paths = [] if arguments.out is None else write_capacities(experiment, rows, points, facts, out)
    except (ConfigError, TraceError, ResultsError) as error:
        raise UserError(str(error)) from None
    if arguments.json:
        print(json.dumps({**facts, "capacity": rows}, allow_nan=False, ensure_ascii=False))
    else:
        print_capacities(experiment, facts, rows)
        for path in paths:
            print(path)
    return 0 if any(row["status"] in {"found", "always"} for row in rows) else 1


def _checked(arguments: argparse.Namespace) -> tuple[Objective, ...]:
    """The objectives, when all else that was given can be, too. Raises UserError."""
    from sim.slo.objectives import MAX_MEASURED, read_objectives

    if arguments.slo is None:
        raise UserError(f"capacity: {'FILE' if arguments.file else '--trace'} needs --slo; {ACCEPTED}")
    if (arguments.file is None) == (arguments.trace is None):
        raise UserError("capacity: --slo needs an experiment (FILE) or --trace FILE, and only one")
    try:
        objectives = read_objectives(arguments.slo)
    except ValueError as error:
        raise UserError(f"--slo: {error}") from None
    if arguments.agree is None:
        arguments.agree = math.ceil(arguments.seeds * 0.8)
    for option, value, most in (
        ("--seeds", arguments.seeds, MAX_SEEDS),
        ("--agree", arguments.agree, arguments.seeds),
        ("--requests", arguments.requests or 1, MAX_MEASURED),
        ("-j", arguments.jobs, MAX_JOBS),
    ):
        if not 1 <= value <= most:
            raise UserError(f"{option}: must be 1 to {most:,}, got {value}")
    if arguments.requests == 0:
        raise UserError(f"--requests: must be 1 to {MAX_MEASURED:,}, got 0")
    if not 0.001 <= arguments.tolerance <= 1:
        raise UserError(f"--tolerance: must be 0.001 to 1, got {arguments.tolerance:g}")
    price = arguments.price_per_hour
    if price is not None and not 0 <= price < 1e9:
        raise UserError(f"--price-per-hour: must be at least 0 and below 1e9, got {price:g}")
    return objectives


def _document(arguments: argparse.Namespace) -> tuple[Document, Path]:
    """The experiment that is meant, and the folder of its paths. Raises ConfigError."""
    from sim.experiment import override_all
    from sim.yaml_nodes import Document, read_document

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


def _search(
    arguments: argparse.Namespace,
    objectives: tuple[Objective, ...],
    lines: Sequence[Line],
    folder: Path,
) -> tuple[list[Row], list[Row]]:
    """A row a line, and all points. Raises TraceError, and UserError for too short a trace."""
    from rich.console import Console

    from sim.runner import RunOptions
    from sim.slo.rates import Bench

    console = Console(file=sys.stderr)
    total = 0
    rows: list[Row] = []
    points: list[Row] = []
    with console.status("searching", spinner="line") as status:

        def count(runs: int) -> None:
            nonlocal total
            total += runs
            status.update(f"line {len(rows) + 1} of {len(lines)}, {total:,} runs")

        bench = Bench(folder, RunOptions(arguments.jobs), count)
        for line in lines:
            row, found = _search_line(arguments, objectives, line, bench)
            begin = {**line.cells, "bound": line.bound, "label": line.label}
            rows.append({**begin, **row})
            points += [{**begin, **point} for point in found]
    return rows, points


def _search_line(
    arguments: argparse.Namespace,
    objectives: tuple[Objective, ...],
    line: Line,
    bench: Bench,
) -> tuple[Row, list[Row]]:
    from sim.slo.capacity import Prices, capacity_row
    from sim.slo.lines import START_RATE, own_rate
    from sim.slo.rates import Rates, RunError
    from sim.slo.search import ladder

    if line.spec is None:
        return {"status": "skipped", "reason": line.skip}, []
    sampling = _sampling(arguments, objectives, line)
    config = line.spec.config
    start = own_rate(config["workload"]) or START_RATE
    rates = Rates(line, ladder(start, arguments.tolerance), sampling, bench)
    prices = None
    if arguments.price_per_hour is not None:
        prices = Prices(arguments.price_per_hour, config["tensor_parallel_size"])
    agree = math.ceil(arguments.agree * len(sampling.seeds) / arguments.seeds)
    try:
        row = capacity_row(rates, agree, prices)
    except RunError as error:
        row = {"status": "error", "reason": str(error)}
    return row, rates.table()


def _sampling(
    arguments: argparse.Namespace, objectives: tuple[Objective, ...], line: Line
) -> Sampling:
    """The seeds and requests of a line. Raises UserError if its trace has too few."""
    from sim.runspec import load_trace
    from sim.slo.lines import START_RATE, at_rate, num_windows
    from sim.slo.objectives import num_measured
    from sim.slo.rates import Sampling
    from sim.slo.steady import num_with_warm_up

    assert line.spec is not None
    needed = arguments.requests or num_measured(objectives)
    count = num_with_warm_up(needed)
    spec = at_rate(line.spec, START_RATE, 0, count)
    found = len(load_trace(spec.config["workload"], Path(spec.folder), 0))
    if found < count:
        raise UserError(
            f"capacity: {needed:,} requests are to be measured after a warm-up of "
            f"{count - needed:,}, and the workload has {found:,}; accepted: a longer trace, a lower "
            f"percentile, or --requests {max(1, found * needed // count - 1)}"
        )
    seeds = tuple(range(num_windows(line.spec, arguments.seeds, count)))
    return Sampling(seeds, found, objectives)


def _facts(
    arguments: argparse.Namespace, experiment: Experiment, objectives: Sequence[Objective]
) -> Row:
    """What was asked."""
    from sim.slo.objectives import num_measured

    return {
        "experiment": experiment.name,
        "slo": [objective.text for objective in objectives],
        "num_measured": arguments.requests or num_measured(objectives),
        "seeds": arguments.seeds,
        "agree": arguments.agree,
        "tolerance": arguments.tolerance,
        "price_per_hour": arguments.price_per_hour,
        "cost_source": experiment.cost_source,
    }
