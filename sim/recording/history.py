"""The moments of a run as changes from one to the next, in bounded memory."""

from __future__ import annotations

import numpy as np

from sim.allocators.base import BoolArray
from sim.recording.changes import (
    apply_entries,
    apply_pieces,
    changed_entries,
    changed_pieces,
    cut,
    merged,
)
from sim.recording.pool import NOTHING, NUM_ENTRY_COLUMNS, NUM_PIECE_COLUMNS, Moment
from sim.sequence import IntArray

NUMBER, TIME_NS = range(2)  # what every row begins with
NUM_FIRST = 2
_NO_CELLS = np.empty((1, 0), np.int64)  # of a row that is a number and a time, no more


class Rows:
    """Rows of whole numbers that are added a few at a time."""

    def __init__(self, num_columns: int) -> None:
        self._cells: IntArray = np.empty((64, num_columns), np.int64)
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def add(self, number: int, time_ns: int, rows: IntArray) -> None:
        """Add rows of a moment."""
        end = self._count + len(rows)
        if end > len(self._cells):
            grown = np.empty((max(end, 2 * len(self._cells)), self._cells.shape[1]), np.int64)
            grown[: self._count] = self.cells
            self._cells = grown
        new = self._cells[self._count : end]
        new[:, NUMBER], new[:, TIME_NS] = number, time_ns
        new[:, NUM_FIRST:] = rows
        self._count = end

    @property
    def cells(self) -> IntArray:
        """All rows: a view."""
        return self._cells[: self._count]

    def keep(self, which: BoolArray) -> None:
        """Forget all rows but these."""
        kept = self.cells[which]
        self._cells, self._count = kept, len(kept)

    def of(self, first: int, end: int) -> IntArray:
        """Rows from number first to end, without what they begin with."""
        return self._cells[first:end, NUM_FIRST:]


class History:
    """What has changed at the moments that are kept: those whose number every divides.

    max_rows is how many rows there may be of iterations and changes together; above it every is
    doubled, and the moments so far are thinned alike. block_size is None for memory without blocks.
    """

    def __init__(self, max_rows: int, num_iteration_columns: int) -> None:
        self.every = 1
        self.block_size: int | None = None
        self.moments = Rows(NUM_FIRST)
        self.iterations = Rows(NUM_FIRST + num_iteration_columns)
        self._open_changes()
        self._max_rows = max_rows

    def _open_changes(self) -> None:
        self.pieces = Rows(NUM_FIRST + NUM_PIECE_COLUMNS)
        self.entries = Rows(NUM_FIRST + NUM_ENTRY_COLUMNS)
        self._last = NOTHING

    def __len__(self) -> int:
        return len(self.iterations) + len(self.pieces) + len(self.entries)

    def add(self, number: int, time_ns: int, moment: Moment) -> None:
        """Keep what has changed since the last moment that was kept."""
        self.moments.add(number, time_ns, _NO_CELLS)
        self._add_changes(number, time_ns, moment)

    def _add_changes(self, number: int, time_ns: int, moment: Moment) -> None:
        pieces = changed_pieces(self._last.pieces, moment.pieces)
        self.pieces.add(number, time_ns, merged(pieces))
        self.entries.add(number, time_ns, changed_entries(self._last.entries, moment.entries))
        self._last = moment

    def thin(self) -> None:
        """Keep fewer moments while there are too many rows."""
        while len(self) > self._max_rows and len(self.moments) > 1:
            self.every *= 2
            self._thin()

    def _thin(self) -> None:
        """Forget moments; what changed at them changes at the next one that is kept."""
        moments, pieces, entries, current = self.moments.cells, self.pieces, self.entries, NOTHING
        self._open_changes()
        numbers = moments[:, NUMBER]
        piece_ends = np.searchsorted(pieces.cells[:, NUMBER], numbers, side="right").tolist()
        entry_ends = np.searchsorted(entries.cells[:, NUMBER], numbers, side="right").tolist()
        piece_first = entry_first = 0
        for (number, time_ns), piece_end, entry_end in zip(
            moments.tolist(), piece_ends, entry_ends, strict=True
        ):
            changed = pieces.of(piece_first, piece_end)
            if self.block_size is not None:
                changed = cut(changed, self.block_size)
            current = Moment(
                apply_pieces(current.pieces, changed),
                apply_entries(current.entries, entries.of(entry_first, entry_end)),
            )
            piece_first, entry_first = piece_end, entry_end
            if number % self.every == 0:
                self._add_changes(number, time_ns, current)
        self.moments.keep(numbers % self.every == 0)
        self.iterations.keep(self.iterations.cells[:, NUMBER] % self.every == 0)
