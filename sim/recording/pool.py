"""What the pool and the block tables are at one moment: arrays in a fixed order.

Pieces are the pool cut up: blocks, or ranges and the holes between them, in order of address.
Entries are all entries of all tables, in order of (request, sequence, index).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from sim.allocators import entries as held
from sim.allocators.base import Allocator
from sim.recording.tables import CACHED, EXTERNAL, FREE, HELD
from sim.sequence import IntArray

# columns of pieces
START, SIZE, REQUEST, SEQUENCE, INDEX, WRITTEN, RESERVED, REFS, STATE = range(9)
NUM_PIECE_COLUMNS = 9
_NOBODY = (-1, -1, -1, 0, 0, 0)  # from REQUEST to REFS

# columns of entries; the first two say whose they are
OWNER, ENTRY, ON_HOST, FIRST_SLOT, NUM_SLOTS = range(5)
NUM_ENTRY_COLUMNS = 5
MAX_SEQUENCES = 1 << 24  # of a request; an owner is request x this + sequence


class Owners(NamedTuple):
    """Rows of the sequence table that may hold memory, and whose they are, in that order."""

    rows: IntArray
    requests: IntArray
    sequences: IntArray

    def sorted(self) -> Owners:
        """The same, by request and sequence."""
        order = np.lexsort((self.sequences, self.requests))
        return Owners(self.rows[order], self.requests[order], self.sequences[order])


class Moment(NamedTuple):
    """The pool and the block tables."""

    pieces: IntArray
    entries: IntArray


NOTHING = Moment(
    np.empty((0, NUM_PIECE_COLUMNS), np.int64), np.empty((0, NUM_ENTRY_COLUMNS), np.int64)
)


def look(allocator: Allocator, owners: Owners) -> Moment:
    """The pool and the tables as they are now. owners are sorted."""
    if not allocator.shows_slots:
        return NOTHING
    found = allocator.table_entries(owners.rows)
    entries = np.empty((len(found), NUM_ENTRY_COLUMNS), np.int64)
    which = found[:, held.WHICH]
    entries[:, OWNER] = (owners.requests * MAX_SEQUENCES + owners.sequences)[which]
    entries[:, ENTRY] = found[:, held.INDEX]
    entries[:, ON_HOST] = found[:, held.ON_HOST]
    entries[:, FIRST_SLOT] = found[:, held.START]
    entries[:, NUM_SLOTS] = found[:, held.SIZE]
    on_device = found[found[:, held.ON_HOST] == 0]
    block_size = getattr(allocator, "block_size", None) if allocator.num_blocks else None
    pieces = _blank(allocator, on_device, block_size)
    _hold(pieces, on_device, owners)
    return Moment(pieces, entries)


def _blank(allocator: Allocator, found: IntArray, block_size: int | None) -> IntArray:
    """The pieces of the pool, as if nobody held any of them."""
    free, cached = allocator.free_ranges(), allocator.cached_ranges()
    ends = np.array([allocator.num_slots])
    if block_size is not None:
        starts = np.arange(0, (allocator.num_blocks or 0) * block_size, block_size)
        ends = np.array([len(starts) * block_size, allocator.num_slots])
    else:
        starts = np.concatenate([[0], found[:, held.START], free[:, 0], cached[:, 0]])
        ends = np.concatenate([found[:, held.START] + found[:, held.SIZE], free.sum(axis=1), ends])
    starts = np.union1d(starts, ends[ends < allocator.num_slots])
    pieces = np.empty((len(starts), NUM_PIECE_COLUMNS), np.int64)
    pieces[:, START] = starts
    pieces[:, SIZE] = np.diff(starts, append=allocator.num_slots)
    pieces[:, REQUEST : REFS + 1] = _NOBODY
    pieces[:, STATE] = EXTERNAL
    for first, size in free.tolist():
        low, high = np.searchsorted(starts, [first, first + size]).tolist()
        pieces[low:high, STATE] = FREE
    places = np.searchsorted(starts, cached[:, 0])
    pieces[places, STATE] = CACHED
    pieces[places, WRITTEN] = cached[:, 2]
    return pieces


def _hold(pieces: IntArray, found: IntArray, owners: Owners) -> None:
    """Let the holders hold their pieces: what several hold is what it is to who needs it most."""
    places = np.searchsorted(pieces[:, START], found[:, held.START])
    pieces[places, STATE] = HELD
    pieces[places, WRITTEN : RESERVED + 1] = 0
    refs = np.bincount(places, minlength=len(pieces))
    pieces[:, REFS] = refs
    written, reserved = found[:, held.WRITTEN], found[:, held.RESERVED]
    if refs.max(initial=0) <= 1:
        pieces[places, WRITTEN], pieces[places, RESERVED] = written, reserved
    else:
        reach = np.zeros(len(pieces), np.int64)
        np.maximum.at(reach, places, written + reserved)
        np.maximum.at(pieces[:, WRITTEN], places, written)
        pieces[places, RESERVED] = reach[places] - pieces[places, WRITTEN]
    which, last_first = found[::-1, held.WHICH], places[::-1]  # of several, the first one stays
    pieces[last_first, REQUEST] = owners.requests[which]
    pieces[last_first, SEQUENCE] = owners.sequences[which]
    pieces[last_first, INDEX] = found[::-1, held.INDEX]
