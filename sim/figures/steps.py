"""From Orca to vLLM step by step: which of them makes how many more requests run at a time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.patches import Patch

from sim.figures import style
from sim.figures.base import Drawing, FigureError, Results
from sim.figures.tables import mean_sd, numbers, parameters, value_text

METRIC = "num_running_mean_queued"
TOKENS = "token_states_frac_queued"
MAX_PANELS = 6
START = "Orca (Max)"

# what a step changes, in the order of the legend
CAUSES = {
    "length of the reservation": style.TERM_COLORS["reserved"],
    "buddy rounding": style.TERM_COLORS["internal"],
    "holes": style.TERM_COLORS["external"],
    "paging": style.TERM_COLORS["token_states"],
    "sharing": style.TERM_COLORS["cached"],
}


class Step(NamedTuple):
    """A kind of memory, what led to it, and what its runs are called in the summary."""

    title: str
    cause: str
    where: Mapping[str, str]


def _contiguous(title: str, cause: str, reservation: str, placement: str) -> Step:
    is_compacted = placement == "compaction"
    cells = {
        "allocator": "contiguous",
        "allocator.reservation": reservation,
        "allocator.placement": "first_fit" if is_compacted else placement,
        "allocator.compaction": str(is_compacted),
    }
    return Step(title, cause, cells)


FIRST = _contiguous("max, buddy", START, "max", "buddy")
LAST = (
    Step("paged", "paging", {"allocator": "paged"}),
    Step("paged, prefixes shared", "sharing", {"allocator": "prefix"}),
)
LENGTH, ROUNDING, HOLES, *_ = CAUSES
ORDERS = {
    "shorter reservations first": (
        FIRST,
        _contiguous("pow2, buddy", LENGTH, "pow2", "buddy"),
        _contiguous("oracle, buddy", LENGTH, "oracle", "buddy"),
        _contiguous("oracle, first fit", ROUNDING, "oracle", "first_fit"),
        _contiguous("oracle, compacted", HOLES, "oracle", "compaction"),
        *LAST,
    ),
    "closer placement first": (
        FIRST,
        _contiguous("max, first fit", ROUNDING, "max", "first_fit"),
        _contiguous("max, compacted", HOLES, "max", "compaction"),
        _contiguous("pow2, compacted", LENGTH, "pow2", "compaction"),
        _contiguous("oracle, compacted", LENGTH, "oracle", "compaction"),
        *LAST,
    ),
}


def draw_steps(results: Results) -> Drawing:
    """Bars that begin where the one before ends, in two orders; a row of panels a workload."""
    points = pd.concat([_points(load, runs) for load, runs in _loads(results.summary)])
    loads = list(dict.fromkeys(points["load"]))[:MAX_PANELS]
    figure, body = style.new_figure(1.2 + 2.5 * len(loads))
    axes = body.subplots(len(loads), 2, squeeze=False)
    limit = 1.7 * float(points[METRIC].max()) or 1  # room for the numbers
    for load, row in zip(loads, axes, strict=True):
        for order, ax in zip(ORDERS, row, strict=True):
            _bars(ax, points[(points["load"] == load) & (points["order"] == order)])
            ax.set_xlim(0, limit)
            ax.set_title(f"{load}, {order}" if len(loads) > 1 else order, fontsize=8.5)
    for ax in axes[-1]:
        ax.set_xlabel("requests running while others wait, mean")
    style.head(figure, results.name, "which step makes how many more requests run")
    handles = [Patch(color=color) for color in CAUSES.values()]
    style.legend(body, handles, list(CAUSES), columns=len(CAUSES))
    style.foot(figure, results.cost_source, _notes(points, loads))
    return Drawing(figure, points.reset_index(drop=True))


def _loads(summary: pd.DataFrame) -> list[tuple[str, pd.DataFrame]]:
    """The runs of each workload, and what tells it from the others."""
    names = [name for name in parameters(summary) if not name.startswith("allocator.")]
    if not names:
        return [("all", summary)]
    short = [name.rsplit(".", 1)[-1] for name in names]
    found = []
    for values, runs in summary.groupby(names, sort=False, dropna=False):
        pairs = zip(short, values, strict=True)
        label = ", ".join(f"{name} {value_text(value).strip('[]')}" for name, value in pairs)
        found.append((style.clean(label, 40), runs))
    return found


def _points(load: str, runs: pd.DataFrame) -> pd.DataFrame:
    """A row a step that these runs have, in both orders. Raises FigureError without the first."""
    rows = []
    for order, steps in ORDERS.items():
        before = 0.0
        for step in steps:
            found = _runs_of(runs, step)
            if found.empty and step is FIRST:
                raise FigureError("needs contiguous with reservation max and placement buddy")
            mean, spread, count = mean_sd(numbers(found, METRIC))
            if not count:
                continue
            row: dict[str, object] = {"load": load, "order": order, "step": step.title}
            row |= {"cause": step.cause, "num_seeds": count, METRIC: mean, f"{METRIC}_sd": spread}
            rows.append({**row, "gain": mean - before, TOKENS: numbers(found, TOKENS).mean()})
            before = mean
    if not rows:
        raise FigureError("no request waited, so no average says what fits")
    return pd.DataFrame(rows)


def _runs_of(runs: pd.DataFrame, step: Step) -> pd.DataFrame:
    """The runs of a step; a column that the summary lacks tells none of its runs apart."""
    found = runs
    for column, wanted in step.where.items():
        if column in found:
            found = found[found[column].astype(str) == wanted]
    return found


def _bars(ax: Axes, points: pd.DataFrame) -> None:
    places = np.arange(len(points))
    ends, gains = points[METRIC].to_numpy(), points["gain"].to_numpy()
    colors = [CAUSES.get(cause, style.NOTE_COLOR) for cause in points["cause"]]
    ax.barh(places, gains, 0.7, ends - gains, color=colors)
    spread = points[f"{METRIC}_sd"].fillna(0).to_numpy()
    ax.errorbar(ends, places, xerr=spread, fmt="none", ecolor="black", capsize=2)
    for place, end, gain, sd, tokens in zip(
        places, ends, gains, spread, points[TOKENS], strict=True
    ):
        step = f" (+{gain:.1f})" if gain >= 0.05 else f" (−{-gain:.1f})" if gain <= -0.05 else ""
        step = step if place else ""
        share = f", {100 * tokens:.0f} %" if np.isfinite(tokens) else ""
        text = f"  {end:.1f}{step}{share}"
        ax.text(max(end, end - gain) + sd, float(place), text, va="center", fontsize=7.5)
    for place in places[1:]:
        start = ends[place - 1]
        ax.plot([start, start], [place - 1, place], color=style.NOTE_COLOR, linewidth=0.6)
    ax.set_yticks(places, points["step"], fontsize=8)
    ax.set_ylim(len(points) - 0.4, -0.6)
    ax.grid(visible=False, axis="y")


def _notes(points: pd.DataFrame, loads: list[str]) -> list[str]:
    notes = ["Percent: the share of the KV slots that hold tokens, while others wait."]
    if points["num_seeds"].max() > 1:
        notes.append("Means over seeds; whiskers: standard deviation.")
    if points["load"].nunique() > len(loads):
        count = points["load"].nunique()
        notes.append(f"The first {len(loads)} of {count} workloads; all are in summary.csv.")
    return notes
