"""Engines side by side: what the slots hold, who runs, who is preempted, who waits how long."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.patches import Patch

from sim.figures import style
from sim.figures.base import Drawing, FigureError, Results
from sim.figures.tables import TERM_TITLES, TERMS, Group, groups, is_empty, mean_sd, numbers
from sim.figures.waste import MAX_BARS, ORDER

SHARES = [f"{term}_frac_queued" for term in TERMS]
SPREAD = "token_states_frac_queued"  # the share whose spread is drawn
METRICS = ("num_running_mean", "num_preemptions", "ttft_s_p50", "ttft_s_p90")
WIDTHS = (3.4, 1.1, 1.1, 1.5)
MIN_LABELLED = 0.07  # a share whose number fits into its bar
NAME_COLUMNS = 24


def draw_engines(results: Results) -> Drawing:
    """A row an engine, those with most requests running first; seeds averaged."""
    if "engine" not in results.summary or results.summary["engine"].nunique() < 2:
        raise FigureError("needs a sweep of engine")
    points = _points(groups(results.summary))
    shown = points.head(MAX_BARS)
    figure, body = style.new_figure(1.5 + 0.26 * len(shown))
    axes = body.subplots(1, len(WIDTHS), sharey=True, width_ratios=WIDTHS)
    _shares(axes[0], shown)
    _bars(axes[1], shown, "num_running_mean", ("running", "requests, mean"))
    _bars(axes[2], shown, "num_preemptions", ("preemptions", "whole run"))
    _times(axes[3], shown)
    axes[0].set_yticks(np.arange(len(shown)), [_name(row) for _, row in shown.iterrows()])
    axes[0].set_ylim(len(shown) - 0.4, -0.6)
    handles = [Patch(color=style.TERM_COLORS[term]) for term in ORDER]
    style.legend(body, handles, [TERM_TITLES[term] for term in ORDER], columns=6)
    style.head(figure, results.name, "the same requests through each engine's memory and scheduler")
    style.foot(figure, results.cost_source, _notes(points))
    return Drawing(figure, shown)


def _points(found: Sequence[Group]) -> pd.DataFrame:
    """One row an engine, or more if something else was varied too."""
    names = [str(group.runs["engine"].iloc[0]) for group in found]
    rows = []
    for name, group in zip(names, found, strict=True):
        runs = group.runs
        row: dict[str, object] = {"label": name if names.count(name) == 1 else group.label}
        means = {column: mean_sd(numbers(runs, column)) for column in (*SHARES, *METRICS)}
        row |= {column: mean for column, (mean, _, _) in means.items()}
        row |= {f"{column}_sd": means[column][1] for column in (SPREAD, *METRICS)}
        row["num_seeds"] = runs["seed"].nunique() if "seed" in runs else 1
        row["not_served"] = _not_served(runs)
        row["reason"] = next((str(text) for text in runs["reason"] if not is_empty(text)), np.nan)
        rows.append(row)
    table = pd.DataFrame(rows)
    order = table["num_running_mean"].sort_values(
        ascending=False, na_position="last", kind="stable"
    )
    return table.loc[order.index].reset_index(drop=True)


def _not_served(runs: pd.DataFrame) -> float:
    """The share of requests that did not finish; NaN of an engine that was not run."""
    asked = numbers(runs, "num_requests")
    return mean_sd(1 - numbers(runs, "num_finished") / asked)[0]


def _name(row: pd.Series) -> str:
    """An engine's name, and below it what share of the requests it does not serve."""
    name = style.clean(str(row["label"]), NAME_COLUMNS)
    share = row["not_served"]
    return f"{name}\n{100 * share:.3g} % not served" if share > 0 else name


def _shares(ax: Axes, points: pd.DataFrame) -> None:
    rows, left = np.arange(len(points)), np.zeros(len(points))
    for term in ORDER:
        widths = points[f"{term}_frac_queued"].fillna(0).to_numpy()
        color = style.TERM_COLORS[term]
        ax.barh(rows, widths, 0.74, left, color=color, edgecolor="white", linewidth=0.5)
        for row, width, start in zip(rows, widths, left, strict=True):
            if width >= MIN_LABELLED:
                text = ax.text(start + width / 2, float(row), f"{100 * width:.0f}", fontsize=8)
                text.set(ha="center", va="center", color=style.text_color(color))
        left = left + widths
    ends = points[SPREAD].to_numpy(float)
    style.spread_bars(ax, (ends, rows + 0.27), "black", xerr=points[f"{SPREAD}_sd"])
    for row in rows[left == 0]:
        reason = points["reason"].iloc[row]
        why = "no request waited" if is_empty(reason) else str(reason)
        ax.text(0.01, float(row), style.wrap(why, 48, 2), va="center", fontsize=6.5).set_color(
            style.NOTE_COLOR
        )
    ax.set_xlim(0, 1)
    style.percent_axis(ax.xaxis)
    ax.set_title("while requests wait")
    ax.set_xlabel("share of the KV slots (%)")
    ax.grid(visible=False, axis="y")


def _bars(ax: Axes, points: pd.DataFrame, column: str, titles: tuple[str, str]) -> None:
    values, spread = points[column], points[f"{column}_sd"]
    known = values.notna().to_numpy()
    rows = np.arange(len(values))
    ax.barh(rows, values.fillna(0), 0.6, color=style.PALETTE[5])
    style.spread_bars(ax, (values, rows), "black", xerr=spread)
    ends = values + spread.fillna(0)
    for row in rows[known]:
        ax.text(ends.iloc[row], float(row), f" {values.iloc[row]:,.3g}", va="center", fontsize=8)
    ax.set_xlim(0, 1.6 * float(ends.fillna(0).max()) or 1)  # room for the numbers
    ax.set_title(titles[0])
    ax.set_xlabel(titles[1])
    style.count_axis(ax.xaxis)
    ax.grid(visible=False, axis="y")


def _times(ax: Axes, points: pd.DataFrame) -> None:
    """Median and 90th percentile of the time to the first token, joined by a line."""
    median, late = (points[f"ttft_s_{which}"].to_numpy() for which in ("p50", "p90"))
    rows = np.arange(len(points))
    for name, seconds in (("p50", median), ("p90", late)):
        spread = points[f"ttft_s_{name}_sd"]
        style.spread_bars(ax, (seconds, rows), style.PALETTE[0], xerr=spread)
    ax.hlines(rows, median, late, color=style.NOTE_COLOR, linewidth=1)
    ax.plot(median, rows, "o", color=style.PALETTE[0], markersize=5)
    ax.plot(late, rows, "o", color=style.PALETTE[0], markerfacecolor="white", markersize=5)
    shortest, longest = points["ttft_s_p50"].min(), points["ttft_s_p90"].max()
    if 0 < 10 * shortest < longest:
        ax.set_xscale("log")
    ax.set_title("time to first token")
    ax.set_xlabel("s")
    style.count_axis(ax.xaxis)
    ax.grid(visible=False, axis="y")


def _notes(points: pd.DataFrame) -> list[str]:
    notes = [
        "Engines are ordered by the requests that run at a time. Time to first token: median "
        "(filled) and 90th percentile (hollow)."
    ]
    if points["num_seeds"].max() > 1:
        notes.append(
            "Means over seeds; error bars: standard deviation, of shares that of token states."
        )
    if len(points) > MAX_BARS:
        notes.append(f"The first {MAX_BARS} of {len(points)} rows; all are in summary.csv.")
    return notes
