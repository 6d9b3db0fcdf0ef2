"""The record of kvsim claims: verdicts.json."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from sim.results.files import ResultsError
from sim.stored.files import read_json, sentence_of

ACCEPTED = "kvsim claims --record makes it"


class _Kept(BaseModel):
    model_config = ConfigDict(strict=True, extra="allow")


class _Measured(_Kept):
    mean: Any
    sd: float | None


class _Variation(_Kept):
    setting: str
    measured: dict[str, _Measured]
    problem: str = ""


class _Sensitivity(_Kept):
    parameter: str
    values: list[_Variation]


class _Verdict(_Kept):
    """A claim as sim.claims.record writes it; keys that only some pages show may be absent."""

    id: str
    verdict: str
    expected: Any
    comparator: str
    tolerance: float | dict[str, float] | None
    unit: str
    measured: dict[str, _Measured]
    source: str = ""
    title: str = ""
    ref: str = ""
    where: str = ""
    statement: str = ""
    is_relative: bool = False
    misses: list[str] = Field(default_factory=list)
    note: str = ""
    notes: str = ""
    because: str = ""
    experiments: list[str] = Field(default_factory=list)
    sensitivity: list[_Sensitivity] = Field(default_factory=list)
    ablation: list[_Variation] = Field(default_factory=list)


class _Record(_Kept):
    claims: list[_Verdict]


def read_verdicts(path: Path) -> list[dict[str, Any]]:
    """The claims of the record as plain data, in its order. Raises ResultsError."""
    data = read_json(path, ACCEPTED)
    try:
        _Record.model_validate(data)
    except ValidationError as error:
        raise ResultsError(f"{path}: {sentence_of(error)}; {ACCEPTED}") from None
    claims: list[dict[str, Any]] = data["claims"]
    return claims
