"""The figures of a page, each with the points in it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from markupsafe import Markup

from sim.report.limits import Limits
from sim.report.svg import SvgError, inline_png, inline_svg
from sim.report.tables import Table, whole_grid
from sim.report.templates import render
from sim.report.text import bytes_text

TITLES = {
    "waste": "Where the KV slots are",
    "timeline": "Where the KV slots are over time",
    "requests": "Running and waiting requests over time",
    "metric_vs_sweep": "Metrics against what is swept",
    "pool_map": "The pool, slot by slot, over time",
    "block_tables": "Block tables, step by step",
    "batched": "Requests that run at a time",
    "latency_vs_rate": "Latency against the rate of requests",
    "waste_vs_load": "Where the KV slots are, against load",
    "block_size_forces": "What a block size changes",
    "prefix_policies": "Hit rates of eviction policies against capacity",
    "engines": "Engines side by side",
    "block_size_sharing": "What larger blocks waste and no longer share",
    "steps": "Iterations, step by step",
    "routing": "Routers: hit rates and latency",
    "capacity_rates": "The highest rates within the limits",
}


@dataclass(frozen=True)
class Figure:
    """A drawn figure: NAME.svg or NAME.png in its folder, and the plotted points."""

    name: str
    folder: Path
    points: Table | None

    @property
    def title(self) -> str:
        return TITLES.get(self.name, self.name.replace("_", " "))

    @property
    def svg_path(self) -> Path:
        return self.folder / f"{self.name}.svg"

    @property
    def png_path(self) -> Path:
        return self.folder / f"{self.name}.png"

    def describe(self) -> str:
        """What the figure shows, for those who do not see it: what its points are."""
        if self.points is None:
            return "The plotted points are not there."
        columns = ", ".join(self.points.columns[:12])
        more = " and others" if len(self.points.columns) > 12 else ""
        return f"{len(self.points.rows):,} plotted points with {columns}{more}."


def figure_list(drawn: list[Figure], limits: Limits) -> Markup | None:
    """Figures as elements of a page, each with its plotted points."""
    if not drawn or not limits.has_figures:
        return None
    shown = []
    for number, figure in enumerate(drawn, 1):
        picture, note = _picture(figure, f"f{number}-", limits)
        points = None
        if figure.points is not None and limits.points:
            caption = f"Points of {figure.name}"
            points = whole_grid(figure.points, caption, figure.points.columns[:1], limits.points)
        shown.append((figure, picture, note, points))
    return render("figures.html", figures=shown)


def _picture(figure: Figure, prefix: str, limits: Limits) -> tuple[Markup | None, str]:
    """A figure as an element, and what has to be said of it."""
    note = "its SVG is not there"
    if figure.svg_path.is_file():
        text = figure.svg_path.read_text(encoding="utf-8", errors="replace")
        try:
            picture = inline_svg(text, prefix, figure.title, figure.describe())
            if len(picture) <= limits.svg_bytes:
                return picture, ""
            note = f"its SVG takes {bytes_text(len(picture))}"
        except SvgError as error:
            note = f"its SVG {error}"
    if figure.png_path.is_file():
        try:
            about = f"{figure.title}. {figure.describe()}"
            picture = inline_png(figure.png_path.read_bytes(), about)
            if len(picture) <= limits.svg_bytes:
                return picture, f"As dots, not lines: {note}."
            note += f", its PNG {bytes_text(len(picture))}"
        except SvgError as error:
            note += f", its PNG {error}"
    return None, f"Left out: {note}."
