"""Results on disk: one folder an experiment, one folder a run, written whole or not at all.

sim.stored reads them.

    <root>/<experiment>/summary.csv, .parquet     one row a run
                       /points.csv                one row a point, where there are several seeds
                       /experiment.json           the resolved experiment
                       /figures/…                 PNG, SVG, and the plotted points as CSV
                       /runs/<run>/summary.json   this run's row
                                  /requests.parquet, timeline.parquet, blocks.parquet, each in one
                                                  schema for all runs: see sim.results.tables
                                  /replicas.csv   one row a replica, if there are any
                                  /iterations.parquet, phases.parquet, block_events.parquet,
                                   table_events.parquet   with `record: blocks`
                                  /manifest.json  key, versions, wall time, hashes of the others
                       /aside/<run>/…             finished runs that cannot be made at the moment

A run is done if its manifest has the key that is asked for and every file it lists is there with
its hash. All files but the manifest are the same bytes whenever the same run is made again.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from sim.recording.tables import NAMES as RECORDED

SCHEMA = 2
MANIFEST = "manifest.json"
UNMADE = ("error", "skipped")  # the status of rows without measurements
STATUSES = ("finished", "stalled", *UNMADE)
RUN_TABLES = (
    *(f"{name}.parquet" for name in ("requests", "timeline", "blocks", *RECORDED)),
    "replicas.csv",
)
UNFINISHED = ".tmp"  # what the name of a file that is being written ends with


class ResultsError(Exception):
    """Results that cannot be written or read: one sentence."""


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A temporary file beside path that takes its place when the block ends without an error.

    A link stays one: what it leads to is replaced. Raises ResultsError if the folder cannot be
    written, or if path is a device, a pipe or a folder, whose place a file must not take.
    """
    path = _target(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(UNFINISHED, f".{path.name}.", path.parent)
        os.close(handle)
    except OSError as error:
        raise ResultsError(f"{path}: cannot be written: {error.strerror}") from error
    temporary = Path(name)
    try:
        yield temporary
        temporary.chmod(0o644)
        temporary.replace(path)
    except OSError as error:  # pyarrow wraps the sentence in its own
        reason = os.strerror(error.errno) if error.errno else str(error)
        raise ResultsError(f"{path}: cannot be written: {reason}") from error
    finally:
        temporary.unlink(missing_ok=True)


def _target(path: Path) -> Path:
    """Where the file is to stand, which is not where a link to it stands."""
    try:
        target = path.resolve() if path.is_symlink() else path
        if target.exists() and not target.is_file():
            raise ResultsError(f"{path}: cannot be written: not a file; accepted: a file's path")
    except (OSError, RuntimeError) as error:  # a link to itself
        reason = error.strerror if isinstance(error, OSError) else "a loop of links"
        raise ResultsError(f"{path}: cannot be written: {reason}") from error
    return target


def open_run(folder: Path) -> None:
    """Make a run's folder ready to be written: an older run in it is gone from now on.

    Raises ResultsError if that cannot be.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ResultsError(f"{folder}: cannot be written: {error.strerror}") from error
    empty_run(folder)
    tidy(folder)


def empty_run(folder: Path) -> None:
    """Remove what an older run has left in a folder: first what says that it is done.

    Else its tables would be taken for those of the run that failed in its place. Raises
    ResultsError if that cannot be.
    """
    for name in (MANIFEST, *RUN_TABLES):
        remove(folder / name)


def set_aside(folder: Path, run: str) -> None:
    """Take the tables of a run that failed or was skipped out of an experiment's folder of runs.

    What an earlier command has finished there may be good again, once a trace is back: it is moved
    to where take_back finds it. Raises ResultsError if that cannot be.
    """
    made = folder / "runs" / run
    if (made / MANIFEST).exists():
        _move(made, aside_folder(folder, run))
    else:
        empty_run(made)


def aside_folder(folder: Path, run: str) -> Path:
    """Where the tables of a run are that was set aside."""
    return folder / "aside" / run


def take_back(folder: Path, run: str) -> None:
    """Put a run that was set aside among the runs again. Raises ResultsError if that cannot be."""
    aside = aside_folder(folder, run)
    _move(aside, folder / "runs" / run)
    with suppress(OSError):  # others are there
        aside.parent.rmdir()


def _move(run: Path, to: Path) -> None:
    """Move a run's folder in the place of another. Raises ResultsError if that cannot be."""
    try:
        to.parent.mkdir(parents=True, exist_ok=True)
        if to.exists():
            shutil.rmtree(to)
        run.rename(to)
    except OSError as error:
        raise ResultsError(f"{run}: cannot be moved to {to}: {error.strerror}") from error


def write_run(folder: Path, files: Mapping[str, bytes]) -> None:
    """Write a run that was made elsewhere: its files by name, the manifest last.

    Raises ResultsError if the folder cannot be written.
    """
    open_run(folder)
    for name in sorted(files, key=lambda name: (name == MANIFEST, name)):
        with replacing(folder / name) as temporary:
            temporary.write_bytes(files[name])


def tidy(*folders: Path) -> None:
    """Remove what a process that was killed has left half-written directly in these folders.

    Raises ResultsError if that cannot be.
    """
    for folder in folders:
        try:
            left = list(folder.glob(f".*{UNFINISHED}"))
        except OSError as error:  # of a folder that is not there there is none
            raise ResultsError(f"{folder}: cannot be read: {error.strerror}") from None
        for path in left:
            remove(path)


def remove(path: Path) -> None:
    """Remove a file that need not be there. Raises ResultsError if that cannot be."""
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        raise ResultsError(f"{path}: cannot be removed: {error.strerror}") from error


def write_json(path: Path, data: Mapping[str, Any]) -> None:
    """Write a JSON file atomically. NaN is not JSON: a missing value is null."""
    with replacing(path) as temporary:
        text = json.dumps(data, indent=1, allow_nan=False, ensure_ascii=False)
        temporary.write_text(text + "\n", encoding="utf-8")


def write_csv(path: Path, table: pd.DataFrame) -> None:
    """Write a CSV file atomically."""
    with replacing(path) as temporary:
        table.to_csv(temporary, index=False, lineterminator="\n")


def write_parquet(path: Path, schema: pa.Schema, pieces: Iterable[pa.Table]) -> None:
    """Write a Parquet file atomically, a row group for each piece as soon as it is there."""
    with replacing(path) as temporary, pq.ParquetWriter(temporary, schema) as writer:
        for piece in pieces:
            writer.write_table(piece)


def file_digest(path: Path) -> str:
    """SHA-256 of a file, hex."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def write_manifest(folder: Path, facts: Mapping[str, Any]) -> None:
    """Close a run's folder: from now on the run counts as done."""
    files = {
        path.name: file_digest(path)
        for path in sorted(folder.iterdir())
        if path.name != MANIFEST and not path.name.startswith(".")
    }
    write_json(folder / MANIFEST, {"schema": SCHEMA, **facts, "files": files})
