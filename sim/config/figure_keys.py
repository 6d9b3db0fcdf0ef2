"""The key figures of an experiment: which there are, and what those need that are drawn."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sim.config.axes import Axis
from sim.config.cells import Cell
from sim.config.plugins import Report, guess

FIGURE_NAMES = (
    "waste",
    "timeline",
    "requests",
    "metric_vs_sweep",
    "pool_map",
    "block_tables",
    "batched",
    "latency_vs_rate",
    "waste_vs_load",
    "block_size_forces",
    "engines",
    "block_size_sharing",
    "steps",
    "routing",
)
BLOCK_FIGURES = {"pool_map", "block_tables"}
LOAD_FIGURES = ("latency_vs_rate", "waste_vs_load")


def check_figures(names: Any, axes: Sequence[Axis], report: Report) -> None:
    """Report names that are unknown or stand twice, and figures that lack their sweep."""
    if not isinstance(names, list):
        return  # reported with the other top-level keys
    has_load = any(axis.path[-1] == "rate" and len(axis.values) > 1 for axis in axes)
    for i, name in enumerate(names):
        if isinstance(name, str) and name not in FIGURE_NAMES:
            report(("figures", i), f"unknown figure {name!r}{guess(name, list(FIGURE_NAMES))}")
        elif name in names[:i]:
            report(("figures", i), f"{name} is named twice")
        elif name in LOAD_FIGURES and not has_load:
            report(("figures", i), f"{name} needs a sweep of workload.arrivals.rate")


def check_block_figures(cell: Cell) -> None:
    """Report figures of blocks where there is more than the one pool that they show."""
    if cell.point is None or "replicas" not in cell.point.config:
        return
    for i, name in enumerate(cell.point.top.figures or []):
        if name in BLOCK_FIGURES:
            cell.report(("figures", i), f"{name} shows one pool, and replicas have one each")
