"""experiment.json: what an experiment was, and which runs it had."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, AliasChoices, BaseModel, ConfigDict, Field, ValidationError

from sim.results.files import ResultsError
from sim.stored.files import read_json, sentence_of

NAME = "experiment.json"
ACCEPTED = "accepted: a folder that kvsim run has written, or kvsim capacity --slo"
MAX_NAME = 255  # bytes of a file's name


def _in_folder(name: str) -> str:
    """The name of a file or folder that leads nowhere else."""
    leads_out = name in {"", ".", ".."} or any(sign in name for sign in "/\\\0")
    if leads_out or len(name.encode("utf-8")) > MAX_NAME:
        raise ValueError(f"{name[:40]!r} is no name of a file")
    return name


def _different(names: list[str]) -> list[str]:
    if len(set(names)) < len(names):
        raise ValueError("names one twice")
    return names


Names = Annotated[list[Annotated[str, AfterValidator(_in_folder)]], AfterValidator(_different)]


class Facts(BaseModel):
    """What a folder of results says of itself.

    config is the resolved experiment. file and overrides are what it was loaded from, and
    cost_errors how far its times are off, None in results that do not say. runs and figures are
    those of kvsim run; slo, and what else was asked, of kvsim capacity --slo.
    """

    model_config = ConfigDict(strict=True, frozen=True, extra="ignore", allow_inf_nan=False)

    name: str = Field(validation_alias=AliasChoices("name", "experiment"))
    config: dict[str, Any]
    cost_source: str
    description: str = ""
    budget: list[str] = Field(default_factory=list)
    file: str = ""
    overrides: list[str] = Field(default_factory=list)
    cost_errors: list[str] | None = None
    runs: Names = Field(default_factory=list)
    figures: Names = Field(default_factory=list)

    slo: list[str] = Field(default_factory=list)
    num_measured: int | None = None
    seeds: int | None = None
    agree: int | None = None
    tolerance: float | None = None
    price_per_hour: float | None = None

    @property
    def is_search(self) -> bool:
        """Whether it is a search of capacities, which has rates instead of runs."""
        return bool(self.slo)


def read_facts(folder: Path) -> Facts:
    """experiment.json of a folder. Raises ResultsError if it holds no finished experiment."""
    path = folder / NAME
    if not folder.is_dir():
        raise ResultsError(f"{folder}: no such folder; {ACCEPTED}")
    try:
        facts = Facts.model_validate(read_json(path, ACCEPTED))
    except ValidationError as error:
        raise ResultsError(f"{path}: {sentence_of(error)}; {ACCEPTED}") from None
    if not facts.is_search and not facts.runs:
        raise ResultsError(f"{path}: names no runs; {ACCEPTED}")
    return facts
