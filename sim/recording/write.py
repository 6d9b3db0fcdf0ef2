"""The recordings of a run on disk: sim.recording.tables as Parquet files in its folder."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from sim import results
from sim.recording.recording import Recording
from sim.recording.tables import NAMES, together


def write_recordings(folder: Path, recordings: Sequence[Recording]) -> dict[str, int]:
    """Write the tables of all replicas; no such files, were they an older run's, without any.

    Returns what the run's row says of them. Raises ResultsError if they cannot be written.
    """
    of_replicas = [recording.tables() for recording in recordings]
    for name in NAMES:
        path = folder / f"{name}.parquet"
        if of_replicas:
            results.write_table(path, together([tables[name] for tables in of_replicas]))
        else:
            results.remove(path)
    if not recordings:
        return {}
    return {
        "record_every": max(recording.every for recording in recordings),
        "record_block_size": recordings[0].history.block_size or 0,
    }
