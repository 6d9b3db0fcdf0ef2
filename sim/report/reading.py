"""What a folder of results holds. Nothing of it but experiment.json has to be there.

What is missing or cannot be read is a sentence of `Read.missing`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sim.report.figures import Figure
from sim.report.tables import Table, read_csv
from sim.results import MANIFEST, ResultsError

Facts = dict[str, Any]
SAY = "accepted: a folder that kvsim run, or kvsim capacity --slo, has written"


@dataclass(frozen=True)
class Read:
    """An experiment's results.

    facts is experiment.json. runs, points, rates (of a capacity search) are None where there is no
    such file. manifests and replicas are keyed by run. claims are the entries of the record that
    this experiment serves. missing says what a complete folder would have.
    """

    folder: Path
    facts: Facts
    runs: Table | None
    points: Table | None
    rates: Table | None
    manifests: dict[str, Facts]
    replicas: dict[str, Table]
    figures: list[Figure]
    claims: list[Facts]
    missing: list[str] = field(default_factory=list)

    @property
    def name(self) -> str:
        """The experiment's."""
        return text_of(self.facts, "name") or text_of(self.facts, "experiment") or self.folder.name


def text_of(facts: Facts, key: str) -> str:
    """A fact that is a text; "" if it is none."""
    value = facts.get(key)
    return value if isinstance(value, str) else ""


def texts_of(facts: Facts, key: str) -> list[str]:
    """A fact that is a list of texts; what is none in it is left out."""
    value = facts.get(key)
    return [item for item in value if isinstance(item, str)] if isinstance(value, list) else []


def read_results(folder: Path) -> Read:
    """Read a folder. Raises ResultsError if it holds no finished experiment."""
    facts = read_experiment(folder)
    missing: list[str] = []
    is_search = (folder / "capacity_rates.csv").exists()
    runs = None if is_search else read_csv(folder / "summary.csv", missing)
    points_path = folder / "points.csv"
    manifests, replicas = _of_runs(folder, facts, missing)
    read = Read(
        folder,
        facts,
        runs,
        read_csv(points_path, missing) if points_path.exists() else None,
        read_csv(folder / "capacity_rates.csv", missing) if is_search else None,
        manifests,
        replicas,
        read_figures(folder / "figures", _figure_names(facts, is_search), missing),
        [],
        missing,
    )
    read.claims.extend(_claims_of(read.name, folder.parent / "claims" / "verdicts.json", missing))
    return read


def read_experiment(folder: Path) -> Facts:
    """experiment.json. Raises ResultsError if it is not there or is none."""
    path = folder / "experiment.json"
    if not folder.is_dir():
        raise ResultsError(f"{folder}: no such folder; {SAY}")
    try:
        facts = json.loads(path.read_text(encoding="utf-8", errors="replace"))
    except OSError as error:
        raise ResultsError(f"{path}: {error.strerror}; {SAY}") from None
    except (ValueError, RecursionError):
        raise ResultsError(f"{path}: is not what kvsim run writes; {SAY}") from None
    if not isinstance(facts, dict) or not {"name", "experiment"} & facts.keys():
        raise ResultsError(f"{path}: is not what kvsim run writes; {SAY}")
    return facts


def read_verdicts(path: Path) -> list[Facts]:
    """The record of verdicts, entries that are none left out. Raises ResultsError."""
    try:
        entries = json.loads(path.read_text(encoding="utf-8", errors="replace"))["claims"]
    except OSError as error:
        raise ResultsError(f"{path}: {error.strerror}; kvsim claims --record makes it") from None
    except (ValueError, KeyError, TypeError, RecursionError):
        raise ResultsError(f"{path}: is not what kvsim claims --record writes") from None
    if not isinstance(entries, list):
        raise ResultsError(f"{path}: is not what kvsim claims --record writes")
    needed = ("id", "verdict", "expected", "comparator", "tolerance", "unit", "measured")
    for number, entry in enumerate(entries, 1):
        absent = [key for key in needed if not isinstance(entry, dict) or key not in entry]
        if absent:
            raise ResultsError(f"{path}: claim {number}: {absent[0]} is missing")
    return entries


def read_figures(folder: Path, names: list[str], missing: list[str]) -> list[Figure]:
    """The named figures, then whatever else was drawn there."""
    others = sorted(path.stem for path in folder.glob("*.svg")) if folder.is_dir() else []
    found = []
    for name in dict.fromkeys([*names, *others]):
        figure = Figure(name, folder, read_csv(folder / f"{name}.csv", []))
        if figure.svg_path.is_file() or figure.png_path.is_file():
            found.append(figure)
        else:
            missing.append(f"figures/{name}.svg is not there; kvsim plot draws it again")
    return found


def _figure_names(facts: Facts, is_search: bool) -> list[str]:
    """The figures that the experiment names; a name that leads elsewhere is none."""
    names = ["capacity_rates"] if is_search else texts_of(facts, "figures")
    return [name for name in names if name.replace("_", "").isalnum()]


def _of_runs(
    folder: Path, facts: Facts, missing: list[str]
) -> tuple[dict[str, Facts], dict[str, Table]]:
    """Manifests and tables of replicas, of runs that are those of the summary."""
    runs = texts_of(facts, "runs")
    try:
        keys = dict(json.loads((folder / "runs" / "keys.json").read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        if runs:
            missing.append(
                "the folder of single runs is not here, so nothing is known of the machine, the "
                "versions, and what was changed in the trace; run the experiment again to have it"
            )
        return {}, {}
    manifests: dict[str, Facts] = {}
    replicas: dict[str, Table] = {}
    absent = []
    for run, own in _run_folders(folder, runs):
        if keys.get(run) is None:
            continue  # failed or skipped: it has no files
        manifest = _manifest(own / MANIFEST)
        if manifest is None or manifest.get("key") != keys[run]:
            absent.append(run)
            continue
        manifests[run] = manifest
        if (own / "replicas.csv").exists():
            table = read_csv(own / "replicas.csv", missing)
            if table is not None:
                replicas[run] = table
    if absent:
        missing.append(
            f"{len(absent)} of {len(runs)} runs were removed or made anew since the summary, "
            f"the first is {absent[0]}; run the experiment again"
        )
    return manifests, replicas


def _run_folders(folder: Path, runs: list[str]) -> Iterator[tuple[str, Path]]:
    """Each run with its folder; a name that leads out of the folder of runs is none."""
    for run in runs:
        if "/" not in run and "\\" not in run and "\0" not in run and run not in {"", ".", ".."}:
            yield run, folder / "runs" / run


def _manifest(path: Path) -> Facts | None:
    try:
        manifest = json.loads(path.read_text(encoding="utf-8", errors="replace"))
    except (OSError, ValueError, RecursionError):
        return None
    return manifest if isinstance(manifest, dict) else None


def _claims_of(name: str, path: Path, missing: list[str]) -> list[Facts]:
    """The claims that an experiment serves; none without a record."""
    if not path.exists():
        return []
    try:
        return [one for one in read_verdicts(path) if name in texts_of(one, "experiments")]
    except ResultsError as error:
        missing.append(str(error))
        return []
