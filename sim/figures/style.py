"""Palette, text and axes that all figures share. Rc parameters are in kvsim.mplstyle."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib import colors, font_manager, ft2font
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure, SubFigure
from matplotlib.ticker import EngFormatter, FuncFormatter
from numpy.typing import ArrayLike

STYLE = Path(__file__).with_name("kvsim.mplstyle")
WIDTH_IN = 8.0

# Okabe and Ito's colours, told apart with every common colour blindness; yellow is too pale here
PALETTE = ("#0072B2", "#E69F00", "#009E73", "#D55E00", "#CC79A7", "#56B4E9", "#000000")
TERM_COLORS = {
    "token_states": "#0072B2",
    "reserved": "#E69F00",
    "internal": "#D55E00",
    "external": "#8A8A8A",
    "cached": "#009E73",
    "free": "#DEDEDE",
}
LINE_STYLES = ("-", "--", ":", "-.")
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
NOTE_COLOR = "#666666"
FOOTER_COLUMNS, FOOTER_LINES = 150, 6


@cache
def _glyphs() -> frozenset[int]:
    path = font_manager.findfont("DejaVu Sans")
    return frozenset(ft2font.FT2Font(path).get_charmap())


def clean(text: str, length: int = 1000) -> str:
    """Text on one line, of characters that the font has, cut to length with an ellipsis."""
    line = " ".join(text.split())
    shown = "".join(c if c.isprintable() and ord(c) in _glyphs() else "\ufffd" for c in line)
    return shown if len(shown) <= length else shown[: length - 1] + "…"


def wrap(text: str, columns: int, lines: int) -> str:
    """Clean text in at most so many lines."""
    cut = textwrap.wrap(clean(text), columns)
    if len(cut) > lines:
        cut = [*cut[: lines - 1], cut[lines - 1][: columns - 1] + "…"]
    return "\n".join(cut)


def new_figure(height_in: float) -> tuple[Figure, SubFigure]:
    """An empty figure at README width, and its body: a legend there stays clear of the title."""
    figure = Figure(figsize=(WIDTH_IN, height_in))
    body: SubFigure = figure.subfigures(1, 1, squeeze=False)[0, 0]
    return figure, body


def head(figure: Figure, experiment: str, what: str) -> None:
    """The title: the experiment, and what is seen."""
    figure.suptitle(f"{clean(experiment, 48)}: {what}", x=0.01, ha="left")


def foot(figure: Figure, cost_source: str | None, notes: Sequence[str]) -> None:
    """Small print: what was left out, and which model gave the times (None: there are none)."""
    lines = [wrap(note, FOOTER_COLUMNS, FOOTER_LINES) for note in notes if note]
    if cost_source is not None:
        lines.append(wrap(f"times from: {cost_source or 'not stated'}", FOOTER_COLUMNS, 2))
    figure.supxlabel("\n".join(lines), x=0.01, ha="left", fontsize=6.5, color=NOTE_COLOR)


def legend(body: SubFigure, handles: Sequence[Artist], labels: Sequence[str], columns: int) -> None:
    """A legend above the axes."""
    # a leading underscore would hide an entry
    texts = [f" {text}" if text.startswith("_") else text for text in labels]
    if handles:
        body.legend(handles, texts, loc="outside upper left", ncols=columns)


def legend_columns(labels: Sequence[str]) -> int:
    """How many entries fit side by side."""
    longest = max((len(label) for label in labels), default=1)
    return max(1, min(len(labels), 110 // (longest + 8)))


def empty_note(axes: Axes, text: str) -> None:
    """Say in an empty panel why it is empty."""
    axes.text(0.5, 0.5, text, ha="center", va="center", color=NOTE_COLOR, transform=axes.transAxes)


def count_axis(axis: Axis) -> None:
    """Numbers of any size as short tick labels: 0.5, 2000, 65.5k, 2M."""
    engineering = EngFormatter(sep="")

    def text(value: float, position: int | None = None) -> str:
        is_plain = value == 0 or 1e-3 <= abs(value) < 1e4
        return f"{value:g}" if is_plain else engineering(value, position)

    axis.set_major_formatter(FuncFormatter(text))


def percent_axis(axis: Axis) -> None:
    """Fractions as tick labels in percent; the axis' label has the sign."""
    axis.set_major_formatter(FuncFormatter(lambda value, position: f"{100 * value:g}"))


def from_zero(axes: Axes) -> None:
    """Let y begin at zero, with room for a line that lies there."""
    top = axes.get_ylim()[1]
    axes.set_ylim(-0.02 * top, 1.04 * top)


def spread_bars(
    axes: Axes,
    at: tuple[ArrayLike, ArrayLike],
    color: str,
    xerr: pd.Series | None = None,
    yerr: pd.Series | None = None,
) -> None:
    """Error bars at x and y where there is a spread between seeds, nothing where there is none."""
    x, y = (np.asarray(values, np.float64) for values in at)
    known = np.isfinite(x) & np.isfinite(y)
    lengths = [
        None if spread is None or not spread.any() else spread.fillna(0).to_numpy(float)[known]
        for spread in (xerr, yerr)
    ]
    if any(length is not None for length in lengths):
        axes.errorbar(
            x[known],
            y[known],
            xerr=lengths[0],
            yerr=lengths[1],
            fmt="none",
            ecolor=color,
            capsize=2,
            elinewidth=0.8,
        )


def color_of(i: int) -> str:
    return PALETTE[i % len(PALETTE)]


def line_style(i: int) -> str:
    return LINE_STYLES[i // len(PALETTE) % len(LINE_STYLES)]


def text_color(background: str) -> str:
    """Black or white, whichever is read better."""
    red, green, blue = colors.to_rgb(background)
    return "black" if 0.299 * red + 0.587 * green + 0.114 * blue > 0.5 else "white"


def tint(color: str) -> tuple[float, float, float]:
    """A pale shade of a color."""
    red, green, blue = (0.72 + 0.28 * part for part in colors.to_rgb(color))
    return red, green, blue
