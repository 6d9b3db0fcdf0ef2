"""What the player shows: pools that were recorded block by block, on one clock."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import gcd

import numpy as np
import pandas as pd
from numpy.typing import NDArray

MAX_CELLS = 24_000  # a grid of more is finer than the pixels of a screen
MAX_END_S = 2**53 / 1e9  # a page's numbers hold whole nanoseconds up to there: 104 days
MAX_SLOTS = 2**28  # of an experiment's pool
TERMS = ("token_states", "reserved", "internal", "external", "cached", "free")
DEFAULT_CELL_SLOTS = 16  # of memory without blocks that stands alone

IntArray = NDArray[np.int64]


@dataclass(frozen=True)
class Recording:
    """The pool of one replica, and what happened in it.

    Times in seconds, sizes in slots. block_size is None for memory without blocks. iterations has
    start_s, end_s, num_running, num_waiting and the six terms, in order of start_s; phases has
    request, phase, start_s, end_s; events has time_s, start_slot, num_slots, request, sequence,
    index, num_written, num_reserved, ref_count, state, and a row replaces what was known of its
    slots. Where nothing was said yet, slots are free. tables has time_s, request, sequence, index,
    place, start_slot, num_slots: entry number index of a block table is these slots from then on,
    or the table ends before it (num_slots 0); without tables, a request holds what events say.
    num_moments_recorded is how many iterations there were where only some of them are kept.
    sim.recording.tables says the rest about all four.
    """

    label: str
    allocator: str
    num_slots: int
    block_size: int | None
    iterations: pd.DataFrame
    phases: pd.DataFrame
    events: pd.DataFrame
    tables: pd.DataFrame | None = None
    num_moments_recorded: int | None = None

    @property
    def num_rows(self) -> int:
        """How many changes of the pool and of block tables there are."""
        return len(self.events) + (0 if self.tables is None else len(self.tables))

    @property
    def end_s(self) -> float:
        """When the last of what was recorded ends."""
        ends = [frame["end_s"].max() for frame in (self.iterations, self.phases) if len(frame)]
        last = [*ends, *self.events["time_s"].iloc[-1:]]
        return float(max(last, default=0.0))


def by_replica(recording: Recording) -> list[Recording]:
    """One recording a replica; the label names it where there are several."""
    events, phases, iterations = recording.events, recording.phases, recording.iterations
    tables = recording.tables
    if "replica" not in iterations:
        return [recording]
    replicas = sorted(int(r) for r in iterations["replica"].unique())
    own = {r: iterations[iterations["replica"] == r].reset_index(drop=True) for r in replicas}
    return [
        replace(
            recording,
            label=f"{recording.label}, replica {r}" if len(replicas) > 1 else recording.label,
            num_slots=slots_of(own[r]),
            iterations=own[r],
            events=events[events["replica"] == r].reset_index(drop=True),
            tables=tables
            if tables is None
            else tables[tables["replica"] == r].reset_index(drop=True),
            phases=phases[phases["replica"].isin([r, -1])].reset_index(drop=True),
        )
        for r in replicas
    ]


def slots_of(iterations: pd.DataFrame) -> int:
    """The pool that all iterations are of, which is their terms together; 0 without iterations."""
    return int(iterations[list(TERMS)].iloc[0].sum()) if len(iterations) else 0


def unit_slots(recording: Recording) -> int:
    """The largest number of slots that every event begins and ends at a multiple of.

    The pool's last slots may be fewer.
    """
    if recording.events.empty:
        return recording.num_slots
    slots = ["start_slot", "num_slots"]
    columns = recording.events[slots].to_numpy(np.int64, copy=True)
    is_last = columns.sum(axis=1) == recording.num_slots
    columns[is_last, 1] = 0  # what ends with the pool need not end at a multiple
    numbers = [np.unique(columns)]
    if recording.tables is not None and len(recording.tables):
        numbers.append(np.unique(recording.tables[slots].to_numpy(np.int64)))
    found = gcd(*(n for own in numbers for n in own.tolist() if n > 0))
    return found or recording.num_slots


def cell_slots(recordings: Sequence[Recording]) -> list[int]:
    """Slots a cell of each grid: a block, or as many blocks as keep the grid drawable.

    Memory without blocks takes the cells of the first that has some, so that both can be compared.
    """
    sizes = [r.block_size for r in recordings if r.block_size and r.block_size > 1]
    common = sizes[0] if sizes else DEFAULT_CELL_SLOTS
    cells = []
    for recording in recordings:
        cell = recording.block_size or common
        while cell * MAX_CELLS < recording.num_slots:
            cell *= 2
        cells.append(cell)
    return cells


def choose(recordings: Sequence[Recording], limit: int) -> list[Recording]:
    """At most limit of them, in their order: of every kind of allocator one before a second."""
    seen: dict[str, int] = {}
    ranks = []
    for i, recording in enumerate(recordings):
        seen[recording.allocator] = seen.get(recording.allocator, -1) + 1
        ranks.append((seen[recording.allocator], i))
    return [recordings[i] for i in sorted(i for _, i in sorted(ranks)[:limit])]


def first_pair(recordings: Sequence[Recording]) -> list[int]:
    """Which are shown at first: memory without blocks beside memory in blocks if both are there."""
    busy = [i for i, r in enumerate(recordings) if len(r.iterations)]
    ranges = [i for i in busy if recordings[i].block_size is None]
    blocks = [i for i in busy if recordings[i].block_size is not None]
    if ranges and blocks:
        return [ranges[0], blocks[0]]
    return (busy or list(range(len(recordings))))[:2]


def state_at(recording: Recording, time_s: float) -> IntArray:
    """For each unit of the pool the row of the event that spoke of it last, or -1: int64."""
    unit = unit_slots(recording)
    last = np.full(-(-recording.num_slots // unit), -1, np.int64)
    events = recording.events
    until = int(np.searchsorted(events["time_s"].to_numpy(), time_s, side="right"))
    begins = events["start_slot"].to_numpy(np.int64) // unit
    ends = begins - (-events["num_slots"].to_numpy(np.int64) // unit)  # the pool's last may be less
    for row in range(until):
        last[begins[row] : ends[row]] = row
    return last
