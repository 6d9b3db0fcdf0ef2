"""Where the memory is over time, a panel a run."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.patches import Patch

from sim.figures import style
from sim.figures.base import Drawing, FigureError, Results
from sim.figures.tables import TERM_TITLES, TERMS, Group, buckets, edges, groups

MAX_PANELS = 6


def draw_timeline(results: Results) -> Drawing:
    """Stacked slots over time, of the first seed of each label."""
    shown = with_timeline(results)[:MAX_PANELS]
    tables = [_points(results, group) for group in shown]
    points = pd.concat(tables, ignore_index=True)
    columns = min(2, len(shown))
    rows = -(-len(shown) // columns)
    figure, body = style.new_figure(1.3 + 2.1 * rows if rows > 1 else 4.2)
    grid = body.subplots(rows, columns, sharex=True, sharey=True, squeeze=False)
    panels = list(grid.flat)
    for group, table, ax in zip(shown, tables, panels, strict=False):
        ax.set_title(style.clean(group.label, 100 // columns))
        _stack(ax, table)
    for ax in panels[len(shown) :]:
        ax.set_axis_off()
        panels[len(shown) - columns].xaxis.set_tick_params(labelbottom=True)
    for ax in grid[:, 0]:
        ax.set_ylabel("KV slots")
    for ax in panels[max(0, len(shown) - columns) : len(shown)]:
        ax.set_xlabel("time (s)")
    style.head(figure, results.name, "KV slots over time")
    handles = [Patch(color=style.TERM_COLORS[term]) for term in TERMS]
    style.legend(body, handles, [TERM_TITLES[term] for term in TERMS], columns=6)
    style.foot(figure, results.cost_source, small_print(results, shown, points))
    return Drawing(figure, points)


def with_timeline(results: Results) -> list[Group]:
    """The labels whose first run has a timeline. Raises FigureError if none has."""
    found = [group for group in groups(results.summary) if group.first_run in results.timelines]
    if not found:
        raise FigureError("no run has a timeline")
    return found


def small_print(results: Results, shown: Sequence[Group], points: pd.DataFrame) -> list[str]:
    """How wide the steps are, and how many runs are not drawn."""
    notes = []
    if len(points):
        notes.append(f"Each step is a mean over at most {points['width_s'].max():.3g} s.")
    num_runs = len(results.summary)
    if num_runs > len(shown):
        missing = num_runs - len(shown)
        notes.append(
            f"{len(shown)} of {num_runs} runs, the first seed of each; {missing} are left out."
        )
    return notes


def _points(results: Results, group: Group) -> pd.DataFrame:
    table = buckets(results.timelines[group.first_run], TERMS)
    table.insert(0, "run", group.first_run)
    table.insert(1, "label", group.label)
    return table


def _stack(ax: Axes, table: pd.DataFrame) -> None:
    style.count_axis(ax.yaxis)
    style.count_axis(ax.xaxis)
    if not len(table):
        style.empty_note(ax, "no time passed")
        return
    times, _ = edges(table, "free")
    layers = [edges(table, term)[1] for term in TERMS]
    colors = [style.TERM_COLORS[term] for term in TERMS]
    ax.stackplot(times, layers, colors=colors, step="post", linewidth=0)
    ax.margins(0)
