"""kvsim export: results for other programs. Part of the command line."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sim.commands.usage import UserError, add_command

if TYPE_CHECKING:
    from sim.stored import Stored

OWN_FOLDER = ""  # --perfetto without a file


def add_export(commands: Any) -> None:
    """Add kvsim export."""
    text = "write results as a trace for ui.perfetto.dev, or as tables"
    parser = add_command(commands, "export", text, export_command)
    parser.add_argument("folder", metavar="RESULTS", help="for example results/quickstart")
    parser.add_argument(
        "--perfetto",
        metavar="FILE",
        nargs="?",
        const=OWN_FOLDER,
        help="a trace of the runs in FILE, zipped if it ends in .gz; without FILE one a run, in "
        "RESULTS/perfetto/RUN.json.gz",
    )
    parser.add_argument("--csv", metavar="DIR", help="all tables as CSV in DIR")
    parser.add_argument("--parquet", metavar="DIR", help="all tables as Parquet in DIR")
    parser.add_argument(
        "--run", dest="runs", metavar="RUN", action="append", default=[], help="only this run"
    )


def export_command(arguments: argparse.Namespace) -> int:
    """kvsim export."""
    from sim.export.tables import write_tables
    from sim.results.files import ResultsError
    from sim.stored import open_folder

    chosen = arguments.perfetto, arguments.csv, arguments.parquet
    if all(value is None for value in chosen):
        raise UserError("export: says not what to write; accepted: --perfetto, --csv, --parquet")
    try:
        stored = open_folder(Path(arguments.folder))
        stored.check_runs()
        runs = stored.choose(arguments.runs)
        paths, missing = _traces(stored, runs, arguments.perfetto)
        for folder, suffix in ((arguments.csv, ".csv"), (arguments.parquet, ".parquet")):
            if folder is not None:
                paths += write_tables(Path(folder), stored, suffix, runs)
    except ResultsError as error:
        raise UserError(str(error)) from None
    for path in paths:
        print(path)
    for sentence in missing:
        print(f"note: {sentence}", file=sys.stderr)
    return 0


def _traces(stored: Stored, runs: Sequence[str], file: str | None) -> tuple[list[Path], list[str]]:
    """Write traces; their paths, and what is missing in them."""
    from sim.export.perfetto import write_trace

    if file is None:
        return [], []
    if file != OWN_FOLDER:
        return [Path(file)], write_trace(Path(file), stored, runs)
    paths, missing = [], []
    for run in runs:
        paths.append(stored.folder / "perfetto" / f"{run}.json.gz")
        missing += write_trace(paths[-1], stored, [run])
    return paths, missing
