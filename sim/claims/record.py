"""Verdicts on disk: what `kvsim claims` found the last time somebody looked at it and kept it.

verdicts.json is {claims: [{id, verdict, …}]} in the order of the claims, without times, so that
the same results write the same bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sim.claims.expressions import Values
from sim.claims.judge import (
    UNMEASURED,
    has_relative_tolerance,
    judge,
    mean,
    spread,
)
from sim.claims.measure import Tables, Variation, ablate, absent_data, measure, variations
from sim.claims.statement import Claim
from sim.claims.verdicts import NO_DATA, OUT_OF_SCOPE
from sim.results.files import write_json
from sim.stored.verdicts import read_verdicts

DIGITS = 6


@dataclass(frozen=True)
class Judged:
    """A claim with its verdict and what it rests on, as plain data.

    measured maps leaves to {mean, sd, seeds}; misses are phrases; sensitivity and ablation are
    lists of {parameter or what, …, measured}.
    """

    claim: Claim
    verdict: str
    measured: dict[str, dict[str, Any]] = field(default_factory=dict)
    misses: list[str] = field(default_factory=list)
    note: str = ""
    sensitivity: list[dict[str, Any]] = field(default_factory=list)
    ablation: list[dict[str, Any]] = field(default_factory=list)

    def as_data(self) -> dict[str, Any]:
        """The claim as `--json` and the record have it."""
        stated = self.claim.stated
        return {
            "id": stated.id,
            "source": stated.source,
            "title": self.claim.title,
            "ref": self.claim.ref,
            "where": stated.where,
            "statement": stated.statement,
            "kind": stated.kind,
            "priority": stated.priority,
            "verdict": self.verdict,
            "expected": stated.expected,
            "comparator": stated.comparator,
            "tolerance": stated.tolerance,
            "is_relative": has_relative_tolerance(stated),
            "unit": stated.unit,
            "measured": self.measured,
            "misses": self.misses,
            "note": self.note,
            "notes": stated.notes,
            "because": stated.because or "",
            "experiments": [path.stem for path in self.claim.all_experiments()],
            "sensitivity": self.sensitivity,
            "ablation": self.ablation,
        }


def judge_claim(claim: Claim, tables: Tables) -> Judged:
    """Measure a claim and judge it."""
    stated = claim.stated
    if stated.out_of_scope is not None:
        return Judged(claim, OUT_OF_SCOPE, note=stated.out_of_scope)
    absent = absent_data(claim)
    how = "; ".join(f"kvsim trace fetch {name}" for name in absent)
    if absent and (not stated.partial or len(absent) == len(stated.data)):
        return Judged(claim, NO_DATA, note=how)
    measured = measure(claim, tables)
    verdict, misses = judge(stated, measured)
    if absent:
        misses = [miss for miss in misses if not miss.endswith(UNMEASURED)]
        verdict = verdict if misses else NO_DATA
    sensitivity = [
        {
            "parameter": entry.parameter,
            "values": [_variation(found) for found in variations(claim, entry, tables)],
        }
        for entry in stated.sensitivity
    ]
    ablation = [_variation(ablate(claim, entry, tables)) for entry in stated.ablation]
    note = "; ".join(text for text in (measured.vacuous, stated.fitted, how) if text)
    return Judged(claim, verdict, _means(measured.values), misses, note, sensitivity, ablation)


def _variation(found: Variation) -> dict[str, Any]:
    data: dict[str, Any] = {"setting": found.label, "measured": _means(found.values)}
    return {**data, "problem": found.problem} if found.problem else data


def _means(values: Values) -> dict[str, dict[str, Any]]:
    return {
        name: {"mean": _rounded(mean(of)), "sd": _rounded(spread(of)), "seeds": len(of)}
        for name, of in values.items()
    }


def _rounded(value: Any) -> Any:
    """Floats to a few digits: the last ones differ between machines."""
    return float(f"{value:.{DIGITS}g}") if isinstance(value, float) else value


def write_record(path: Path, judged: Sequence[Judged]) -> None:
    """Keep verdicts. Raises ResultsError."""
    write_json(path, {"claims": [one.as_data() for one in judged]})


def read_record(path: Path, claims: Sequence[Claim]) -> list[Judged]:
    """The kept verdicts of claims, in their order; claims without one are left out.

    Raises ResultsError if the file cannot be read.
    """
    entries = {entry["id"]: entry for entry in read_verdicts(path)}
    return [_judged(claim, entries[claim.id]) for claim in claims if claim.id in entries]


def _judged(claim: Claim, entry: dict[str, Any]) -> Judged:
    kept = ("measured", "misses", "note", "sensitivity", "ablation")
    return Judged(claim, entry["verdict"], **{key: entry[key] for key in kept if key in entry})


def keeping(judged: Sequence[Judged], recorded: Sequence[Judged]) -> tuple[list[Judged], list[str]]:
    """What to record, and a sentence for each claim that could not be measured again.

    Of claims whose data is not here now, what was recorded where it was stays.
    """
    before = {one.claim.id: one for one in recorded}
    result, sentences = [], []
    for one in judged:
        old = before.get(one.claim.id, one)
        is_kept = one.verdict == NO_DATA and (
            old.verdict != NO_DATA or len(old.measured) > len(one.measured)
        )
        result.append(old if is_kept else one)
        if is_kept:
            sentences.append(f"{one.claim.id}: {NO_DATA}, what is recorded stays: {one.note}")
    return result, sentences


def regressions(judged: Sequence[Judged], recorded: Sequence[Judged]) -> list[str]:
    """Claims whose verdict is not the recorded one, a sentence each.

    Data that is not here says nothing about a verdict found where it was.
    """
    before = {one.claim.id: one.verdict for one in recorded}
    return [
        f"{one.claim.id}: {one.verdict}, recorded is {before.get(one.claim.id, 'nothing')}"
        for one in judged
        if one.verdict not in {before.get(one.claim.id), NO_DATA}
    ]
