"""What of a folder of results a page shows. Nothing of it but experiment.json has to be there.

What is missing or cannot be read is a sentence of `Read.missing`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from sim.report.figures import Figure
from sim.report.tables import Table, read_csv
from sim.results.files import ResultsError
from sim.stored import Facts, Stored, open_folder
from sim.stored.runs import Manifest
from sim.stored.verdicts import read_verdicts

Found = TypeVar("Found")
NO_RUNS = (
    "the folder of single runs is not here, so nothing is known of the machine, the versions, and "
    "what was changed in the trace; run the experiment again to have it"
)


@dataclass(frozen=True)
class Read:
    """An experiment's results.

    runs, points, rates (of a capacity search) are None where there is no such file. manifests and
    replicas are keyed by run. claims are the entries of the record that this experiment serves.
    missing says what a complete folder would have.
    """

    stored: Stored
    runs: Table | None
    points: Table | None
    rates: Table | None
    manifests: dict[str, Manifest]
    replicas: dict[str, Table]
    figures: list[Figure]
    claims: list[dict[str, Any]]
    missing: list[str] = field(default_factory=list)

    @property
    def facts(self) -> Facts:
        """What experiment.json says."""
        return self.stored.facts


def text_of(data: dict[str, Any], key: str) -> str:
    """A value that is a text; "" if it is none."""
    value = data.get(key)
    return value if isinstance(value, str) else ""


def texts_of(data: dict[str, Any], key: str) -> list[str]:
    """A value that is a list of texts; what is none in it is left out."""
    value = data.get(key)
    return [item for item in value if isinstance(item, str)] if isinstance(value, list) else []


def read_results(folder: Path) -> Read:
    """Read a folder. Raises ResultsError if it holds no finished experiment."""
    stored = open_folder(folder)
    missing: list[str] = []

    def asked(read: Callable[..., Found], *arguments: object) -> Found | None:
        """What is read, or None and a sentence why it is not."""
        try:
            return read(*arguments)
        except ResultsError as error:
            missing.append(str(error).replace(f"{folder}/", ""))
            return None

    runs = points = rates = None
    if stored.facts.is_search:
        rates = asked(lambda: _table(stored.rates, stored.path("capacity_rates")))
    else:
        runs = asked(lambda: _table(stored.summary, stored.path("summary")))
        points = asked(lambda: _table(stored.points, stored.path("points")))
    manifests = asked(_manifests, stored, missing) or {}
    replicas = {run: asked(_replicas, stored, run) for run in manifests}
    known = {run: table for run, table in replicas.items() if table is not None}
    names = ["capacity_rates"] if stored.facts.is_search else stored.facts.figures
    figures = read_figures(folder / "figures", names, missing)
    path = folder.parent / "claims" / "verdicts.json"
    entries = (asked(read_verdicts, path) if path.exists() else None) or []
    claims = [one for one in entries if stored.facts.name in texts_of(one, "experiments")]
    return Read(stored, runs, points, rates, manifests, known, figures, claims, missing)


def _table(checked: object, path: Path) -> Table | None:
    """A file as a page shows it, digit by digit, once the reader has found it right."""
    return None if checked is None else read_csv(path)


def _manifests(stored: Stored, missing: list[str]) -> dict[str, Manifest]:
    """The manifests of the runs that are those of the summary. Raises ResultsError."""
    if stored.facts.is_search:
        return {}
    if not stored.has_runs:
        missing.append(NO_RUNS)
        return {}
    if stored.lost:
        missing.append(
            f"{len(stored.lost)} of {len(stored.facts.runs)} runs were removed or made anew since "
            f"the summary, the first is {stored.lost[0]}; run the experiment again"
        )
    return stored.manifests


def _replicas(stored: Stored, run: str) -> Table | None:
    """A row for each replica of a run, if it has any. Raises ResultsError."""
    return _table(stored.table(run, "replicas"), stored.folder / "runs" / run / "replicas.csv")


def read_figures(folder: Path, names: list[str], missing: list[str]) -> list[Figure]:
    """The named figures, then whatever else was drawn there."""
    others = sorted(path.stem for path in folder.glob("*.svg")) if folder.is_dir() else []
    found = []
    for name in dict.fromkeys([*names, *others]):
        figure = Figure(name, folder, _points(folder / f"{name}.csv"))
        if figure.svg_path.is_file() or figure.png_path.is_file():
            found.append(figure)
        else:
            missing.append(f"figures/{name}.svg is not there; kvsim plot draws it again")
    return found


def _points(path: Path) -> Table | None:
    """The plotted points of a figure, None if they are not there: the figure says so."""
    try:
        return read_csv(path)
    except ResultsError:
        return None
