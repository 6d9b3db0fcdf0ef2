"""A log of who holds which slots, iteration by iteration, for pools small enough to look at."""

from __future__ import annotations

import numpy as np
import pandas as pd

from sim.schedulers.base import Scheduler
from sim.sequence import NUM_COMPUTED, REQUEST

MAX_SLOTS = 4096  # a larger pool cannot be read as a picture
MAX_ROWS = 200_000

COLUMNS = ("time_s", "request", "index", "start_slot", "num_slots", "num_written")


class BlockLog:
    """Observes a run: after every schedule() one row for every block or range that is held.

    Stops after MAX_ROWS rows; `num_skipped` counts the iterations that are missing then.
    """

    def __init__(self) -> None:
        self._rows: list[tuple[float, int, int, int, int, int]] = []
        self.num_skipped = 0

    def __call__(self, now_ns: int, scheduler: Scheduler) -> None:
        if len(self._rows) >= MAX_ROWS:
            self.num_skipped += 1
            return
        allocator, rows = scheduler.allocator, scheduler.sequences.rows
        held = [*scheduler.running[: scheduler.num_running].tolist(), *scheduler.padding]
        for row in held:
            request, written = rows.item(row, REQUEST), rows.item(row, NUM_COMPUTED)
            for index, (start, size) in enumerate(allocator.held_ranges(row).tolist()):
                filled = min(size, max(0, written))
                written -= filled
                self._rows.append((now_ns / 1e9, request, index, start, size, filled))

    def table(self) -> pd.DataFrame:
        """The log. time_s is the start of the iteration; the slots are ids within the pool."""
        columns = np.array(self._rows, dtype=object).reshape(-1, len(COLUMNS)).T
        table = pd.DataFrame(dict(zip(COLUMNS, columns, strict=True)))
        types = {name: "float64" if name == "time_s" else "int64" for name in COLUMNS}
        return table.astype(types)
