"""The recordings of a run on disk: sim.recording.tables as Parquet files in its folder."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from sim.recording.recording import Recording
from sim.recording.tables import COLUMNS, NAMES, kind_of, together
from sim.results.tables import schema_of, write_rows

SCHEMAS = {name: schema_of({c: kind_of(c) for c in columns}) for name, columns in COLUMNS.items()}


def write_recordings(folder: Path, recordings: Sequence[Recording]) -> dict[str, int]:
    """Write the tables of all replicas; nothing if nothing was recorded.

    Returns what the run's row says of them. Raises ResultsError if they cannot be written.
    """
    if not recordings:
        return {}
    of_replicas = [recording.tables() for recording in recordings]
    for name in NAMES:
        table = together([found[name] for found in of_replicas])
        write_rows(folder, name, SCHEMAS[name], [table])
    return {
        "record_every": max(recording.every for recording in recordings),
        "record_block_size": recordings[0].history.block_size or 0,
    }
