"""The parts of an experiment's page. SECTIONS is their table, in order: heading and function.

A function takes what was read and how much may be shown, and gives the HTML below its heading, or
None where an experiment has no such part.
"""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Callable

import yaml
from markupsafe import Markup

from sim.report import claims
from sim.report.figures import figure_list
from sim.report.limits import Limits
from sim.report.player import player_section, recordings
from sim.report.reading import Read, text_of
from sim.report.tables import (
    Grid,
    Head,
    Line,
    Row,
    Table,
    bar_of,
    cell_text,
    head_of,
    heading,
    useful,
    whole_grid,
)
from sim.report.templates import render
from sim.report.text import number_text, visible
from sim.report.warnings import WARNING, warnings_of
from sim.results.files import ResultsError
from sim.stored.runs import Manifest

RATES = {
    "rate_req_s": "sustained, requests/s",
    "next_rate_req_s": "not sustained, requests/s",
    "seeds_low_req_s": "seeds' own: from",
    "seeds_high_req_s": "to",
    "limited_by": "limited by",
    "diverges_from_req_s": "queue grows from",
    "preempts_from_req_s": "preempts from",
    "goodput_tokens_s": "goodput, tokens/s",
    "peak_goodput_tokens_s": "at most",
    "thrashes_from_req_s": "thrashes from",
    "price_per_million_output_tokens": "price of a million output tokens",
    "status": "status",
    "reason": "reason",
}


MOST_LINES = 14  # of the budget that stand open


Section = Callable[[Read, Limits], str | None]


def warnings(read: Read, limits: Limits) -> Markup | None:
    """What to keep in mind."""
    lines = warnings_of(read)
    return render("warnings.html", lines=lines) if lines else None


def budget(read: Read, limits: Limits) -> Markup | None:
    """Where the size of the pool comes from, as kvsim run prints it."""
    lines = [line for line in read.facts.budget if not line.startswith(WARNING)]
    return render("budget.html", lines=lines, most=MOST_LINES) if lines else None


def runs(read: Read, limits: Limits) -> Markup | None:
    """A row for each run: the most useful columns, and then all."""
    table = read.runs
    if table is None or not table.rows:
        return None
    varied = [name for name in table.parameters() if table.varies(name)]
    columns = [*varied, *useful(table, without=varied)]
    if any(row.get("status") != "finished" for row in table.rows):
        columns.insert(0, "status")
    shown = table.rows[: limits.rows]
    lines = [
        Line(str(row.get("run")), [_cell(row, name, varied) for name in columns], bar_of(row))
        for row in shown
    ]
    more = len(table.rows) - len(shown)
    note = f"{more:,} more runs are in summary.csv." if more else ""
    heads = [_head(table, name) for name in columns]
    caption = "A run in a row. Shares of slots and counts of requests are means over time."
    grid = Grid(caption, "run", heads, lines, note, any(line.bar for line in lines))
    whole = None
    if limits.all_columns:
        whole = whole_grid(table, "Every column of summary.csv", ("run",), limits.rows)
    return render("runs.html", grid=grid, whole=whole)


def points(read: Read, limits: Limits) -> Markup | None:
    """Means over seeds, with their standard deviation and interval."""
    table = read.points
    if table is None or not table.rows or "num_seeds" not in table.columns:
        return None
    cells = table.columns[: table.columns.index("num_seeds")]
    columns = useful(table)
    heads = [Head("seeds", "num_seeds"), *map(head_of, columns)]
    if table.has_values("num_not_finished") and any(table.numbers("num_not_finished")):
        heads.insert(1, Head("not finished", "num_not_finished"))
    lines = []
    for row in table.rows[: limits.rows]:
        counts = [number_text(row.get(head.column)) for head in heads[: -len(columns) or None]]
        spreads = [_spread(row, name) for name in columns]
        lines.append(Line(heading(row, cells), [*counts, *spreads], bar_of(row)))
    more = len(table.rows) - len(lines)
    note = (
        "Mean ± standard deviation between seeds, and in brackets a 95 % bootstrap interval of the "
        "mean. All other columns are in points.csv."
    )
    note += f" {more:,} more points are there." if more else ""
    first = ", ".join(name.removeprefix("allocator.") for name in cells)
    caption = "A point in a row: the runs that differ in their seed only"
    has_bars = any(line.bar for line in lines)
    return render("table.html", grid=Grid(caption, first, heads, lines, note, has_bars))


def figures(read: Read, limits: Limits) -> Markup | None:
    """The drawn figures and the points in them."""
    return figure_list(read.figures, limits)


def replicas(read: Read, limits: Limits) -> Markup | None:
    """A row for each replica of each run."""
    grids = []
    for run, table in list(read.replicas.items())[: limits.rows // 50 + 1]:
        columns = useful(table)
        lines = [
            Line(heading(row, ["replica"]), [cell_text(row, name) for name in columns], bar_of(row))
            for row in table.rows[: limits.rows]
        ]
        grids.append(Grid(run, "replica", list(map(head_of, columns)), lines, has_bars=True))
    more = len(read.replicas) - len(grids)
    return render("replicas.html", grids=grids, more=more) if grids else None


def capacity(read: Read, limits: Limits) -> Markup | None:
    """The highest rates that a search of an SLO found."""
    table = read.rates
    if table is None or not table.rows:
        return None
    columns = [name for name in RATES if table.has_values(name)]
    heads = [Head(RATES[name], name, bool(table.numbers(name))) for name in columns]
    lines = [
        Line(heading(row, ["label"]), [number_text(row.get(name)) for name in columns])
        for row in table.rows[: limits.rows]
    ]
    caption = "The highest rate that each kind of memory sustains"
    grid = Grid(caption, "memory", heads, lines, "All columns are in capacity_rates.csv.")
    whole = None
    if limits.all_columns:
        caption = "Every column of capacity_rates.csv"
        whole = whole_grid(table, caption, ("label",), limits.rows)
    slo = read.facts.slo
    return render("capacity.html", grid=grid, whole=whole, slo=slo, facts=read.facts.model_dump())


def served_claims(read: Read, limits: Limits) -> Markup | None:
    """The verdicts on claims of papers that this experiment measures."""
    return claims.claims_table(read.claims) if read.claims else None


def times(read: Read, limits: Limits) -> Markup | None:
    """Which cost model gave the times, and how far it is off."""
    sources = [part for part in read.facts.cost_source.split("; ") if part]
    if not sources and (read.runs is None or "times_from" not in read.runs.columns):
        return render("times.html", sources=[], errors=[], is_known=True)
    errors = read.facts.cost_errors
    is_measured = any(source.startswith("measured:") for source in sources)
    is_known = errors is not None or not is_measured
    return render("times.html", sources=sources, errors=errors or [], is_known=is_known)


def made_with(read: Read, limits: Limits) -> Markup | None:
    """Versions, commit and machine of the runs, and the traces they read."""
    if not read.manifests:
        return None
    facts: dict[str, Counter[str]] = {}
    for manifest in read.manifests.values():
        for name, value in _facts_of(manifest):
            facts.setdefault(name, Counter())[value] += 1
    seconds = [manifest.get("wall_s") for manifest in read.manifests.values()]
    wall_s = sum(value for value in seconds if isinstance(value, float))
    num_runs = len(read.manifests)
    rows = [
        (name, [value if n == num_runs else f"{value} ({n} runs)" for value, n in counts.items()])
        for name, counts in facts.items()
    ]
    return render("made_with.html", rows=rows, wall_s=number_text(wall_s, 1, 1), num_runs=num_runs)


def rerun(read: Read, limits: Limits) -> Markup | None:
    """The command that makes these results again, and the resolved experiment."""
    config = read.facts.config
    text = yaml.safe_dump(config, sort_keys=False, allow_unicode=True, width=100) if config else ""
    cut = max(0, len(text) - limits.config_chars)
    text = text[: limits.config_chars]
    return render(
        "rerun.html",
        command=_command(read),
        name=read.facts.name,
        text_of_config=text,
        cut=cut,
        is_search=read.rates is not None,
    )


def _command(read: Read) -> str:
    """The command that made these results; "" if they do not say."""
    facts = read.facts
    words = ["kvsim", "run" if read.rates is None else "capacity", facts.file]
    for override in facts.overrides:
        words += ["--set", override]
    if read.rates is not None:
        words += ["--slo", ", ".join(facts.slo)]
        known = {"seeds": "seeds", "agree": "agree", "tolerance": "tolerance"}
        known |= {"num_measured": "requests", "price_per_hour": "price-per-hour"}
        for fact, option in known.items():
            if getattr(facts, fact) is not None:
                words += [f"--{option}", str(getattr(facts, fact))]
        words += [] if read.rates.has_values("offline") else ["--no-offline"]
        words += ["--out", f"results/{read.stored.folder.name}"]
    return shlex.join(words) if facts.file else ""


def _cell(row: Row, column: str, varied: list[str]) -> str:
    """A cell; of what is varied, the value as it was written."""
    value = row.get(column)
    if column in varied and value is not None:
        return f"{value:.12g}" if isinstance(value, float) else str(value)
    return cell_text(row, column)


def _head(table: Table, column: str) -> Head:
    title = head_of(column).title.rpartition("allocator.")[2]
    return Head(title, column, bool(table.numbers(column)))


def _spread(row: Row, column: str) -> str:
    """A mean with its spread, where there is one."""
    text = cell_text(row, column)
    low, high, deviation = (row.get(f"{column}_{end}") for end in ("low", "high", "sd"))
    if deviation is None or row.get(column) is None:
        return text
    sd, *ends = (cell_text({column: value}, column) for value in (deviation, low, high))
    return f"{text} ± {sd} [{ends[0]}, {ends[1]}]"


def _facts_of(manifest: Manifest) -> list[tuple[str, str]]:
    """What a manifest says of how its run was made."""
    found = [(name, text_of(manifest, name)) for name in ("commit", "python", "machine")]
    versions, trace = manifest.get("versions"), manifest.get("trace")
    if isinstance(versions, dict):
        found.append(("packages", ", ".join(f"{name} {of}" for name, of in versions.items())))
    if isinstance(trace, dict):
        found += [("trace", text_of(trace, "source")), ("its digest", text_of(trace, "digest"))]
    return [(name, value) for name, value in found if value]


def player(read: Read, limits: Limits) -> Markup | None:
    """The recorded runs, block by block."""
    try:
        fragment = player_section(recordings(read.stored))
    except ResultsError as error:
        return Markup("<p>{}</p>").format(visible(str(error)))
    # every text in it is escaped where it is written
    return None if fragment is None else Markup(fragment)


SECTIONS: dict[str, tuple[str, Section]] = {
    "warnings": ("What to keep in mind", warnings),
    "budget": ("The budget", budget),
    "capacity": ("Rates within the limits", capacity),
    "points": ("Points with their spread", points),
    "runs": ("Runs", runs),
    "player": ("Block map", player),
    "figures": ("Figures", figures),
    "replicas": ("Replicas", replicas),
    "claims": ("Claims that this serves", served_claims),
    "times": ("Where the times come from", times),
    "made-with": ("What it was made with", made_with),
    "rerun": ("How to make it again", rerun),
}
