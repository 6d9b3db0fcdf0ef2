"""The memory budget of models on GPUs: a bar a GPU, and the requests its KV cache holds."""

from __future__ import annotations

import pandas as pd
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.patches import Patch
from matplotlib.ticker import NullFormatter

from sim.figures import style
from sim.figures.base import Drawing

TERMS = {
    "weights": ("weights", "#0072B2"),
    "activations": ("activations", "#E69F00"),
    "non_torch": ("CUDA, NCCL", "#CC79A7"),
    "kv": ("KV cache", "#009E73"),
    "unused": ("left unused", "#DEDEDE"),
}
MAX_ROWS = 24


def draw_capacity(table: pd.DataFrame) -> Drawing:
    """Of rows of sim.hardware.capacity that fit: GiB of each GPU by term, requests at a time."""
    fits = table[table["reason"] == ""].reset_index(drop=True)
    shown = fits.iloc[:MAX_ROWS]
    figure, body = style.new_figure(1.9 + 0.34 * len(shown))
    budget, held = body.subplots(1, 2, sharey=True, width_ratios=(3, 2))
    places = range(len(shown))
    left = [0.0] * len(shown)
    for term, (_, color) in TERMS.items():
        values = shown[f"{term}_gib"].tolist()
        budget.barh(places, values, left=left, color=color, height=0.72)
        left = [start + value for start, value in zip(left, values, strict=True)]
    budget.set_yticks(places, [_label(row) for _, row in shown.iterrows()])
    budget.invert_yaxis()
    budget.set_xlabel("memory of a GPU (GiB)")
    _draw_requests(held, shown)
    drawn = [entry for term, entry in TERMS.items() if shown[f"{term}_gib"].any()]
    handles: list[Artist] = [Patch(color=color) for _, color in drawn]
    signs = held.get_lines()
    labels = [label for label, _ in drawn] + [str(sign.get_label()) for sign in signs]
    style.legend(body, [*handles, *signs], labels, style.legend_columns(labels))
    figure.suptitle("What a model leaves for the KV cache", x=0.01, ha="left")
    notes = ["Requests at a time if all are as long as that (sign), in paged memory; log axis."]
    if not fits["activations_gib"].any():
        notes.append("Activations are not predicted: the KV cache is an upper bound.")
    if len(fits) > len(shown):
        notes.append(f"The first {MAX_ROWS} of {len(fits)} rows.")
    style.foot(figure, None, notes)
    return Drawing(figure, shown)


def _draw_requests(ax: Axes, shown: pd.DataFrame) -> None:
    """A sign a length in every row."""
    columns = [name for name in shown if str(name).startswith("requests_of_")]
    for i, column in enumerate(columns):
        counts = shown[column].astype(float)
        has_any = counts > 0
        places = shown.index[has_any]
        marker, color = style.MARKERS[i % len(style.MARKERS)], style.color_of(i)
        label = f"{int(str(column).rpartition('_')[2]):,} tokens"
        ax.plot(counts[has_any], places, linestyle="", marker=marker, color=color, label=label)
    ax.set_xscale("log")
    style.count_axis(ax.xaxis)
    ax.xaxis.set_minor_formatter(NullFormatter())
    ax.set_xlabel("requests at a time")


def _label(row: pd.Series) -> str:
    gpus = f"{row['tensor_parallel_size']} × " if row["tensor_parallel_size"] > 1 else ""
    return f"{style.clean(str(row['model']), 24)}, {gpus}{style.clean(str(row['device']), 16)}"
