"""What `kvsim run` and `kvsim plot` do around the runs: summary, figures, and the table shown."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
from rich.console import Console
from rich.table import Table

from sim import figures, report
from sim.config.experiment import Experiment
from sim.executors import run_experiment
from sim.metrics import points
from sim.policies.text import policy_lines
from sim.report.warnings import extrapolation_warnings, sampled_warnings
from sim.results import files as results
from sim.results.files import UNMADE
from sim.results.tables import summary_to_arrow
from sim.runs.progress import showing
from sim.runs.runner import RunOptions
from sim.stored import open_folder
from sim.stored.runs import read_manifest

MAX_ROWS_SHOWN = 60
MIN_WIDTH = 180  # of a table that goes to a file or a pipe
UNKEPT = "; the tables of runs are not here: run the experiment again"


@dataclass(frozen=True)
class Outcome:
    """What a finished experiment has to show: rows, files, and what went wrong, in sentences."""

    rows: list[dict[str, Any]]
    files: list[Path]
    problems: list[str]


def run_and_write(
    experiment: Experiment, folder: Path, options: RunOptions, draws: bool = True
) -> Outcome:
    """Execute an experiment's runs and write all of its files below folder.

    Results are written before the first figure is drawn; draws says whether any is. Raises
    ResultsError if they cannot be, ExecutorError if a cluster cannot make the runs.
    """
    specs = experiment.runs()
    with showing(options.progress, experiment.name, len(specs)) as on_done:
        rows = run_experiment(experiment, folder, options, on_done)
    run_ids = [spec.run_id for spec in specs]
    for run_id, row in zip(run_ids, rows, strict=True):
        if row["status"] in UNMADE:
            results.set_aside(folder, run_id)
    columns = max(rows, key=len)  # a run that raised or was skipped has no metrics
    tables = _write_summary(folder / "summary.csv", summary_table(rows, list(columns)))
    tables += _write_points(folder / "points.csv", rows, list(specs[0].cells))
    _write_facts(folder, experiment, run_ids)
    problems = [
        f"{row['run']}: {row['status']}: {row['reason']}"
        for row in rows
        if row["status"] not in {"finished", "skipped"}
    ]
    if not draws:
        return Outcome(rows, tables, problems)
    figures.remove(folder / "figures", besides=experiment.figures)
    paths, undrawn = draw_again(folder, list(experiment.figures))
    pages, unwritten = report_again(folder, experiment.report)
    return Outcome(rows, [*tables, *paths, *pages], problems + undrawn + unwritten)


def _write_facts(folder: Path, experiment: Experiment, run_ids: list[str]) -> None:
    """Write experiment.json, and the keys of the runs of the summary. Raises ResultsError."""
    facts = {
        "name": experiment.name,
        "description": experiment.description,
        "figures": list(experiment.figures),
        "runs": run_ids,
        "cost_source": experiment.cost_source,
        "cost_errors": list(experiment.cost_errors),
        "file": experiment.file,
        "overrides": list(experiment.overrides),
        "budget": experiment.budget_lines(),
        "config": experiment.config,
    }
    results.write_json(folder / "experiment.json", facts)
    made = {run_id: read_manifest(folder / "runs" / run_id) for run_id in run_ids}
    keys = {run_id: manifest and manifest["key"] for run_id, manifest in made.items()}
    results.write_json(folder / "runs" / "keys.json", keys)


def report_again(folder: Path, is_asked: bool) -> tuple[list[Path], list[str]]:
    """Write report.html if it is asked for, or there: an old one would show other numbers.

    Returns its path, or why there is none.
    """
    if not is_asked and not (folder / report.NAME).exists():
        return [], []
    try:
        return [report.write_report(folder).path], []
    except results.ResultsError as error:
        return [], [f"report: {error}"]


def _write_summary(path: Path, table: pd.DataFrame) -> list[Path]:
    """Write the summary as CSV, and beside it as Parquet, with its types; the paths written.

    Raises ResultsError.
    """
    results.write_csv(path, table)
    stored = summary_to_arrow(table)
    typed = path.with_suffix(".parquet")
    results.write_parquet(typed, stored.schema, [stored])
    return [path, typed]


def _write_points(path: Path, rows: list[dict[str, Any]], cells: list[str]) -> list[Path]:
    """Write means over seeds, if there are several; the paths written. Raises ResultsError."""
    if not points.has_several_seeds(rows):
        results.remove(path)  # of an earlier run
        return []
    own = [cell for cell in cells if cell not in points.OWN]
    results.write_csv(path, points.points_table(rows, own))
    return [path]


def summary_table(rows: Sequence[Mapping[str, Any]], columns: Sequence[str]) -> pd.DataFrame:
    """The rows as a table in which counts stay whole numbers where some rows have none."""
    table = pd.DataFrame(rows, columns=list(columns))
    for name in columns:
        known = {type(row[name]) for row in rows if row.get(name) is not None}
        if known == {int}:
            table[name] = table[name].astype("Int64")
    return table


def draw_again(folder: Path, names: Sequence[str] | None) -> tuple[list[Path], list[str]]:
    """Draw figures from files alone; return their paths, and a sentence for each that failed.

    names None: the figures of the experiment. Without the tables of runs, as in results that were
    committed, those that need the summary alone. Raises ValueError for an unknown name.
    """
    if names is not None and not names:
        return [], []
    stored = open_folder(folder)
    stored.check_runs_if_any()
    read = figures.tables_of(stored)
    paths: list[Path] = []
    problems: list[str] = []
    for name in stored.facts.figures if names is None else names:
        try:
            paths += figures.draw(name, read, folder / "figures")
        except (figures.FigureError, results.ResultsError) as error:
            problems.append(f"figure {name}: {error}{'' if stored.has_runs else UNKEPT}")
    return paths, problems


def print_outcome(experiment: Experiment, outcome: Outcome) -> None:
    """A table of the runs, what to keep in mind of them, and the files, on stdout."""
    if experiment.is_replay:
        print("\n".join(_replay_lines(outcome.rows)))
    else:
        _print_runs(outcome)
    of_rows = extrapolation_warnings(outcome.rows) + sampled_warnings(outcome.rows)
    for warning in (*experiment.warnings, *of_rows):
        print(f"warning: {warning}")
    for path in outcome.files:
        print(path)


def _replay_lines(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Hit rates by trace; traces without any are warned of."""
    table = pd.DataFrame([row for row in rows if row["status"] not in UNMADE])
    if not len(table):
        return []
    return [line for _, own in table.groupby("trace", sort=False) for line in policy_lines(own)]


def _print_runs(outcome: Outcome) -> None:
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("run", no_wrap=True)
    for name in ("token %", "reserv. %", "intern. %", "extern. %", "free %"):
        table.add_column(name, justify="right")
    for name in ("running", "finished", "preempt.", "TTFT p50 s", "TPOT p50 s", "req/s"):
        table.add_column(name, justify="right")
    for row in outcome.rows[:MAX_ROWS_SHOWN]:
        table.add_row(*_cells(row))
    Console(width=MIN_WIDTH if not sys.stdout.isatty() else None).print(table)
    if len(outcome.rows) > MAX_ROWS_SHOWN:
        print(f"… and {len(outcome.rows) - MAX_ROWS_SHOWN} more runs, in summary.csv")


def _cells(row: dict[str, Any]) -> list[str]:
    terms = ("token_states", "reserved", "internal", "external", "free")
    cells = [str(row["run"])]
    if row["status"] in UNMADE:
        return [*cells, row["status"]]
    cells += [_number(row[f"{term}_frac"], 100, 1) for term in terms]
    cells.append(_number(row["num_running_mean"], 1, 1))
    cells.append(f"{row['num_finished']}/{row['num_requests']}")
    cells.append(str(row["num_preemptions"]))
    cells += [_number(row[name], 1, 3) for name in ("ttft_s_p50", "tpot_s_p50")]
    return [*cells, _number(row["throughput_req_s"], 1, 2)]


def _number(value: float | None, factor: float, digits: int) -> str:
    return "-" if value is None else f"{value * factor:,.{digits}f}"
