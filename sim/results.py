"""Results on disk: one folder an experiment, one folder a run, written whole or not at all.

    <root>/<experiment>/summary.csv               one row a run
                       /points.csv                one row a point, where there are several seeds
                       /experiment.json           the resolved experiment
                       /figures/…                 PNG, SVG, and the plotted points as CSV
                       /runs/<run>/summary.json   this run's row
                                  /requests.parquet, timeline.parquet, blocks.parquet
                                  /replicas.csv   one row a replica, if there are any
                                  /iterations.parquet, phases.parquet, block_events.parquet,
                                   table_events.parquet   with `record: blocks`
                                  /manifest.json  key, versions, wall time, hashes of the others

A run is done if its manifest has the key that is asked for and every file it lists is there with
its hash. All files but the manifest are the same bytes whenever the same run is made again.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

SCHEMA = 1
MANIFEST = "manifest.json"
UNFINISHED = ".tmp"  # what the name of a file that is being written ends with


class ResultsError(Exception):
    """Results that cannot be written or read: one sentence."""


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A temporary file beside path that takes its place when the block ends without an error.

    Raises ResultsError if the folder cannot be written.
    """
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


def open_run(folder: Path) -> None:
    """Make a run's folder ready to be written: from now on an older run in it is not done.

    Raises ResultsError if that cannot be.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / MANIFEST).unlink(missing_ok=True)
    except OSError as error:
        raise ResultsError(f"{folder}: cannot be written: {error.strerror}") from error
    tidy(folder)


def tidy(*folders: Path) -> None:
    """Remove what a process that was killed has left half-written directly in these folders.

    Raises ResultsError if that cannot be.
    """
    for folder in folders:
        for path in folder.glob(f".*{UNFINISHED}"):
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


def write_table(path: Path, table: pd.DataFrame) -> None:
    """Write a Parquet or CSV file atomically; which one, the suffix says."""
    with replacing(path) as temporary:
        if path.suffix == ".parquet":
            # what DataFrame.to_parquet does, but for threads, which cost more than they help
            columns = pa.Table.from_pandas(table, preserve_index=False, nthreads=1)
            pq.write_table(columns, temporary)
        else:
            table.to_csv(temporary, index=False, lineterminator="\n")


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


def finished_row(folder: Path, key: str) -> dict[str, Any] | None:
    """The summary row of a run that is done under this key; None if it must be run."""
    try:
        manifest = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
        if manifest["schema"] != SCHEMA or manifest["key"] != key:
            return None
        for name, digest in manifest["files"].items():
            if file_digest(folder / name) != digest:
                return None
        row = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
    return row if isinstance(row, dict) else None


def read_manifest(folder: Path) -> dict[str, Any] | None:
    """The manifest of the run in a folder, None if it is not done."""
    try:
        manifest = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return manifest if isinstance(manifest, dict) else None


def run_key(folder: Path) -> str | None:
    """The key of the run in a folder, None if it is not done."""
    manifest = read_manifest(folder) or {}
    return str(manifest["key"]) if "key" in manifest else None


def read_table(path: Path) -> pd.DataFrame:
    """Read a table that write_table wrote. Raises ResultsError if it cannot be read."""
    try:
        if path.suffix == ".parquet":
            return pd.read_parquet(path)
        return pd.read_csv(path)
    except FileNotFoundError:
        raise ResultsError(f"{path}: no such file; run the experiment first") from None
    except (OSError, ValueError) as error:
        raise ResultsError(f"{path}: cannot be read: {error}") from error
