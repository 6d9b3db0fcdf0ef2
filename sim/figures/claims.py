"""What a paper prints beside what was measured: bars by name, curves over a swept key.

Printed numbers are hollow, a printed range is a box between its ends; ours are solid, with the
standard deviation between seeds. Marks on a curve's axis are printed places of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import SubFigure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from sim.figures import style
from sim.figures.base import Drawing

COLUMNS = 2
PANEL_HEIGHT_IN = 2.5
BAR_WIDTH = 0.38


@dataclass(frozen=True)
class Bar:
    """A printed number, or the ends of a range, beside a measured one; None where there is none."""

    label: str
    printed: float | tuple[float, float] | None
    measured: float | None
    sd: float | None = None


@dataclass(frozen=True)
class Curve:
    """Means over seeds, with their spread; mark is where the source sees the curve turn."""

    label: str
    x: Sequence[float]
    y: Sequence[float]
    sd: Sequence[float]
    mark: float | None = None


@dataclass(frozen=True)
class Panel:
    """One pair of axes: either bars or curves."""

    title: str
    unit: str
    bars: Sequence[Bar] = ()
    curves: Sequence[Curve] = ()
    x_label: str = ""
    is_log: bool = False
    limits: tuple[float, float] | None = None
    is_log2_x: bool = False


def draw_claims(title: str, panels: Sequence[Panel], notes: Sequence[str] = ()) -> Drawing:
    """A figure of panels, two in a row."""
    columns = min(COLUMNS, len(panels))
    rows = -(-len(panels) // columns)
    figure, body = style.new_figure(1.4 + PANEL_HEIGHT_IN * rows)
    grid = body.subplots(rows, columns, squeeze=False)
    for ax in grid.flat[len(panels) :]:
        ax.set_axis_off()
    tables = []
    for ax, panel in zip(grid.flat, panels, strict=False):
        draw = _draw_curves if panel.curves else _draw_bars
        tables.append(draw(ax, panel).assign(panel=panel.title))
        ax.set_title(style.clean(panel.title, 60))
    _legend(body, panels)
    figure.suptitle(style.wrap(title, 84, 2), x=0.01, ha="left")
    style.foot(figure, None, notes)
    return Drawing(figure, pd.concat(tables, ignore_index=True))


def _draw_bars(ax: Axes, panel: Panel) -> pd.DataFrame:
    places = np.arange(len(panel.bars))
    for place, bar in zip(places, panel.bars, strict=True):
        at = place - BAR_WIDTH / 2
        if isinstance(bar.printed, tuple):
            low, high = bar.printed
            ax.bar(at, high - low, BAR_WIDTH, low, fc="#DEDEDE", ec=style.NOTE_COLOR, hatch="///")
        elif bar.printed is not None:
            ax.bar(at, bar.printed, BAR_WIDTH, fc="white", ec=style.NOTE_COLOR)
        if bar.measured is not None:
            at = place + BAR_WIDTH / 2
            ax.bar(at, bar.measured, BAR_WIDTH, yerr=bar.sd, fc=style.color_of(0), capsize=2)
    ax.axhline(0, color="black", linewidth=0.6)
    ax.grid(visible=False, axis="x")
    ax.set_xlim(-0.6, len(panel.bars) - 0.4)
    ax.set_xticks(places, [style.wrap(bar.label, 14, 3) for bar in panel.bars])
    ax.tick_params(axis="x", labelsize=6.5 if len(panel.bars) > 4 else 7.5, length=0)
    ax.set_ylabel(style.clean(panel.unit, 40))
    style.count_axis(ax.yaxis)
    return pd.DataFrame([vars(bar) for bar in panel.bars])


def _draw_curves(ax: Axes, panel: Panel) -> pd.DataFrame:
    for i, curve in enumerate(panel.curves):
        color, marker = style.color_of(i), style.MARKERS[i % len(style.MARKERS)]
        ax.errorbar(
            curve.x, curve.y, yerr=curve.sd, color=color, marker=marker, markersize=3, linewidth=1.2
        )
        if curve.mark is not None:
            ax.axvline(curve.mark, color=color, linestyle=":", linewidth=1)
    if panel.is_log:
        ax.set_yscale("log")
    if panel.is_log2_x:
        ax.set_xscale("log", base=2)
        style.count_axis(ax.xaxis)
    if panel.limits is not None:
        ax.set_ylim(*panel.limits)
    ax.set_xlabel(style.clean(panel.x_label, 50))
    ax.set_ylabel(style.clean(panel.unit, 40))
    if not panel.is_log:
        style.count_axis(ax.yaxis)
    rows = [
        {"label": curve.label, "x": x, "measured": y, "sd": sd, "printed": curve.mark}
        for curve in panel.curves
        for x, y, sd in zip(curve.x, curve.y, curve.sd, strict=True)
    ]
    return pd.DataFrame(rows)


def _legend(body: SubFigure, panels: Sequence[Panel]) -> None:
    """The signs of bars, and the lines of the panel that has most of them."""
    handles: list[Patch | Line2D] = []
    bars = [bar for panel in panels for bar in panel.bars]
    if bars:
        handles.append(Patch(fc="white", ec=style.NOTE_COLOR, label="printed"))
        if any(isinstance(bar.printed, tuple) for bar in bars):
            handles.append(Patch(fc="#DEDEDE", ec=style.NOTE_COLOR, hatch="///", label="range"))
        handles.append(Patch(fc=style.color_of(0), label="kvsim"))
    curves = max((panel.curves for panel in panels), key=len)
    for i, curve in enumerate(curves):
        marker = style.MARKERS[i % len(style.MARKERS)]
        handles.append(
            Line2D([], [], color=style.color_of(i), marker=marker, markersize=3, label=curve.label)
        )
    if any(curve.mark is not None for panel in panels for curve in panel.curves):
        handles.append(Line2D([], [], color=style.NOTE_COLOR, linestyle=":", label="printed"))
    labels = [style.clean(str(handle.get_label()), 40) for handle in handles]
    style.legend(body, handles, labels, style.legend_columns(labels))
