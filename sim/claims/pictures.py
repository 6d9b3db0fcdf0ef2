"""The papers' figures as experiments/claims/figures/*.yaml list them: printed numbers beside ours.

A file is {name, title, notes, panels: [{title, unit, bars | curves, …}]}. bars maps labels to a
claim, or to [claim, part of its value]; curves are lines of an experiment's summary, or of that
which a line names by `from`: which rows, and what over what. Or it is {name, title, experiment},
where an experiment draws the figure itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from pydantic import Field

from sim import figures
from sim.claims.expressions import MeasureError, pick
from sim.claims.judge import expected_leaves
from sim.claims.record import Judged
from sim.claims.statement import FROM
from sim.config.experiment import load_experiment
from sim.config.plugins import Strict, guess, validate
from sim.config.yaml_nodes import ConfigError, Document, KeyPath, dotted, read_document
from sim.figures.claims import Bar, Curve, Panel, draw_claims
from sim.runs.outcome import run_and_write
from sim.runs.runner import RunOptions
from sim.stored import open_folder


class _Curves(Strict):
    """lines maps labels to the columns that pick their rows; marks labels to places on x."""

    results: str = ""
    x: str
    y: str
    lines: dict[str, dict[str, Any]]
    marks: dict[str, float] = Field(default_factory=dict)
    scale: float = 1.0


class _Panel(Strict):
    title: str
    unit: str
    bars: dict[str, str | list[str]] | None = None
    curves: _Curves | None = None
    x_label: str = ""
    log: bool = False
    log2_x: bool = False
    limits: list[float] | None = None


class _Figure(Strict):
    name: str
    title: str
    experiment: str | None = None
    panels: list[_Panel] = Field(default_factory=list)
    notes: list[str] = Field(default_factory=list)


def draw_all(
    folder: Path, judged: Sequence[Judged], results: Path, out: Path
) -> tuple[list[Path], list[str]]:
    """Draw every figure of a folder into out; the files, and what could not be drawn and why.

    Raises ConfigError if a file is not what it must be, ResultsError if out cannot be written.
    """
    by_id = {one.claim.id: one for one in judged}
    specs = [(file, _read(file, by_id)) for file in sorted(folder.glob("*.yaml"))]
    paths: list[Path] = []
    problems: list[str] = []
    for file, spec in specs:
        if spec.experiment is not None:
            experiment = load_experiment(file.parent / spec.experiment)
            drawn = run_and_write(experiment, results / experiment.name, RunOptions())
            paths += [path for path in drawn.files if path.suffix != ".csv"]
            problems += drawn.problems
            continue
        try:
            panels = [_panel(panel, by_id, results) for panel in spec.panels]
        except MeasureError as error:
            problems.append(f"{spec.name}: {error}")
            continue
        draw = partial(draw_claims, spec.title, panels, spec.notes)
        paths += figures.save(draw, out, spec.name)
    return paths, problems


def _read(file: Path, by_id: Mapping[str, Judged]) -> _Figure:
    """A figure's file. Raises ConfigError."""
    document = read_document(file)
    errors: list[str] = []

    def report(path: KeyPath, sentence: str, document: Document = document) -> None:
        errors.append(f"{document.place(path)}: {dotted(path)}: {sentence}")

    spec = validate(_Figure, document.data, (), report)
    if isinstance(spec, _Figure):
        for number, panel in enumerate(spec.panels):
            for label, named in (panel.bars or {}).items():
                name = named if isinstance(named, str) else named[0]
                if name not in by_id:
                    path = ("panels", number, "bars", label)
                    report(path, f"unknown claim {name!r}{guess(name, list(by_id))[:200]}")
    if errors or not isinstance(spec, _Figure):
        raise ConfigError(errors)
    return spec


def _panel(panel: _Panel, by_id: Mapping[str, Judged], results: Path) -> Panel:
    """A panel with its numbers. Raises MeasureError if an experiment has not been run."""
    bars = [_bar(label, named, by_id) for label, named in (panel.bars or {}).items()]
    curves = [] if panel.curves is None else _curves(panel.curves, results)
    limits = None if panel.limits is None else (panel.limits[0], panel.limits[1])
    axes = panel.x_label, panel.log, limits, panel.log2_x
    return Panel(panel.title, panel.unit, bars, curves, *axes)


def _bar(label: str, named: str | list[str], by_id: Mapping[str, Judged]) -> Bar:
    """A claim's value, or a part of it, as printed and as measured."""
    name, part = (named, "") if isinstance(named, str) else (named[0], named[1])
    one = by_id[name]
    expected = expected_leaves(one.claim.stated).get(part)
    found = one.measured.get(part, {})
    printed: float | tuple[float, float] | None = None
    if isinstance(expected, list | tuple):
        printed = float(expected[0]), float(expected[1])
    elif isinstance(expected, int | float):
        printed = float(expected)
    measured = found.get("mean")
    value = float(measured) if isinstance(measured, int | float) else None
    return Bar(label, printed, value, found.get("sd"))


def _curves(spec: _Curves, results: Path) -> list[Curve]:
    return [_curve(label, where, spec, results) for label, where in spec.lines.items()]


def _curve(label: str, where: Mapping[str, Any], spec: _Curves, results: Path) -> Curve:
    """A line over the seeds' means. Raises MeasureError."""
    folder = results / where.get(FROM, spec.results)
    if not folder.exists():
        raise MeasureError(f"{folder}: is missing; kvsim claims makes it")
    picked = {key: value for key, value in where.items() if key != FROM}
    rows = pick(open_folder(folder).summary, picked)
    for column in (spec.x, spec.y):
        if column not in rows:
            raise MeasureError(f"unknown column {column!r}{guess(column, list(map(str, rows)))}")
    by_x = (spec.scale * rows[spec.y]).groupby(rows[spec.x])
    mean, sd = by_x.mean(), by_x.std().fillna(0)
    places = [float(x) for x in mean.index]
    return Curve(label, places, mean.tolist(), sd.tolist(), spec.marks.get(label))
