"""From an experiment's keys to its points: allocators x sweep, every error at the key it is about.

A swept key that an allocator's class does not have leaves that allocator alone: its points do
not multiply, and the key has no value there.
"""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sim.config.axes import ENGINE, Axis, dimensions
from sim.config.classes import find_class
from sim.config.engine_presets import Engines, lay_over
from sim.config.overlay import Overlay
from sim.config.plugins import Config, Report, guess, parameter_names
from sim.config.point import PLUGINS, Point
from sim.config.sampling import SAMPLERS
from sim.config.yaml_nodes import ConfigError, Document, KeyPath, dotted

MAX_POINTS = 100_000


class Errors:
    """Collects sentences; a sentence said twice is shown once."""

    def __init__(self, document: Document) -> None:
        self.document = document
        self._lines: dict[str, None] = {}

    def add(self, path: KeyPath, sentence: str) -> None:
        """Note that the value at path is wrong."""
        key = f"{dotted(path)}: " if path else ""
        self._lines[f"{self.document.place(path)}: {key}{sentence}"] = None

    def raise_if_any(self) -> None:
        """Raise ConfigError with everything collected."""
        if self._lines:
            raise ConfigError(list(self._lines))


@dataclass
class Cell:
    """One allocator entry with one value for each axis that applies to it.

    indices holds the index of the value on its axis. overlay is the keys with the engine's beneath
    them. problems are all that is wrong, misfits those of them that are about parts which are right
    but cannot be together. skip says why it is not run, empty if it is. num_requests are those of
    its trace, once it has met it.
    """

    entry: int
    entry_path: KeyPath
    data: Config
    indices: dict[Axis, int]
    overlay: Overlay = field(default_factory=lambda: Overlay({}))
    point: Point | None = None
    problems: list[tuple[KeyPath, str]] = field(default_factory=list)
    misfits: list[tuple[KeyPath, str]] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    skip: str = ""
    num_requests: int = 0

    @property
    def swept(self) -> dict[str, Any]:
        """The swept keys that this one has, and their values."""
        return {axis.key: axis.values[index] for axis, index in self.indices.items()}

    def report(self, path: KeyPath, sentence: str) -> None:
        """Note that the key at path is wrong in this cell."""
        problem = self.overlay.blame(path, sentence)
        if problem is not None:
            self.problems.append(problem)

    def report_misfit(self, path: KeyPath, sentence: str) -> None:
        """Note that the key at path does not go with the rest of this cell."""
        num_known = len(self.problems)
        self.report(path, sentence)
        self.misfits += self.problems[num_known:]

    def path_of(self, key: str) -> KeyPath:
        """Where the value of a key at the top is written."""
        found = [axis.place(index) for axis, index in self.indices.items() if axis.key == key]
        return found[0] if found else (key,)


def read_entries(value: Any, report: Report) -> list[tuple[KeyPath, Any]]:
    """The allocators of an experiment, with their paths."""
    if isinstance(value, list):
        if not value:
            report(("allocator",), "must name at least one allocator")
        return [(("allocator", i), entry) for i, entry in enumerate(value)]
    return [(("allocator",), value)]


def expand(data: Config, axes: list[Axis], folder: Path, errors: Errors) -> list[Cell]:
    """All cells of an experiment, resolved, in the order allocators x sweep.

    Those with problems have no point; `flush` says what the problems are.
    """
    engines = Engines(folder)
    entries = read_entries(data.get("allocator"), errors.add)
    wholes = [_wholes(entry, data, axes, engines) for _, entry in entries]
    _check_used(axes, list(itertools.chain.from_iterable(wholes)), errors.add)
    cells: list[Cell] = []
    for number, (entry_path, entry) in enumerate(entries):
        own = [_own_dimensions(axes, whole) for whole in wholes[number]]
        if len(cells) + _num_points(own) > MAX_POINTS:
            errors.add(("sweep",), f"makes more than {MAX_POINTS:,} runs")
            return cells
        base = {**data, "allocator": entry}
        cells += [Cell(number, entry_path, base, chosen) for chosen in _choices(axes, own)]
    for cell in cells:
        _resolve(cell, engines, folder)
    return cells


def _wholes(entry: Any, data: Config, axes: list[Axis], engines: Engines) -> list[Any]:
    """An allocator entry over each engine that is swept, or over the only one."""
    swept = [axis.values for axis in axes if axis.key == ENGINE]
    found = []
    for name in swept[0] if swept else [data.get(ENGINE)]:
        preset = engines.find(name, lambda *_: None)  # reported with the cells
        found.append(lay_over(preset.keys.allocator, entry) if preset else entry)
    return found


def _own_dimensions(axes: list[Axis], entry: Any) -> list[list[Axis]]:
    """The dimensions of a sweep, with the axes that an allocator entry has."""
    found = [[axis for axis in dim if _applies(axis, entry)] for dim in dimensions(axes)]
    return [own for own in found if own]


def _ranges(own: list[list[Axis]], engine: int) -> list[range]:
    """The indices on each dimension, where the engine is the one of that number."""
    return [
        range(engine, engine + 1)
        if any(axis.key == ENGINE for axis in dim)
        else range(len(dim[0].values))
        for dim in own
    ]


def _num_points(own: list[list[list[Axis]]]) -> int:
    """At most so many points has an allocator entry; own is its dimensions by engine."""
    return sum(math.prod(map(len, _ranges(dims, i))) for i, dims in enumerate(own))


def _choices(axes: list[Axis], own: list[list[list[Axis]]]) -> list[dict[Axis, int]]:
    """The points of an allocator entry in the order of the axes. own is its dimensions by engine.

    Points of a form that differ only in keys which the entry does not have are one.
    """
    found: dict[object, dict[Axis, int]] = {}
    for number, dims in enumerate(own):
        for indices in itertools.product(*_ranges(dims, number)):
            chosen = {a: i for dim, i in zip(dims, indices, strict=True) for a in dim}
            same = [(axis, _identity(axis, index)) for axis, index in chosen.items()]
            found.setdefault(tuple(same), {axis: chosen[axis] for axis in axes if axis in chosen})
    return sorted(found.values(), key=lambda chosen: [chosen.get(axis, -1) for axis in axes])


def _identity(axis: Axis, index: int) -> object:
    """What makes a value another one: its place in a grid, itself in what may have it twice."""
    return json.dumps(axis.values[index], sort_keys=True) if axis.form else index


def _resolve(cell: Cell, engines: Engines, folder: Path) -> None:
    """Set the swept keys, lay them over the engine's, and check everything."""
    for axis, index in cell.indices.items():
        try:
            cell.data = _with(cell.data, axis.path, axis.values[index])
        except ValueError as error:
            cell.report(axis.path, str(error))
            return
    preset = engines.find(cell.data.get(ENGINE), cell.report)
    cell.overlay = Overlay(cell.data, preset, is_broken=preset is None and _names_engine(cell))
    cell.point = cell.overlay.resolve(folder, cell.report, cell.report_misfit)


def _names_engine(cell: Cell) -> bool:
    """Whether the experiment means an engine here, were it by a sweep that is wrong."""
    sweep = cell.data.get("sweep")
    is_meant = isinstance(sweep, dict) and ENGINE in sweep
    is_swept = any(axis.key == ENGINE for axis in cell.indices)
    return cell.data.get(ENGINE) is not None or (is_meant and not is_swept)


def _with(data: Any, path: KeyPath, value: Any) -> Any:
    """A copy of data with another value at path. Raises ValueError if there is no such place."""
    if data is None:
        data = {}
    first = path[0]
    if isinstance(data, list) and isinstance(first, int) and first < len(data):
        below = value if len(path) == 1 else _with(data[first], path[1:], value)
        return [*data[:first], below, *data[first + 1 :]]
    if not isinstance(data, dict):
        raise ValueError(f"cannot be set: {dotted(path)} would be a key of {data!r}")
    key = str(first)
    below = value if len(path) == 1 else _with(data.get(key), path[1:], value)
    return {**data, key: below}


def _parameters(entry: Any) -> list[str]:
    """The parameters of an allocator entry's class; none if there is no such class."""
    table, base = PLUGINS["allocator"]
    kind = entry.get("kind") if isinstance(entry, dict) else None
    try:
        return parameter_names(find_class(kind, table, base)) if isinstance(kind, str) else []
    except ValueError:
        return []


def _applies(axis: Axis, entry: Any) -> bool:
    return axis.path[0] != "allocator" or axis.path[1] in _parameters(entry)


def _check_used(axes: list[Axis], entries: list[Any], report: Report) -> None:
    """Report a swept key that no allocator has."""
    known = sorted({name for entry in entries for name in _parameters(entry)})
    for axis in axes:
        if known and not any(_applies(axis, entry) for entry in entries):
            sentence = f"no allocator here has it{guess(str(axis.path[1]), known)}"
            where = axis.place(0)
            report(where[:-1] if where[-1] == 0 else where, sentence)


def skip_misfits(cells: list[Cell]) -> None:
    """Combinations of a sweep that cannot be are rows with their reason.

    But where an allocator goes with nothing that is swept, the experiment itself is wrong; and
    engines are skipped unless the trace does for none of them.
    """
    fine = {cell.entry for cell in cells if not cell.problems and not cell.skip}
    for cell in cells:
        if not cell.problems or cell.problems != cell.misfits:
            continue
        is_engine = all(path == (ENGINE,) for path, _ in cell.problems)
        is_swept = any(axis.key == ENGINE for axis in cell.indices)
        if cell.entry in fine or (is_engine and is_swept and fine):
            keys = ("" if path == (ENGINE,) else f"{dotted(path)}: " for path, _ in cell.problems)
            reasons = (key + text for key, (_, text) in zip(keys, cell.problems, strict=True))
            cell.skip = "; ".join(dict.fromkeys(reasons))
            cell.problems = []


def flush(cells: list[Cell], errors: Errors) -> None:
    """Move the problems of cells to errors, each at the key, or swept value, it is about.

    A problem that only some cells of an allocator have says for which values it arises.
    """
    for _, group in itertools.groupby(cells, key=lambda cell: cell.entry):
        members = list(group)
        for path, sentence, touched in _distinct(members):
            is_partial = not all((path, sentence) in cell.problems for cell in members)
            _add(touched, path, sentence, errors.add, is_partial)
        for cell in members:
            cell.problems = []


def _distinct(cells: list[Cell]) -> Iterator[tuple[KeyPath, str, Cell]]:
    """The problems, once for each value they are about; of drawn values the first that has one."""
    seen = set()
    for cell in cells:
        for path, sentence in cell.problems:
            touched = [(a, i) for a, i in cell.indices.items() if path[: len(a.path)] == a.path]
            is_drawn = any(axis.form in SAMPLERS for axis, _ in touched)
            what = (path,) if is_drawn else (path, sentence, *(index for _, index in touched))
            if what not in seen:
                seen.add(what)
                yield path, sentence, cell


def _add(
    cell: Cell,
    path: KeyPath,
    sentence: str,
    report: Report,
    is_partial: bool,
) -> None:
    for axis, index in cell.indices.items():
        if path[: len(axis.path)] == axis.path:
            drawn = ", the first such value" if axis.form in SAMPLERS else ""
            value = json.dumps(axis.values[index]) + drawn
            report(axis.place(index), f"{value}: {sentence}")
            return
    if is_partial and cell.swept:
        point = ", ".join(f"{key} {json.dumps(value)}" for key, value in cell.swept.items())
        sentence = f"{sentence} (with {point})"
    if path and path[0] == "allocator":
        path = (*cell.entry_path, *path[1:])
    report(path, sentence)
