"""Where the memory goes against the rate of requests: a panel an allocator."""

from __future__ import annotations

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.patches import Patch

from sim.figures import style
from sim.figures.base import Drawing, FigureError, Results
from sim.figures.sweep import load_key
from sim.figures.tables import TERM_TITLES, TERMS, groups, mean_sd, numbers
from sim.figures.waste import ORDER

MAX_PANELS = 12
COLUMNS = 3


def draw_waste_vs_load(results: Results) -> Drawing:
    """Stacked areas of the shares of the pool, mean over the whole run; seeds averaged."""
    key = load_key(results.summary)
    if key is None:
        raise FigureError("no rate was swept; accepted: a sweep of workload.arrivals.rate")
    found = groups(results.summary, without=(key,))
    shown = found[:MAX_PANELS]
    tables = [_points(group.runs, key).assign(label=group.label) for group in shown]
    columns = min(COLUMNS, len(shown))
    rows = -(-len(shown) // columns)
    figure, body = style.new_figure(1.2 + 2.1 * rows)
    panels = body.subplots(rows, columns, sharex=True, sharey=True, squeeze=False)
    for ax in panels.flat[len(shown) :]:
        ax.set_visible(False)
    for ax, table, group in zip(panels.flat, tables, shown, strict=False):
        _areas(ax, table)
        ax.set_title(style.wrap(group.label, 34, 2), fontsize=8)
    for ax in panels[:, 0]:
        ax.set_ylabel("share of the slots (%)")
    for column in range(columns):
        lowest = max(row for row in range(rows) if row * columns + column < len(shown))
        panels[lowest, column].set_xlabel(style.clean(key, 40))
        panels[lowest, column].xaxis.set_tick_params(labelbottom=True)
    handles = [Patch(color=style.TERM_COLORS[term]) for term in ORDER]
    style.legend(body, handles, [TERM_TITLES[term] for term in ORDER], columns=6)
    style.head(figure, results.name, "where the KV slots are, by rate")
    notes = ["Means over the whole run, time without requests included."]
    if max(table["num_seeds"].max() for table in tables) > 1:
        notes.append("Means over seeds; error bars: standard deviation of token states.")
    if len(found) > MAX_PANELS:
        notes.append(f"The first {MAX_PANELS} of {len(found)} panels.")
    style.foot(figure, results.cost_source, notes)
    return Drawing(figure, pd.concat(tables, ignore_index=True))


def _points(runs: pd.DataFrame, key: str) -> pd.DataFrame:
    rates = numbers(runs, key)
    rows = []
    for rate in sorted(rates.dropna().unique()):
        at = runs[rates == rate]
        means = {term: mean_sd(numbers(at, f"{term}_frac")) for term in TERMS}
        shares: dict[str, float] = {f"{term}_frac": mean for term, (mean, _, _) in means.items()}
        _, spread, count = means["token_states"]
        shares["token_states_frac_sd"] = spread
        rows.append({"label": "", "rate": rate, "num_seeds": count, **shares})
    return pd.DataFrame(rows)


def _areas(ax: Axes, points: pd.DataFrame) -> None:
    shares = [points[f"{term}_frac"].fillna(0).to_numpy() for term in ORDER]
    rates = points["rate"].to_numpy()
    ax.stackplot(rates, shares, colors=[style.TERM_COLORS[term] for term in ORDER], linewidth=0)
    edge = rates, points["token_states_frac"].to_numpy()
    style.spread_bars(ax, edge, "black", yerr=points["token_states_frac_sd"])
    for rate in rates:  # where it was simulated; between them the areas are drawn straight
        ax.axvline(rate, color="white", linewidth=0.5, alpha=0.6)
    if len(rates) > 1:
        ax.set_xlim(rates.min(), rates.max())
    ax.set_ylim(0, 1)
    style.percent_axis(ax.yaxis)
    ax.grid(visible=False)
