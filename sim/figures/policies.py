"""Hit rate against the capacity of a prefix cache, a line a policy, between floor and ceiling."""

from __future__ import annotations

import pandas as pd
from matplotlib.axes import Axes

from sim.figures import style
from sim.figures.base import Drawing, FigureError, Results

# bounds are black and grey, so that what a system could do has the colours
BOUNDS = {
    "unbounded": ("black", ":"),
    "clairvoyant": ("black", "-"),
    "fifo": (style.NOTE_COLOR, "--"),
    "none": (style.NOTE_COLOR, ":"),
}
PANEL_IN = 2.7
MAX_TRACES = 12
NOTE = (
    "Requests are served one after the other, in order of arrival; leaves alone are evicted. "
    "Hit rate: tokens of whole blocks found, of all prompt tokens. clairvoyant knows the trace's "
    "future: no policy finds more in this order. Lines may lie on each other, as lru and fifo do."
)


def draw_prefix_policies(results: Results) -> Drawing:
    """The replays of an experiment. Raises FigureError if it has none."""
    summary = results.summary
    if "policy" not in summary or "hit_rate" not in summary:
        raise FigureError("needs an experiment with policies")
    made = summary["status"] == "finished"
    left_out = [f"{trace}: skipped" for trace in summary["trace"][~made].unique()]
    drawing = draw_policies(summary[made].reset_index(drop=True), results.name)
    style.foot(drawing.figure, results.cost_source or None, [*_notes(summary[made]), *left_out])
    return drawing


def draw_policies(table: pd.DataFrame, name: str = "prefix cache") -> Drawing:
    """One panel a trace. table is what sim.policies.sweep makes."""
    traces = list(dict.fromkeys(table["trace"]))[:MAX_TRACES]
    policies = list(dict.fromkeys(table["policy"]))
    figure, body = style.new_figure(0.9 + PANEL_IN * len(traces))
    panels = body.subplots(len(traces), 1, squeeze=False)[:, 0]
    for axes, trace in zip(panels, traces, strict=True):
        _draw_trace(axes, table[table["trace"] == trace], policies)
    handles, labels = panels[0].get_legend_handles_labels()
    style.legend(body, handles, labels, style.legend_columns(labels))
    style.head(figure, name, "hit rate against capacity, by eviction policy")
    style.foot(figure, None, _notes(table))
    shown = table[table["trace"].isin(traces)]
    return Drawing(figure, shown[["trace", "policy", "capacity_tokens", "hit_rate"]])


def _notes(table: pd.DataFrame) -> list[str]:
    count = table["trace"].nunique()
    return [NOTE, f"The first {MAX_TRACES} of {count} traces." if count > MAX_TRACES else ""]


def _draw_trace(axes: Axes, table: pd.DataFrame, policies: list[str]) -> None:
    online = [name for name in policies if name not in BOUNDS]
    for name in policies:
        mine = table[table["policy"] == name]
        if name in BOUNDS:
            color, line = BOUNDS[name]
            marker = ""
        else:
            color, line = style.color_of(online.index(name)), "-"
            marker = style.MARKERS[online.index(name) % len(style.MARKERS)]
        axes.plot(
            mine["capacity_tokens"],
            mine["hit_rate"],
            color=color,
            linestyle=line,
            marker=marker,
            markersize=3.5,
            label=name,
        )
    first = table.iloc[0]
    axes.set_title(
        f"{style.clean(str(first['trace']), 60)}: {first['num_requests']:,} requests, "
        f"blocks of {first['block_size']}"
    )
    axes.set_xscale("log")
    axes.set_xlabel("capacity (tokens)")
    axes.set_ylabel("hit rate (%)")
    style.count_axis(axes.xaxis)
    style.percent_axis(axes.yaxis)
    style.from_zero(axes)
