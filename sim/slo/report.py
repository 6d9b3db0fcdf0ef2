"""What kvsim capacity --slo shows: sentences and a table, or files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
from rich.console import Console
from rich.table import Table

from sim import figures
from sim.config.experiment import Experiment
from sim.figures.capacity_rates import draw_capacity_rates
from sim.results import files as results
from sim.results.files import UNMADE
from sim.runs.outcome import report_again, summary_table
from sim.slo.search import ladder
from sim.slo.steady import num_with_warm_up
from sim.slo.survey import Question
from sim.stored import open_folder

Row = Mapping[str, Any]
MIN_WIDTH = 180  # of a table that goes to a file or a pipe


def facts_of(question: Question, experiment: Experiment) -> dict[str, Any]:
    """What was asked, as plain data."""
    return {
        "experiment": experiment.name,
        "slo": [objective.text for objective in question.objectives],
        "num_measured": question.measured,
        "seeds": question.seeds,
        "agree": question.agree,
        "tolerance": question.tolerance,
        "price_per_hour": question.price_per_hour,
        "cost_source": experiment.cost_source,
    }


def print_capacities(experiment: Experiment, question: Question, rows: Sequence[Row]) -> None:
    """How it was searched, a table with a row a line, and what needs a sentence."""
    facts = facts_of(question, experiment)
    for line in experiment.budget_lines():
        print(line)
    print("\n".join(_method(facts)))
    if question.measured < question.needed:
        print(
            f"warning       with fewer than {question.needed:,} requests a run can end before its "
            "queue has grown: rates may be far too high"
        )
    heads = [
        "",
        "rate/s",
        "next",
        "of seeds",
        "fresh",
        "seeds' own",
        "limits",
        "queue grows",
        "preempts",
    ]
    heads += ["tokens/s", "at most", "falls from"]
    if facts["price_per_hour"] is not None:
        heads.append("per M tokens")
    table = Table(box=None, pad_edge=False, header_style="")
    for number, head in enumerate(heads):
        table.add_column(head, justify="left" if number in {0, 6} else "right")
    searched = [row for row in rows if row["status"] not in UNMADE]
    for row in searched:
        table.add_row(*_cells(row)[: len(heads)])
    console = Console(markup=False, highlight=False)
    if not console.is_terminal:
        console = Console(markup=False, highlight=False, width=MIN_WIDTH)
    if searched:
        console.print(table)
        print("\n".join(_legend(searched)))
    for row in rows:
        if row["reason"]:
            print(f"{row['label']}: {row['reason']}")


def _method(facts: Row) -> list[str]:
    measured, seeds = facts["num_measured"], facts["seeds"]
    total = num_with_warm_up(measured)
    rungs = ladder(1.0, facts["tolerance"]).rungs_per_doubling
    apart = 100 * (2 ** (1 / rungs) - 1)
    return [
        f"slo           {', '.join(facts['slo'])}, and a queue that does not grow",
        f"search        {measured:,} requests or more measured in a run, after a warm-up of "
        f"{total - measured:,}; {facts['agree']} of {seeds} seeds must sustain a rate; "
        f"rates {apart:.1f} % apart",
        f"times         {facts['cost_source']}",
    ]


def _cells(row: Row) -> list[str]:
    own = f"{_number(row['seeds_low_req_s'])} to {_number(row['seeds_high_req_s'])}"
    return [
        row["label"],
        _number(row["rate_req_s"]),
        _number(row["next_rate_req_s"]),
        f"{row['num_sustaining']}/{row['num_seeds']}",
        f"{row['num_fresh_sustaining']}/{row['num_fresh']}" if row["num_fresh"] else "-",
        own if row["num_seeds"] > 1 else "-",
        row["limited_by"] or "-",
        _number(row["diverges_from_req_s"]),
        _number(row["preempts_from_req_s"]),
        _number(row["goodput_tokens_s"]),
        _number(row["peak_goodput_tokens_s"]),
        _number(row["thrashes_from_req_s"]),
        _number(row.get("price_per_million_output_tokens")),
    ]


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"


def _legend(searched: Sequence[Row]) -> list[str]:
    """What the columns are."""
    row = searched[0]
    lines = [
        "rate/s was sustained, next was not, for what limits; queue grows, preempts: the lowest "
        "rate at which too few seeds do without.",
        "tokens/s: output tokens at that rate, tokens computed again not counted; at most: at any "
        "rate; falls from: where it is 5 % below that (thrashing).",
    ]
    if row["num_seeds"] > 1:
        lines.append(
            f"seeds' own: each seed's highest rate; the median seed lies in there with probability "
            f"{100 * row['median_confidence']:.4g} %."
        )
    if row["num_fresh"]:
        shares = {
            f"{other['num_fresh_sustaining']}/{other['num_fresh']}": other["sustaining_share_low"]
            for other in searched
            if other["num_fresh"]
        }
        known = ", ".join(f"{100 * shares[text]:.0f} % ({text})" for text in sorted(shares))
        lines.append(
            "fresh: of seeds that the search did not see; with 95 % confidence at least so many "
            f"runs sustain the rate: {known}."
        )
    if any(other.get("num_replicas") for other in searched):
        counts = sorted({other.get("num_replicas", 1) for other in searched})
        lines.append(
            "Rates, tokens/s and prices are of the whole fleet, all its replicas together "
            f"({', '.join(map(str, counts))})."
        )
    if any(other["num_seeds"] == 1 for other in searched):
        lines.append("One run at each rate where seeds change nothing: no interval.")
    return lines


def write_capacities(
    experiment: Experiment, rows: Sequence[Row], points: Sequence[Row], facts: Row, folder: Path
) -> list[Path]:
    """Write capacity_rates.csv, its points, the experiment and a figure; return the paths."""
    table, all_points = (_table(records) for records in (rows, points))
    results.write_csv(folder / "capacity_rates.csv", table)
    results.write_csv(folder / "capacity_points.csv", all_points)
    known = {
        "file": experiment.file,
        "overrides": list(experiment.overrides),
        "cost_errors": list(experiment.cost_errors),
        "description": experiment.description,
        "config": experiment.config,
    }
    results.write_json(folder / "experiment.json", {**facts, **known})
    is_searched = (~table["status"].isin(UNMADE)).any()
    drawn = draw_from_files(folder) if is_searched else []
    pages, problems = report_again(folder, experiment.report)
    if problems:
        raise results.ResultsError(problems[0])
    return [folder / "capacity_rates.csv", folder / "capacity_points.csv", *drawn, *pages]


def draw_from_files(folder: Path) -> list[Path]:
    """Draw the figure of what write_capacities has written. Raises ResultsError."""
    stored = open_folder(folder)
    return figures.save(
        lambda: draw_capacity_rates(stored.facts, stored.rates, stored.rate_points),
        folder / "figures",
        "capacity_rates",
    )


def _table(records: Sequence[Row]) -> pd.DataFrame:
    columns = dict.fromkeys(key for record in records for key in record)
    return summary_table([dict(record) for record in records], list(columns))
