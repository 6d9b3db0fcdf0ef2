"""An experiment: a YAML file resolved into runs, each of which is plain data until it is built.

Everything a user can get wrong is found here, before anything runs, and raised at once as a
ConfigError.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from sim.config import naming
from sim.config.axes import Axis, read_axes
from sim.config.cells import Cell, Errors, expand, flush, skip_misfits
from sim.config.figure_keys import BLOCK_FIGURES, check_block_figures, check_figures
from sim.config.meeting import meet_trace
from sim.config.overrides import apply_override
from sim.config.plugins import Config, Report
from sim.config.point import ConfigError, Point
from sim.config.remarks import remarks_on
from sim.config.replays import ReplaySpec, read_replays
from sim.config.runspec import RunSpec, uses_seed
from sim.config.yaml_nodes import Document, dotted, read_document

__all__ = [
    "ConfigError",
    "Experiment",
    "RunSpec",
    "load_experiment",
]

MAX_SEEDS = 10_000
MAX_SEED = (1 << 63) - 1


@dataclass(frozen=True)
class Experiment:
    """A resolved experiment. config is plain data: what the file says, defaults filled in.

    specs are runs of an engine, or replays of policies without one. file and overrides are what it
    was read from; report is whether a page is made of its results.
    """

    name: str
    description: str
    figures: tuple[str, ...]
    cost_source: str
    config: Config
    specs: tuple[RunSpec, ...] | tuple[ReplaySpec, ...]
    pool_lines: tuple[str, ...]
    warnings: tuple[str, ...]
    cost_errors: tuple[str, ...] = ()
    report: bool = False
    file: str = ""
    overrides: tuple[str, ...] = ()

    def runs(self) -> list[RunSpec] | list[ReplaySpec]:
        """All runs in the order allocators x sweep x seeds, or traces x policies x capacities."""
        return list(self.specs)  # type: ignore[return-value]

    @property
    def is_replay(self) -> bool:
        """Whether policies are replayed, without an engine."""
        return any(isinstance(spec, ReplaySpec) for spec in self.specs)

    def budget_lines(self) -> list[str]:
        """Where the size of the pool comes from, and what else is worth knowing before a run."""
        return [*self.pool_lines, *(f"warning       {warning}" for warning in self.warnings)]


def load_experiment(path: str | Path, overrides: Sequence[str] = ()) -> Experiment:
    """Read an experiment file and check everything in it; overrides are "a.b=value".

    Relative paths in the file, and in overrides, start at the file's folder. Raises ConfigError
    with one line for each error.
    """
    document = read_document(path)
    override_all(document, overrides)
    experiment = resolve_experiment(document, Path(path).parent)
    return replace(experiment, file=str(path), overrides=tuple(overrides))


def override_all(document: Document, overrides: Sequence[str]) -> None:
    """Set what overrides say, each "a.b=value". Raises ConfigError about all that are wrong."""
    problems: list[str] = []
    for override in overrides:
        try:
            apply_override(document, override)
        except ConfigError as error:
            problems += error.lines
    if problems:
        raise ConfigError(problems)


def resolve_experiment(document: Document, folder: Path) -> Experiment:
    """Check everything in an experiment that has been read; folder is where its paths start.

    Raises ConfigError with one line for each error.
    """
    errors = Errors(document)
    data: Config = document.data
    if "policies" in data:
        return _replays(data, folder, errors)
    axes = read_axes(data.get("sweep"), errors.add)
    seeds = _seeds(data.get("seeds"), errors.add)
    check_figures(data.get("figures"), axes, errors.add)
    cells = expand(data, axes, folder, errors)
    skip_misfits(cells)
    for cell in cells:
        check_block_figures(cell)
    flush(cells, errors)
    errors.raise_if_any()
    changes = [
        line for cell in cells if not cell.skip for line in meet_trace(cell, folder, seeds[0])
    ]
    skip_misfits(cells)
    if all(cell.skip for cell in cells):
        for cell in cells:
            cell.report(("workload", "name"), cell.skip)
    flush(cells, errors)
    errors.raise_if_any()
    experiment = _experiment(data, (cells, axes), seeds, folder, changes)
    _check_different(cells, errors)
    return experiment


def _replays(data: Config, folder: Path, errors: Errors) -> Experiment:
    """The experiment of a file that names policies."""
    found = read_replays(data, folder, errors.add)
    errors.raise_if_any()
    assert found is not None
    return Experiment(
        name=found.keys.name,
        description=found.keys.description.strip(),
        figures=tuple(found.keys.figures or ()),
        cost_source="",
        config=found.config,
        specs=found.specs,
        pool_lines=found.lines,
        warnings=found.warnings,
        report=found.keys.report,
    )


def _seeds(value: Any, report: Report) -> list[int]:
    """The seeds of an experiment: a count, or a list."""
    accepted = f"accepted: a number from 1 to {MAX_SEEDS}, or a list of different whole numbers"
    if value is None:
        return [0]
    if type(value) is int and 1 <= value <= MAX_SEEDS:
        return list(range(value))
    good = isinstance(value, list) and 1 <= len(value) <= MAX_SEEDS
    if good and all(type(seed) is int and 0 <= seed <= MAX_SEED for seed in value):
        if len(set(value)) == len(value):
            return list(value)
        report(("seeds",), f"has a seed twice; {accepted}")
    else:
        report(("seeds",), f"got {value!r}; {accepted}")
    return [0]


def _experiment(
    data: Config,
    sweep: tuple[list[Cell], list[Axis]],
    seeds: list[int],
    folder: Path,
    changes: list[str],
) -> Experiment:
    """Put the resolved cells of a sweep together. changes says what was done to their traces."""
    cells, axes = sweep
    resolved = [(cell.entry, cell.point) for cell in cells if cell.point is not None]
    top = resolved[0][1].top
    remarks = remarks_on(cells, axes, seeds, folder, changes)
    return Experiment(
        name=top.name,
        description=top.description.strip(),
        figures=tuple(top.figures or ()),
        cost_source="; ".join(remarks.cost_sources),
        config=_resolved(data, resolved, seeds),
        specs=tuple(_specs(cells, seeds, folder, [axis.key for axis in axes])),
        pool_lines=remarks.lines,
        warnings=remarks.warnings,
        cost_errors=remarks.cost_errors,
        report=top.report,
    )


def _resolved(data: Config, resolved: list[tuple[int, Point]], seeds: list[int]) -> Config:
    """The experiment as plain data, from (allocator entry, point). What is swept shows its first
    value.
    """
    first = resolved[0][1]
    firsts = dict(reversed(resolved))
    return {
        "name": first.top.name,
        "description": first.top.description.strip(),
        **first.config,
        "allocator": [firsts[entry].config["allocator"] for entry in sorted(firsts)],
        "seeds": seeds,
        "sweep": data.get("sweep") or {},
        "slo": first.slo,
        "figures": list(first.top.figures or ()),
        **({"record": {"max_events": first.top.max_events}} if first.top.max_events else {}),
        **({"report": True} if first.top.report else {}),
    }


def _specs(
    cells: list[Cell], seeds: list[int], folder: Path, swept_keys: list[str]
) -> Iterator[RunSpec]:
    """The runs: cells x seeds, but one seed where it changes nothing, or nothing is run."""
    names = naming.Names(
        swept_keys,
        list(zip([cell.entry for cell in cells], _allocators(cells), strict=True)),
        [cell.swept for cell in cells],
    )
    top = next(cell.point.top for cell in cells if cell.point is not None)
    for number, cell in enumerate(cells):
        config = cell.point.config if cell.point is not None else {}
        has_seeds = not cell.skip and uses_seed(config["workload"])
        for seed in seeds if has_seeds else seeds[:1]:
            run_id = names.run_id(number, seed)
            begin = {"experiment": top.name, "run": run_id, "seed": seed}
            yield RunSpec(
                run_id=run_id,
                seed=seed,
                config={**config, "seed": seed},
                cells={**begin, **names.cells(number)},
                slo=cell.point.slo if cell.point is not None else {},
                records_blocks=not BLOCK_FIGURES.isdisjoint(top.figures or ()),
                folder=str(folder),
                skip=cell.skip,
                num_requests=cell.num_requests,
                max_events=top.max_events,
            )


def _allocators(cells: list[Cell]) -> Iterator[Config]:
    """The allocator of each cell. One that is not run may have none: it is called like another of
    its entry and engine, and failing that as the file calls it.
    """
    known = {
        (cell.entry, cell.data.get("engine")): cell.point.config["allocator"]
        for cell in cells
        if cell.point is not None
    }
    for cell in cells:
        if cell.point is not None:
            yield cell.point.config["allocator"]
        else:
            as_written = cell.overlay.allocator()
            yield known.get((cell.entry, cell.data.get("engine")), as_written)


def _check_different(cells: list[Cell], errors: Errors) -> None:
    """Refuse two allocators, or two engines, that would make the same run."""
    seen: dict[str, Cell] = {}
    for cell in cells:
        if cell.point is None:
            continue
        config = {key: value for key, value in cell.point.config.items() if key != "engine"}
        other = seen.setdefault(json.dumps(config, sort_keys=True), cell)
        engine, its = cell.data.get("engine"), other.data.get("engine")
        if engine != its:
            place = dotted(other.entry_path)
            errors.add(
                cell.path_of("engine"),
                f"{json.dumps(engine)}: gives the same run as {json.dumps(its)} with {place}",
            )
        elif other.entry != cell.entry:
            errors.add(cell.entry_path, f"gives the same run as allocator.{other.entry}")
    errors.raise_if_any()
