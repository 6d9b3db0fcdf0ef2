"""Keeping a recording small: of too many moments, some; at those everything is exact."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from sim.report.player.recordings import IntArray, Recording

Times = NDArray[np.float64]


def sample(recording: Recording, num_moments: int) -> Recording:
    """Keep num_moments of the iterations, evenly chosen, with the first and the last.

    The state at the start of a kept iteration, and all that is said of it, is what it was. What
    came and went between two of them is gone; changes are dated to the next kept one. Expects at
    least two moments; a recording of no more comes back as it is.
    """
    count = len(recording.iterations)
    if count <= num_moments:
        return recording
    kept = np.unique(np.linspace(0, count - 1, num_moments).round().astype(np.int64))
    moments = recording.iterations["start_s"].to_numpy()[kept]
    before = recording.num_moments_recorded
    return replace(
        _at_moments(recording, moments),
        iterations=recording.iterations.iloc[kept].reset_index(drop=True),
        num_moments_recorded=count if before is None else before,
    )


def _at_moments(recording: Recording, moments: Times) -> Recording:
    phases, tables = recording.phases, recording.tables
    first = np.searchsorted(moments, phases["start_s"].to_numpy(), side="left")
    after = np.searchsorted(moments, phases["end_s"].to_numpy(), side="left")
    return replace(
        recording,
        # a later row about the same covers an earlier one
        events=_dated(recording.events, ["start_slot", "num_slots"], moments),
        tables=None
        if tables is None
        else _dated(
            tables.assign(is_end=tables["num_slots"] == 0),
            ["request", "sequence", "index", "is_end"],
            moments,
        ),
        phases=phases[first < after].reset_index(drop=True),
    )


def _dated(rows: pd.DataFrame, same: list[str], moments: Times) -> pd.DataFrame:
    """The last rows about the same before each moment, dated to it; behind the last moment too."""
    times = rows["time_s"].to_numpy()
    window: IntArray = np.searchsorted(moments, times, side="left")
    is_kept = ~rows[same].assign(window=window).duplicated(keep="last").to_numpy()
    later = np.append(moments, np.inf)[window]
    dated = rows.assign(time_s=np.where(np.isfinite(later), later, times))
    return dated[is_kept].reset_index(drop=True)
