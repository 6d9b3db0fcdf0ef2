"""Runs what measures claims: each experiment once for all of its claims, and probes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pandas as pd

from sim.allocators.terms import ConservationError
from sim.claims.expressions import (
    Frames,
    MeasureError,
    Values,
    evaluate,
    frames,
    queued_time_frac,
    too_little_queued,
)
from sim.claims.probes import PROBES
from sim.claims.probes.results import Seeds, Vacuous
from sim.claims.statement import FROM, Ablation, Claim, Measure, Sensitivity
from sim.claims.text import leaves
from sim.config.experiment import load_experiment
from sim.runs.outcome import run_and_write
from sim.runs.runner import RunOptions
from workloads.publictraces import AbsentTraceError, find

Tables = dict[Path, pd.DataFrame]


@dataclass(frozen=True)
class Measured:
    """What a measure found: for every leaf of the expected value one value a seed.

    directions are the claim's expressions of direction, likewise. vacuous says why nothing could
    have failed. queued_time_frac is given where averages over queued iterations are used. problem
    says why there are no values.
    """

    values: Values = field(default_factory=dict)
    directions: list[bool] = field(default_factory=list)
    vacuous: str = ""
    queued_time_frac: float | None = None
    problem: str = ""


@dataclass(frozen=True)
class Variation:
    """Values at one setting of a sensitivity, or of an ablation; label says which."""

    label: str
    values: Values
    problem: str = ""


def absent_data(claim: Claim) -> list[str]:
    """The traces a claim needs that are not on this machine."""
    absent = []
    for name in claim.stated.data:
        try:
            find(name)
        except AbsentTraceError:
            absent.append(name)
    return absent


def experiments_of(claims: Sequence[Claim]) -> list[Path]:
    """The experiment files that claims need and can be run, each once."""
    found: dict[Path, None] = {}
    for claim in claims:
        if not absent_data(claim) or claim.stated.partial:
            found |= dict.fromkeys(claim.all_experiments())
    return list(found)


def run_all(
    claims: Sequence[Claim], results: Path, jobs: int, say: Callable[[str], None]
) -> Tables:
    """The summary of every experiment that claims need; runs that are done are not made again.

    Raises ConfigError or ResultsError.
    """
    tables: Tables = {}
    for path in experiments_of(claims):
        experiment = load_experiment(path)
        say(f"{experiment.name}: {len(experiment.runs())} runs")
        folder = results / experiment.name
        outcome = run_and_write(experiment, folder, RunOptions(jobs), draws=False)
        tables[path] = pd.DataFrame(outcome.rows)
    return tables


def measure(claim: Claim, tables: Tables) -> Measured:
    """What the claim's measure finds; a problem instead of values if that is impossible."""
    by = claim.stated.measured_by
    assert by is not None
    try:
        if by.probe is not None:
            return _probe(by)
        found = _frames(claim, by, tables)
        texts = _expressions(by.values)
        values = {name: evaluate(text, found) for name, text in texts.items()}
        directions = [all(evaluate(text, found)) for text in claim.stated.direction]
        queued = queued_time_frac(list(texts.values()), found)
        return Measured(values, directions, queued_time_frac=queued)
    except MeasureError as error:
        return Measured(problem=str(error))


def variations(claim: Claim, entry: Sensitivity, tables: Tables) -> list[Variation]:
    """The claim's values at each setting of an open parameter."""
    by = claim.stated.measured_by
    assert by is not None
    if entry.limits:
        limited = [(f"{limit:g}", _limited(by, limit)) for limit in entry.limits]
        return [_variation(label, claim, one, tables) for label, one in limited]
    path = claim.path(str(entry.experiment))
    table = tables[path]
    if entry.over not in table:
        return [Variation(entry.parameter, {}, f"{entry.experiment} varies no {entry.over!r}")]
    varied = Measure(
        experiment=entry.experiment,
        rows=by.rows if entry.rows is None else entry.rows,
        values=by.values if entry.values is None else entry.values,
        knee=by.knee if entry.values is None else entry.knee,
    )
    result = []
    for setting in table[entry.over].dropna().unique():
        part = {**tables, path: table[table[entry.over] == setting]}
        result.append(_variation(str(setting), claim, varied, part))
    return result


def _limited(by: Measure, limit: float) -> Measure:
    """A measure with another limit of its knee."""
    assert by.knee is not None
    return by.model_copy(update={"knee": by.knee.model_copy(update={"limit": limit})})


def ablate(claim: Claim, entry: Ablation, tables: Tables) -> Variation:
    """What an ablation of the claim finds."""
    return _variation(entry.what, claim, entry, tables)


def _variation(label: str, claim: Claim, by: Measure, tables: Tables) -> Variation:
    try:
        if by.probe is not None:
            return Variation(label, _probe(by).values)
        found = _frames(claim, by, tables)
        texts = _expressions(by.values)
        values = {name: evaluate(text, found) for name, text in texts.items()}
        queued = queued_time_frac(list(texts.values()), found)
        return Variation(label, values, too_little_queued(queued))
    except MeasureError as error:
        return Variation(label, {}, str(error))


def _frames(claim: Claim, by: Measure, tables: Tables) -> Frames:
    """The rows of every name, of the experiment or of the one that they are from."""
    found: Frames = {}
    for name, where in by.rows.items():
        columns = {key: value for key, value in where.items() if key != FROM}
        table = tables[claim.path(where.get(FROM) or str(by.experiment))]
        found |= frames(table, {name: columns}, by.knee)
    return found


def _expressions(values: dict[str, str] | str | None) -> dict[str, str]:
    """Expressions by the leaf of the expected value that they measure."""
    if values is None:
        return {}
    return values if isinstance(values, dict) else {"": values}


def _probe(by: Measure) -> Measured:
    assert by.probe is not None
    try:
        found = PROBES[by.probe](**by.arguments)
    except (TypeError, ValueError, KeyError, ConservationError) as error:
        raise MeasureError(f"probe {by.probe}: {error}") from None
    why = ""
    if isinstance(found, Vacuous):
        why = found.why
        found = found.value
    values = {
        name: list(leaf.values) if isinstance(leaf, Seeds) else [leaf]
        for name, leaf in leaves(found).items()
    }
    return Measured(values, vacuous=why)
