"""Experiments from a file or a mapping: loaded, run, and swept."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any

import pandas as pd

from sim.config.experiment import Experiment, resolve_experiment
from sim.config.overrides import set_value
from sim.config.point import PLUGINS
from sim.config.runspec import RunSpec
from sim.config.yaml_nodes import ConfigError, Document, KeyPath, dotted, read_document
from sim.library.plain import MAIN, count_of, flag, mapping_of, path_of, plain
from sim.library.results import Results, read, read_and_keep
from sim.metrics.points import OWN, points_table
from sim.runs.outcome import run_and_write
from sim.runs.runner import RunOptions

Source = str | PathLike[str] | Mapping[str, Any]
NAME = "experiment"  # of a mapping that has none
MAX_JOBS = 1024
DOTTED = "dotted keys and their values"
FOLDER = "the path of a folder"


def load(experiment: Source | Experiment, overrides: Mapping[str, Any] | None = None) -> Experiment:
    """Read an experiment and check everything in it; nothing is run.

    experiment is the path of a YAML file, or a mapping with the keys of one; `name` may be left
    out, and a class may stand where a file has "module:Class". Relative paths start at the file's
    folder, in a mapping at the current folder. overrides are dotted keys and their values. Raises
    ConfigError with one line for each error.

    >>> import sim
    >>> experiment = sim.load({
    ...     "kv_cache": {"num_slots": 256},
    ...     "workload": {"kind": "inline", "requests": [{"prompt_tokens": 9, "output_tokens": 2}]},
    ...     "allocator": {"kind": "paged"},
    ... }, {"allocator.block_size": 32})
    >>> [run.run_id for run in experiment.runs()]
    ['paged-seed=0']
    >>> experiment.config["allocator"][0]["block_size"]
    32
    >>> sim.load({"allocator": {"kind": "pagd"}})
    Traceback (most recent call last):
    ...
    sim.config.yaml_nodes.ConfigError: experiment: ...
    """
    if isinstance(experiment, Experiment):
        if overrides:
            raise ConfigError(["overrides: the experiment is loaded already"])
        return experiment
    changes = mapping_of({} if overrides is None else overrides, "overrides", DOTTED)
    return _resolved(*_document(experiment), changes, "overrides")


def run(
    experiment: Source | Experiment,
    folder: str | PathLike[str] | None = None,
    overrides: Mapping[str, Any] | None = None,
    jobs: int = 1,
    force: bool = False,
    check: bool = False,
) -> Results:
    """Run an experiment: all its runs, jobs of them at a time.

    Into a folder it writes what `kvsim run` does, figures too, and makes only the runs that are
    not there yet (force: all of them). Without one nothing stays: tables live as long as the
    results do. check verifies every allocator operation. A run that fails is a row with its
    reason, see `Results.problems`. Raises ConfigError, and ResultsError if files cannot be
    written.

    >>> import sim
    >>> results = sim.run({
    ...     "kv_cache": {"num_slots": 256},
    ...     "workload": {"kind": "inline", "requests": [{"prompt_tokens": 9, "output_tokens": 2}]},
    ...     "allocator": {"kind": "paged"},
    ...     "cost": {"kind": "constant", "seconds": 0.5},
    ... })
    >>> results.requests()[["prompt_tokens", "first_token_s", "finish_s"]].to_dict("records")
    [{'prompt_tokens': 9, 'first_token_s': 0.5, 'finish_s': 1.0}]
    >>> results.problems
    []
    """
    loaded, jobs = load(experiment, overrides), count_of(jobs)
    _check_jobs(loaded, jobs)
    try:
        flags = flag("force", force), flag("check", check)
    except ValueError as error:
        raise ConfigError([str(error)]) from None
    return _made(loaded, folder, RunOptions(jobs, *flags, progress="none"))[0]


def _made(
    experiment: Experiment, folder: str | PathLike[str] | None, options: RunOptions
) -> tuple[Results, list[dict[str, Any]]]:
    """The results of an experiment, and the rows of its summary as they were measured."""
    if folder is not None:
        outcome = run_and_write(experiment, path_of(folder, "folder", FOLDER), options)
        return read(folder), outcome.rows
    place = Path(tempfile.mkdtemp(prefix="kvsim-"))
    try:
        outcome = run_and_write(experiment, place, options, draws=False)
        return read_and_keep(place), outcome.rows
    except BaseException:
        shutil.rmtree(place, ignore_errors=True)
        raise


def sweep(
    experiment: Source,
    axes: Mapping[str, Any],
    seeds: int | Sequence[int] | None = None,
    jobs: int = 1,
    folder: str | PathLike[str] | None = None,
) -> pd.DataFrame:
    """Run an experiment for every combination of some keys' values; one row a point.

    axes maps dotted keys to lists of values, beside those that the experiment sweeps already, or
    is anything else that `sweep:` may say. The columns are those of points.csv: what tells points
    apart, num_seeds, num_not_finished, and of every metric its mean over seeds, _sd, and _low and
    _high, the 95 % interval of the mean. `reason` says why a point has no measurements. Raises
    as `run`.

    >>> import sim
    >>> requests = {"kind": "sharegpt", "num_requests": 20, "arrivals": {"kind": "all_at_once"}}
    >>> base = {
    ...     "kv_cache": {"num_slots": 4096},
    ...     "workload": requests,
    ...     "allocator": {"kind": "paged"},
    ... }
    >>> points = sim.sweep(base, {"allocator.block_size": [8, 64]}, seeds=2)
    >>> points[["allocator.block_size", "num_seeds"]].to_dict("records")
    [{'allocator.block_size': 8, 'num_seeds': 2}, {'allocator.block_size': 64, 'num_seeds': 2}]
    >>> points["internal_frac"].is_monotonic_increasing
    True
    """
    axes = mapping_of(axes, "axes", "dotted keys and lists of their values")
    document, start = _document(experiment)
    own = document.data.get("sweep") or {}
    changes: dict[str, Any] = {"sweep": {**own, **axes} if isinstance(own, dict) else axes}
    if seeds is not None:
        changes["seeds"] = seeds
    loaded, jobs = _resolved(document, start, changes, "sweep"), count_of(jobs)
    _check_jobs(loaded, jobs)
    _, rows = _made(loaded, folder, RunOptions(jobs, progress="none"))
    cells = [name for name in loaded.runs()[0].cells if name not in OWN]
    points = points_table(rows, cells)
    reasons: dict[str, str] = {}  # of each point, in the order of the table
    for row in rows:
        point = json.dumps([row.get(cell) for cell in cells])
        reasons[point] = reasons.get(point) or row.get("reason") or ""
    place = list(points.columns).index("num_not_finished") + 1
    points.insert(place, "reason", list(reasons.values()))
    return points


def _document(source: Source) -> tuple[Document, Path]:
    """An experiment as plain data, and where its paths start. Raises ConfigError."""
    if not isinstance(source, Mapping):
        path = path_of(source, NAME, "a mapping, or the path of a YAML file")
        return read_document(path), path.parent
    document = Document({}, NAME)
    problems: list[str] = []
    document.data = plain(source, (), _to(problems, NAME))
    if problems:
        raise ConfigError(problems)
    document.data.setdefault("name", NAME)
    return document, Path()


def _resolved(
    document: Document, start: Path, changes: Mapping[str, Any], place: str
) -> Experiment:
    """The experiment of a document with other values. Raises ConfigError.

    place stands in messages about them.
    """
    problems: list[str] = []
    for key, value in changes.items():
        own = plain(value, tuple(str(key).split(".")), _to(problems, place))
        try:
            set_value(document, str(key), own, place)
        except ConfigError as error:
            problems += error.lines
    if problems:
        raise ConfigError(problems)
    return resolve_experiment(document, start)


def _to(problems: list[str], place: str) -> Any:
    """A report that collects sentences."""

    def report(path: KeyPath, sentence: str) -> None:
        problems.append(f"{place}: {dotted(path)}: {sentence}" if path else f"{place}: {sentence}")

    return report


def _check_jobs(experiment: Experiment, jobs: int) -> None:
    """Refuse a number of jobs that cannot be."""
    if not isinstance(jobs, int) or isinstance(jobs, bool) or not 1 <= jobs <= MAX_JOBS:
        raise ConfigError([f"jobs: must be 1 to {MAX_JOBS}, got {jobs!r}"])
    specs = [spec for spec in experiment.runs() if isinstance(spec, RunSpec) and not spec.skip]
    kinds = {spec.config[key]["kind"] for spec in specs for key in PLUGINS}
    typed = [kind for kind in sorted(kinds) if kind.startswith(f"{MAIN}:")]
    if typed and jobs > 1:
        accepted = "accepted: 1, or a class in a module"
        raise ConfigError([f"jobs: {typed[0]} is known to this session alone; {accepted}"])
