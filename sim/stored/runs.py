"""One run in its folder: whether it is done, and the tables that it wrote."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd

from sim.recording.tables import COLUMNS, fault
from sim.results.files import MANIFEST, SCHEMA, ResultsError, file_digest
from sim.stored.files import AGAIN, read_json, read_table

Manifest = dict[str, Any]
SUFFIXES = (".parquet", ".csv")  # of tables


def read_manifest(folder: Path) -> Manifest | None:
    """The manifest of the run in a folder.

    None if it is not done, or was made by a version whose tables are others.
    """
    try:
        manifest = read_json(folder / MANIFEST, AGAIN)
    except ResultsError:
        return None
    files = manifest.get("files")
    is_ours = manifest.get("schema") == SCHEMA and isinstance(manifest.get("key"), str)
    return manifest if is_ours and isinstance(files, dict) else None


def finished_row(folder: Path, key: str) -> dict[str, Any] | None:
    """The summary row of a run that is done under this key, with all its files; else None."""
    manifest = read_manifest(folder)
    if manifest is None or manifest["key"] != key:
        return None
    if not all(_is_whole(folder, name, manifest) for name in manifest["files"]):
        return None
    try:
        return read_json(folder / "summary.json", AGAIN)
    except ResultsError:
        return None


def tables_of(manifest: Manifest) -> dict[str, str]:
    """The tables that a run wrote, and their files."""
    paths = map(Path, manifest["files"])
    return {path.stem: path.name for path in paths if path.suffix in SUFFIXES}


def run_table_path(folder: Path, manifest: Manifest, name: str) -> Path | None:
    """The file of a table, None if the run wrote none. Raises ResultsError if it is another."""
    file = tables_of(manifest).get(name)
    if file is not None and not _is_whole(folder, file, manifest):
        raise ResultsError(f"{folder / file}: is missing, or is not what the run wrote; {AGAIN}")
    return None if file is None else folder / file


def read_run_table(folder: Path, manifest: Manifest, name: str) -> pd.DataFrame | None:
    """A table of a run, None if it wrote none. Raises ResultsError if it is not what it wrote."""
    path = run_table_path(folder, manifest, name)
    if path is None:
        return None
    table = read_table(path)
    wrong = fault(name, table) if name in COLUMNS else None
    if wrong is not None:
        raise ResultsError(f"{path}: {wrong}; {AGAIN}")
    return table


def _is_whole(folder: Path, file: str, manifest: Manifest) -> bool:
    """Whether a file is there as the run wrote it."""
    try:
        return bool(file_digest(folder / file) == manifest["files"][file])
    except (OSError, ValueError):
        return False
