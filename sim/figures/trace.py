"""A trace: when requests arrive, how long they are, and what their prompts share."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from numpy.typing import NDArray

from sim.figures import style
from sim.figures.base import Drawing
from workloads.inspection import Inspection
from workloads.trace import NANOSECONDS, IntColumn

Floats = NDArray[np.float64]

MAX_STEPS = 240  # of time in a panel
# seconds; multiples of three, because some traces stamp every third second
STEPS_S = (0.01, 0.1, 1, 3, 15, 30, 60, 300, 900, 1800, 3600, 10800, 21600, 86400, 604800)
UNITS_S = {"s": 1, "min": 60, "h": 3600, "days": 86400}
RATES_S = {"second": 1, "minute": 60, "hour": 3600, "day": 86400}
LEVELS = np.linspace(0, 1, 401)
LENGTHS = {"prompt_tokens": "prompt", "output_tokens": "output", "max_tokens": "max_tokens"}


def draw_trace(found: Inspection) -> Drawing:
    """Arrivals over time, lengths, and the share of prompts that an unbounded cache would serve."""
    knows_times = "arrival_ns" in found.columns
    figure, body = style.new_figure(5.0 if knows_times else 3.0)
    rows = body.add_gridspec(2 if knows_times else 1, 1)
    lower = rows[-1].subgridspec(1, 1 if found.hits is None else 2)
    points = [_draw_lengths(body.add_subplot(lower[0, 0]), found.columns)]
    bounds = _bounds(found)
    if knows_times:
        points.insert(0, _draw_arrivals(body.add_subplot(rows[0]), bounds, found))
    if found.hits is not None:
        points.append(_draw_sharing(body.add_subplot(lower[0, 1]), bounds, found))
    name = Path(found.path).name
    style.head(figure, name, f"{len(found.columns['prompt_tokens']):,} requests ({found.kind})")
    style.foot(figure, None, _small_print(found))
    return Drawing(figure, pd.concat(points, ignore_index=True))


def _bounds(found: Inspection) -> Floats:
    """Where steps begin and end: in seconds from the first arrival, or in requests."""
    if "arrival_ns" not in found.columns:
        return np.linspace(0, len(found.columns["prompt_tokens"]), MAX_STEPS + 1)
    arrivals = found.columns["arrival_ns"]
    span_s = int(arrivals[-1] - arrivals[0]) / NANOSECONDS
    width = next((w for w in STEPS_S if span_s / w <= MAX_STEPS), span_s / MAX_STEPS)
    count = max(1, round(span_s / width))
    return np.append(np.arange(count) * width, span_s if span_s > 0 else width)


def _places(found: Inspection, bounds: Floats) -> IntColumn:
    """The step that each request lies in."""
    if "arrival_ns" not in found.columns:
        at = np.arange(len(found.columns["prompt_tokens"])).astype(np.float64)
    else:
        at = (found.columns["arrival_ns"] - found.columns["arrival_ns"][0]) / NANOSECONDS
    steps: IntColumn = np.searchsorted(bounds, at, side="right") - 1
    return np.clip(steps, 0, len(bounds) - 2)


def _draw_arrivals(ax: Axes, bounds: Floats, found: Inspection) -> pd.DataFrame:
    """Arrivals in each step, per second or the shortest unit that makes the mean at least 1."""
    counts = np.bincount(_places(found, bounds), minlength=len(bounds) - 1)
    mean = len(found.columns["arrival_ns"]) / bounds[-1]
    unit = next((name for name, size in RATES_S.items() if mean * size >= 1), "day")
    rates = counts / np.diff(bounds) * RATES_S[unit]
    time, size = _time_unit(bounds[-1])
    ax.stairs(rates, bounds / size, fill=True, color=style.PALETTE[0], alpha=0.25)
    ax.stairs(rates, bounds / size, color=style.PALETTE[0], linewidth=1)
    ax.axhline(mean * RATES_S[unit], color=style.NOTE_COLOR, linestyle="--", linewidth=0.9)
    step = _step(bounds)
    ax.set_title(f"arrivals in steps of {step}; dashed: mean {mean * RATES_S[unit]:.3g}")
    ax.set_ylabel(f"requests per {unit}")
    ax.set_xlabel(f"time ({time})")
    ax.margins(x=0)
    style.from_zero(ax)
    style.count_axis(ax.yaxis)
    return _table("arrivals", f"requests per {unit}", bounds[:-1], rates)


def _time_unit(span_s: float, least: int = 3) -> tuple[str, int]:
    """The largest unit of which the time has at least so many."""
    return [unit for unit in UNITS_S.items() if unit[1] == 1 or span_s >= least * unit[1]][-1]


def _step(bounds: Floats) -> str:
    """The width of a step in words."""
    width = bounds[1] - bounds[0]
    unit, size = _time_unit(width, least=1)
    return f"{width / size:.4g} {unit}"


def _draw_lengths(ax: Axes, columns: Mapping[str, IntColumn]) -> pd.DataFrame:
    """Share of requests up to each length, lengths on a log axis."""
    tables = []
    for i, (name, what) in enumerate(LENGTHS.items()):
        if name not in columns:
            continue
        tokens = np.quantile(columns[name], LEVELS, method="inverted_cdf")
        shown = tokens > 0
        label = f"{what}, median {np.median(columns[name]):,.0f}"
        ax.step(tokens[shown], LEVELS[shown], where="post", color=style.color_of(i), label=label)
        tables.append(_table("lengths", label, tokens, LEVELS))
    ax.set_xscale("log")
    style.count_axis(ax.xaxis)
    style.percent_axis(ax.yaxis)
    ax.set_ylim(-0.02, 1.02)
    ax.set_title("lengths")
    ax.set_xlabel("up to so many tokens")
    ax.set_ylabel("requests (%)")
    ax.legend(loc="best")
    return pd.concat(tables)


def _draw_sharing(ax: Axes, bounds: Floats, found: Inspection) -> pd.DataFrame:
    """The share of prompt tokens that an unbounded cache would serve, in each step and so far."""
    assert found.hits is not None  # or there would be no panel
    places, count = _places(found, bounds), len(bounds) - 1
    sums = [
        np.bincount(places, weights=values, minlength=count)
        for values in (found.hits, found.columns["prompt_tokens"])
    ]
    with np.errstate(invalid="ignore"):  # a step without requests has no share
        share = sums[0] / sums[1]
        so_far = np.cumsum(sums[0]) / np.cumsum(sums[1])
    knows_times = "arrival_ns" in found.columns
    time, size = _time_unit(bounds[-1]) if knows_times else ("", 1)
    ax.stairs(share, bounds / size, baseline=None, color=style.PALETTE[5], label="in each step")
    ax.plot(bounds[1:] / size, so_far, color=style.PALETTE[2], label="since the start")
    ax.set_title("prompt tokens an unbounded cache would serve")
    ax.set_xlabel(f"time ({time})" if knows_times else "request")
    ax.set_ylabel("share (%)")
    ax.set_ylim(-0.02, 1.02)
    ax.margins(x=0)
    style.percent_axis(ax.yaxis)
    ax.legend(loc="best", ncols=2)
    parts = [_table("sharing", "in each step", bounds[:-1], share)]
    return pd.concat([*parts, _table("sharing", "since the start", bounds[1:], so_far)])


def _table(panel: str, series: str, x: Floats, y: Floats) -> pd.DataFrame:
    return pd.DataFrame({"panel": panel, "series": series, "x": x, "y": y})


def _small_print(found: Inspection) -> list[str]:
    notes = []
    if found.refusal is not None:
        said = found.refusal.removeprefix(f"{found.path}: ").removeprefix(f"{found.path}/")
        notes.append(f"A run refuses this file as it is: {said}")
    for name in ("prompt", "output"):
        empty = int(np.count_nonzero(found.columns[f"{name}_tokens"] == 0))
        if empty:
            notes.append(f"{empty:,} requests without {name} lie left of the axis.")
    if found.hits is None:
        notes.append("What prompts share is not known.")
    return notes
