"""What is worth knowing of an experiment before it runs: lines that explain it, and warnings."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path

from sim.config.axes import Axis, sampling_lines
from sim.config.cells import Cell
from sim.config.plugin_keys import PLUGINS, build_part
from sim.config.plugins import Config
from sim.config.point import Point
from sim.config.runspec import uses_seed
from sim.costs import CostModel
from workloads import installed

MAX_SHOWN = 10  # changes of traces, and notes of cost models


@dataclass(frozen=True)
class Remarks:
    """lines say what engines set, and where the pool, the requests and the times come from.

    cost_sources and cost_errors are what the cost models say of themselves, each once.
    """

    lines: tuple[str, ...]
    warnings: tuple[str, ...]
    cost_sources: tuple[str, ...]
    cost_errors: tuple[str, ...]


@dataclass(frozen=True)
class _CostFacts:
    """Of every cost model of an experiment, each once: the keys of dicts, in order."""

    sources: dict[str, None] = field(default_factory=dict)
    notes: dict[str, None] = field(default_factory=dict)
    errors: dict[str, None] = field(default_factory=dict)
    warnings: dict[str, None] = field(default_factory=dict)


def remarks_on(
    cells: Sequence[Cell],
    axes: Sequence[Axis],
    seeds: Sequence[int],
    folder: Path,
    changes: Iterable[str],
) -> Remarks:
    """The remarks on the cells of a sweep. changes says what was done to their traces."""
    points = [cell.point for cell in cells if cell.point is not None]
    costs = _cost_facts(points, folder)
    lines = [
        *_engine_lines([cell for cell in cells if cell.point is not None]),
        *chain.from_iterable(dict.fromkeys(point.budget_lines for point in points)),
        *sampling_lines(axes),
        *dict.fromkeys(_replica_lines(points)),
        *_seed_lines(points, seeds),
        *_change_lines(changes),
        *[f"cost          {note}" for note in costs.notes][:MAX_SHOWN],
    ]
    warnings = chain(
        chain.from_iterable(point.warnings for point in points),
        chain.from_iterable(cell.warnings for cell in cells if cell.point is not None),
        (f"skipped: {cell.skip}" for cell in cells if cell.skip),
        costs.warnings,
        _clashes(points),
    )
    return Remarks(
        lines=tuple(lines),
        warnings=tuple(dict.fromkeys(warnings)),
        cost_sources=tuple(costs.sources),
        cost_errors=tuple(costs.errors),
    )


def _engine_lines(cells: Iterable[Cell]) -> list[str]:
    """What the engines set, and below each what the experiment says instead."""
    found: dict[tuple[str, ...], dict[str, None]] = {}
    for cell in cells:
        swept = [axis.path for axis in cell.indices]
        overrides = cell.overlay.overrides(cell.entry_path, swept)
        found.setdefault(cell.overlay.lines(), {}).update(dict.fromkeys(overrides))
    return [line for lines, overrides in found.items() for line in (*lines, *overrides)]


def _replica_lines(points: Iterable[Point]) -> Iterator[str]:
    """How many replicas share the load, of each point that has any."""
    for point in points:
        if "replicas" in point.config:
            count, router = point.config["replicas"]["count"], point.config["replicas"]["router"]
            settings = ", ".join(f"{k} {v}" for k, v in router.items() if k != "kind")
            behind = router["kind"] + (f": {settings}" if settings else "")
            yield f"replicas      {count:,}, each with that pool, behind {behind}"


def _seed_lines(points: Iterable[Point], seeds: Sequence[int]) -> Iterator[str]:
    """Which workloads are run once, however many seeds there are."""
    workloads: list[Config] = [point.config["workload"] for point in points]
    unseeded = dict.fromkeys(config["kind"] for config in workloads if not uses_seed(config))
    if unseeded and len(seeds) > 1:
        yield f"seeds         {', '.join(unseeded)} draws nothing: one run for all seeds"


def _change_lines(changes: Iterable[str]) -> Iterator[str]:
    """What was done to traces, the first of it."""
    different = list(dict.fromkeys(changes))
    yield from different[:MAX_SHOWN]
    if len(different) > MAX_SHOWN:
        yield f"workload      … and {len(different) - MAX_SHOWN} more such changes"


def _cost_facts(points: Iterable[Point], folder: Path) -> _CostFacts:
    """Where times come from, and what is worth knowing of them."""
    facts = _CostFacts()
    for point in points:
        cost: CostModel = build_part("cost", point.config["cost"], folder)
        facts.sources[f"{cost.kind}: {cost.source}"] = None
        facts.notes.update(dict.fromkeys(cost.notes))
        facts.errors.update(dict.fromkeys(cost.errors))
        facts.warnings.update(dict.fromkeys(cost.warnings))
    return facts


def _clashes(points: Iterable[Point]) -> Iterator[str]:
    """The names that are built in and that an installed package has, too."""
    for point in points:
        for key, (table, base) in PLUGINS.items():
            kind = point.config[key]["kind"]
            sentence = installed.clash(kind, base, table) if kind in table else None
            if sentence:
                yield f"{key}: {sentence}"
