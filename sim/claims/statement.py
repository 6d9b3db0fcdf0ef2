"""A claim as its file states it.

A file is {sources: {name: {title, ref}}, claims: [{id, …}, …]}. Who claims what and where, the
setting, the expected value with its comparator, tolerance and unit; and either `measured_by`, what
measures it here, or `out_of_scope`, why nothing can.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from sim.claims.probes import PROBES
from sim.config.plugins import Strict, guess, validate
from sim.config.yaml_nodes import ConfigError, Document, KeyPath, dotted, read_document
from workloads.publictraces import public_traces

Kind = Literal[
    "deterministic",
    "property",
    "calibrated_sim",
    "rate_sim",
    "trace",
    "cost_model",
    "workload",
    "config_fact",
    "calibration_input",
    "measured_run",
    "not_simulable",
]
Comparator = Literal[
    "eq",
    "approx",
    "range",
    "le",
    "ge",
    "bool",
    "order",
    "set",
    "order_and_upper",
    "input_parameter",
]


FROM = "from"  # the key of rows that another experiment has


class Knee(Strict):
    """The largest x of a curve with y within a limit; between points the curve is straight."""

    x: str
    y: str
    limit: float


class Measure(Strict):
    """What measures a claim.

    Either a probe, a function of sim.claims.probes, with its arguments; or an experiment, by its
    path from the claim's file, of which rows are picked by the values of their columns, one row a
    seed, and put into expressions: values maps names to expressions like
    "paged.num_running_mean / max.num_running_mean". Rows with a key `from` are of that experiment
    instead. With a knee, the rows of a name are a curve,
    and its column `knee` is that curve's.
    """

    probe: str | None = None
    arguments: dict[str, Any] = Field(default_factory=dict, alias="with")
    experiment: str | None = None
    rows: dict[str, dict[str, Any]] = Field(default_factory=dict)
    knee: Knee | None = None
    values: dict[str, str] | str | None = None


class Sensitivity(Strict):
    """The claim's value where a parameter that its source leaves open takes other values.

    over is the column of the experiment that varies it, parameter says what it is. rows and
    values are the claim's own where they are left out, and so is the knee where the values are.
    limits, instead of an experiment: the claim's own measure with other limits of its knee.
    """

    parameter: str
    experiment: str | None = None
    over: str | None = None
    limits: list[float] = Field(default_factory=list)
    rows: dict[str, dict[str, Any]] | None = None
    knee: Knee | None = None
    values: dict[str, str] | str | None = None


class Ablation(Measure):
    """A test of the explanation of a value that does not come out: what, and a measure of it."""

    what: str


class Statement(Strict):
    """One claim, as its file writes it.

    data are the public traces it needs; with partial, those that are here are measured, which can
    fail the claim but not confirm it. slow claims are left out by --fast, headline ones stand in
    README. fitted, because, direction, sensitivity and ablation are explained at their classes and
    in sim.claims.judge.
    """

    id: str
    source: str
    where: str
    statement: str
    setting: dict[str, Any] = Field(default_factory=dict)
    kind: Kind
    priority: int = Field(ge=1, le=5)
    evidence: str
    expected: Any
    comparator: Comparator
    tolerance: float | dict[str, float] = 0.0
    unit: str = ""
    out_of_scope: str | None = None
    measured_by: Measure | None = None
    fitted: str | None = None
    direction: list[str] = Field(default_factory=list)
    sensitivity: list[Sensitivity] = Field(default_factory=list)
    because: str | None = None
    ablation: list[Ablation] = Field(default_factory=list)
    data: list[str] = Field(default_factory=list)
    partial: bool = False
    slow: bool = False
    headline: bool = False
    notes: str = ""


class _Source(Strict):
    title: str
    ref: str


class _File(Strict):
    sources: dict[str, _Source] = Field(default_factory=dict)
    claims: list[Statement]


@dataclass(frozen=True)
class Claim:
    """A statement, its source's title and reference, and the file it stands in."""

    stated: Statement
    title: str
    ref: str
    file: Path

    @property
    def id(self) -> str:
        """The claim's name, unique among all files."""
        return self.stated.id

    def path(self, experiment: str) -> Path:
        """The experiment file that a measure of this claim names."""
        return (self.file.parent / experiment).resolve()

    def experiments(self, entry: Measure | Sensitivity) -> list[Path]:
        """The experiment files that one of its measures needs."""
        names = [entry.experiment, *(where.get(FROM) for where in (entry.rows or {}).values())]
        return [self.path(name) for name in names if name is not None]

    def all_experiments(self) -> list[Path]:
        """The experiment files that measure it, vary it or test its explanation, each once."""
        stated = self.stated
        if stated.measured_by is None:
            return []
        entries: list[Measure | Sensitivity] = [stated.measured_by]
        entries += [*stated.sensitivity, *stated.ablation]
        return list(dict.fromkeys(path for entry in entries for path in self.experiments(entry)))


def load_claims(folder: Path) -> list[Claim]:
    """All claims of a folder's *.yaml files, but not of folders in it.

    Raises ConfigError with one line for each error.
    """
    files = sorted(folder.glob("*.yaml"))
    if not files:
        raise ConfigError([f"{folder}: holds no *.yaml; accepted: a folder of claims"])
    errors: list[str] = []
    found: dict[str, Claim] = {}
    for file in files:
        document = read_document(file)

        def report(path: KeyPath, sentence: str, document: Document = document) -> None:
            errors.append(f"{document.place(path)}: {_named(document.data, path)}: {sentence}")

        read = validate(_File, document.data, (), report)
        if not isinstance(read, _File):
            continue
        for number, stated in enumerate(read.claims):
            path: KeyPath = ("claims", number)
            source = read.sources.get(stated.source)
            if source is None:
                names = list(read.sources)
                report((*path, "source"), f"{stated.source!r} is no source{guess('', names)}")
                continue
            claim = Claim(stated, source.title, source.ref, file)
            if stated.id in found:
                report(
                    (*path, "id"), f"{stated.id} is stated twice, first in {found[stated.id].file}"
                )
            found.setdefault(stated.id, claim)
            _check(claim, path, report)
    if errors:
        raise ConfigError(errors)
    return list(found.values())


def _named(data: Any, path: KeyPath) -> str:
    """A path with the claim's id in place of its number."""
    try:
        name = data["claims"][path[1]]["id"]
    except (KeyError, IndexError, TypeError):
        return dotted(path)
    return ".".join([str(name), *map(str, path[2:])])


def _check(claim: Claim, path: KeyPath, report: Any) -> None:
    """What a model of keys cannot say."""
    stated = claim.stated
    if (stated.measured_by is None) == (stated.out_of_scope is None):
        report(path, "needs either measured_by or out_of_scope")
    for name in stated.data:
        if name not in public_traces():
            report((*path, "data"), f"unknown trace {name!r}{guess(name, list(public_traces()))}")
    measures: dict[str, Sequence[Measure | Sensitivity]] = {
        "measured_by": [stated.measured_by] if stated.measured_by else [],
        "sensitivity": stated.sensitivity,
        "ablation": stated.ablation,
    }
    for key, entries in measures.items():
        for entry in entries:
            if isinstance(entry, Measure) or not entry.limits:
                _check_measure(claim, entry, (*path, key), report)
            elif stated.measured_by is None or stated.measured_by.knee is None:
                report((*path, key, "limits"), "needs a claim that is measured by a knee")


def _check_measure(claim: Claim, entry: Measure | Sensitivity, path: KeyPath, report: Any) -> None:
    probe = getattr(entry, "probe", None)
    if (probe is None) == (entry.experiment is None):
        report(path, "needs either a probe or an experiment")
    elif probe is not None and probe not in PROBES:
        report((*path, "probe"), f"unknown probe {probe!r}{guess(probe, list(PROBES))}")
    elif entry.experiment is not None:
        for file in claim.experiments(entry):
            if not file.is_file():
                report((*path, "experiment"), f"{file}: no such file")
        if isinstance(entry, Sensitivity) and entry.over is None:
            report(path, "needs over, the column that varies, or limits")
        if isinstance(entry, Measure) and not (entry.rows and entry.values):
            report(path, "an experiment needs rows and values")
