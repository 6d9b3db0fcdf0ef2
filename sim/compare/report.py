"""What kvsim compare shows: a table and sentences, one object, or files."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
from rich.console import Console
from rich.table import Table

from sim import figures
from sim.compare.comparison import Comparison
from sim.compare.differences import differing_lines
from sim.compare.significance import ALPHA, num_pairs_needed
from sim.compare.verdicts import DEPENDENT, ONE_SEED, TOO_FEW, num_tested
from sim.figures.comparison import draw_comparison
from sim.results import files as results

MIN_WIDTH = 180  # of a table that goes to a file or a pipe
MAX_ROWS_SHOWN = 100
MAX_LISTED = 20


def facts_of(found: Comparison) -> dict[str, Any]:
    """A comparison as plain data."""
    return {
        "a": found.first.label,
        "b": found.second.label,
        "differ_in": differing_lines(found.first, found.second, found.by),
        "matched_by": found.by,
        "alpha": ALPHA,
        "num_tests": num_tested(found.rows),
        "rows": found.rows,
        "not_compared": [vars(alone) for alone in found.alone],
        "notes": found.notes,
    }


def print_comparison(facts: Mapping[str, Any]) -> None:
    """The sides, a table with a row a point and metric, and what to keep in mind."""
    print(f"A             {facts['a']}")
    print(f"B             {facts['b']}")
    for line in facts["differ_in"]:
        print(f"differ in     {line}")
    if facts["matched_by"]:
        print(f"matched by    {', '.join(facts['matched_by'])}")
    _print_table(facts["rows"], facts["matched_by"])
    for line in (*_legend(facts), *facts["notes"], *_alone_lines(facts["not_compared"])):
        print(line)


def _print_table(rows: Sequence[Mapping[str, Any]], by: Sequence[str]) -> None:
    heads = [column.rpartition(".")[2] for column in by]
    heads += ["metric", "runs", "A", "B", "B - A", "agree", "95 % interval", "%", "p", "of all"]
    table = Table(box=None, pad_edge=False, header_style="")
    for number, head in enumerate([*heads, "verdict"]):
        is_text = number <= len(by) or number == len(heads)
        table.add_column(head, justify="left" if is_text else "right", no_wrap=is_text)
    for row in rows[:MAX_ROWS_SHOWN]:
        table.add_row(*(row[column] for column in by), *_cells(row))
    console = Console(markup=False, highlight=False)
    if not console.is_terminal:
        console = Console(markup=False, highlight=False, width=MIN_WIDTH)
    console.print(table)
    if len(rows) > MAX_ROWS_SHOWN:
        print(f"… and {len(rows) - MAX_ROWS_SHOWN} more rows; --out DIR writes all")


def _cells(row: Mapping[str, Any]) -> list[str]:
    counts = {str(row["num_a"]), str(row["num_b"])}
    interval = "-" if row["low"] is None else f"{_signed(row['low'])} to {_signed(row['high'])}"
    relative = row["relative"]
    return [
        row["metric"],
        counts.pop() if len(counts) == 1 else f"{row['num_a']}, {row['num_b']}",
        _number(row["mean_a"]),
        _number(row["mean_b"]),
        _signed(row["difference"]),
        "-" if row["num_agree"] is None else f"{row['num_agree']}/{row['num_a']}",
        interval,
        "-" if relative is None else f"{100 * relative:+.1f}",
        _p(row["p"]),
        _p(row["p_holm"]),
        row["verdict"],
    ]


def _number(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:,.0f}" if abs(value) >= 10_000 else f"{value:.4g}"


def _signed(value: float | None) -> str:
    if value is None or value == 0:
        return _number(value)
    return ("+" if value > 0 else "") + _number(value)


def _p(value: float | None) -> str:
    return "-" if value is None else f"{value:.2g}"


def _legend(facts: Mapping[str, Any]) -> list[str]:
    """What was done to the rows that there are."""
    methods = {row["method"] for row in facts["rows"]}
    verdicts = {row["verdict"] for row in facts["rows"]}
    many = facts["num_tests"]
    lines = []
    if many:
        lines.append(
            f"of all: p corrected for the {many} rows that differ at all (Holm); found if at most "
            f"{facts['alpha']:g}. Intervals are of each row alone."
        )
    if "pairs" in methods:
        lines.append(
            "Runs of one seed are a pair; agree: pairs whose difference has the sign of the mean; "
            "p from flipping signs."
        )
    if "two samples" in methods:
        lines.append("No seeds in common: p from dealing runs out to the sides anew (Welch's t).")
    if "stretches" in methods:
        lines.append(
            "One run each: means of requests are of those that finished in both, in ten stretches "
            "of the trace; requests of one run are not independent. It holds for this trace alone."
        )
    if DEPENDENT in verdicts:
        lines.append(
            "A stretch whose difference tells that of the next one is no sample of its own."
        )
    if ONE_SEED in verdicts:
        lines.append("Of one run nothing is known of chance: several seeds, if the workload draws.")
    if TOO_FEW in verdicts:
        lines.append(
            f"Too few: even if all runs agreed, p would be too large for {many} tests; "
            f"{num_pairs_needed(many)} seeds could tell, or fewer --metric."
        )
    return lines


def _alone_lines(alone: Sequence[Mapping[str, str]]) -> list[str]:
    lines = [f"not compared: {a['side']}: {a['point']}: {a['reason']}" for a in alone[:MAX_LISTED]]
    if len(alone) > MAX_LISTED:
        lines.append(f"not compared: … and {len(alone) - MAX_LISTED} more; --json names all")
    return lines


def write_comparison(facts: Mapping[str, Any], folder: Path) -> list[Path]:
    """Write compare.csv, compare.json and a figure; return the paths. Raises ResultsError.

    What was not compared has a row without numbers.
    """
    columns = list(facts["rows"][0])
    alone = [
        {"metric": f"{a['side']}: {a['point']}", "verdict": f"not compared: {a['reason']}"}
        for a in facts["not_compared"]
    ]
    table = pd.DataFrame([*facts["rows"], *alone], columns=columns)
    for count in ("num_a", "num_b", "num_agree"):
        table[count] = table[count].astype("Int64")
    results.write_csv(folder / "compare.csv", table)
    results.write_json(folder / "compare.json", facts)
    drawn = figures.save(lambda: draw_comparison(facts), folder / "figures", "compare")
    return [folder / "compare.csv", folder / "compare.json", *drawn]


def as_json(facts: Mapping[str, Any]) -> str:
    """One line."""
    return json.dumps(facts, allow_nan=False, ensure_ascii=False)
