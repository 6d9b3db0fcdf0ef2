"""Figures, drawn from result files alone. One file a figure; FIGURES is their table."""

from __future__ import annotations

import io
from collections.abc import Callable, Collection
from contextlib import ExitStack
from pathlib import Path

import matplotlib.style

from sim.figures.base import Drawing, FigureError, Results, tables_of
from sim.figures.batched import draw_batched
from sim.figures.block_tables import draw_block_tables
from sim.figures.engines import draw_engines
from sim.figures.forces import draw_block_size_forces
from sim.figures.latency import draw_latency_vs_rate
from sim.figures.policies import draw_prefix_policies
from sim.figures.pool_map import draw_pool_map
from sim.figures.routing import draw_routing
from sim.figures.running import draw_requests
from sim.figures.sharing import draw_block_size_sharing
from sim.figures.steps import draw_steps
from sim.figures.style import STYLE
from sim.figures.sweep import draw_metric_vs_sweep
from sim.figures.timeline import draw_timeline
from sim.figures.waste import draw_waste
from sim.figures.waste_load import draw_waste_vs_load
from sim.results.files import replacing

__all__ = ["FIGURES", "FigureError", "Results", "draw", "remove", "save", "tables_of"]

FIGURES: dict[str, Callable[[Results], Drawing]] = {
    "waste": draw_waste,
    "timeline": draw_timeline,
    "requests": draw_requests,
    "metric_vs_sweep": draw_metric_vs_sweep,
    "pool_map": draw_pool_map,
    "block_tables": draw_block_tables,
    "batched": draw_batched,
    "latency_vs_rate": draw_latency_vs_rate,
    "waste_vs_load": draw_waste_vs_load,
    "block_size_forces": draw_block_size_forces,
    "prefix_policies": draw_prefix_policies,
    "engines": draw_engines,
    "block_size_sharing": draw_block_size_sharing,
    "steps": draw_steps,
    "routing": draw_routing,
}

# neither dates nor versions: the same bytes on every drawing
METADATA = {"png": {"Software": None}, "svg": {"Date": None, "Creator": None}}


def draw(name: str, results: Results, folder: Path) -> list[Path]:
    """Write <folder>/<name>.png, .svg, and .csv with the plotted points; return the paths.

    Nothing is written unless all three could be made. Raises ValueError for an unknown name,
    FigureError if these results have nothing to draw, ResultsError if the folder cannot be written.
    """
    if name not in FIGURES:
        raise ValueError(f"unknown figure {name!r}; accepted: {', '.join(FIGURES)}")
    return save(lambda: FIGURES[name](results), folder, name)


def save(make: Callable[[], Drawing], folder: Path, name: str, points: str = "csv") -> list[Path]:
    """Draw in the look of all figures, and write as draw does; points is the third suffix."""
    with matplotlib.style.context(STYLE, after_reset=True):
        contents = _contents(make())
    suffixes = ("png", "svg", points)
    paths = [folder / f"{name}.{suffix}" for suffix in suffixes]
    with ExitStack() as stack:
        temporaries = [stack.enter_context(replacing(path)) for path in paths]
        for temporary, content in zip(temporaries, contents.values(), strict=True):
            temporary.write_bytes(content)
    return paths


def remove(folder: Path, besides: Collection[str]) -> None:
    """Remove the figures of an earlier run that the experiment no longer names.

    Files that are not figures of this table stay.
    """
    for name in FIGURES.keys() - set(besides):
        for suffix in (*METADATA, "csv"):
            (folder / f"{name}.{suffix}").unlink(missing_ok=True)


def _contents(drawing: Drawing) -> dict[str, bytes]:
    """The bytes of the three files, by suffix."""
    contents = {}
    for suffix, metadata in METADATA.items():
        buffer = io.BytesIO()
        drawing.figure.savefig(buffer, format=suffix, metadata=metadata)
        contents[suffix] = buffer.getvalue()
    table = drawing.points.to_csv(index=False, lineterminator="\n")
    return {**contents, "csv": table.encode("utf-8", errors="replace")}
