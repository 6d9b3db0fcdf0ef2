"""What the pool and the block tables are at one moment: arrays in a fixed order.

Pieces are the pool cut up: blocks, or ranges and the holes between them, in order of address.
Entries are all entries of all tables, in order of (request, sequence, index).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from sim.allocators import entries as held
from sim.allocators.base import Allocator
from sim.jit import compiled
from sim.recording.tables import CACHED, EXTERNAL, FREE, HELD
from sim.sequence import IntArray

# columns of pieces
START, SIZE, REQUEST, SEQUENCE, INDEX, WRITTEN, RESERVED, REFS, STATE = range(9)
NUM_PIECE_COLUMNS = 9

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


class Pool:
    """Looks at an allocator's memory. What it returns is valid until it has looked twice more."""

    def __init__(self, allocator: Allocator) -> None:
        self.allocator = allocator
        self.block_size: int | None = None  # of memory in blocks
        if allocator.num_blocks is not None:
            self.block_size = getattr(allocator, "block_size", None)
        self._blocks: list[IntArray] = []  # room for the pieces of memory in blocks, twice
        if self.block_size is not None and allocator.shows_slots:
            end = (allocator.num_blocks or 0) * self.block_size
            starts = np.arange(0, end, self.block_size)
            if end < allocator.num_slots:
                starts = np.append(starts, end)
            pieces = _pieces(starts, allocator.num_slots)
            self._blocks = [pieces, pieces.copy()]

    def look(self, owners: Owners) -> Moment:
        """The pool and the tables as they are now; owners are sorted."""
        allocator = self.allocator
        if not allocator.shows_slots:
            return NOTHING
        found = allocator.table_entries(owners.rows)
        free, cached = allocator.free_ranges(), allocator.cached_ranges()
        if self._blocks:
            pieces = self._blocks.pop()
            self._blocks.insert(0, pieces)
        else:
            pieces = _ranges(found, free, cached, allocator.num_slots)
        entries: IntArray = np.empty((len(found), NUM_ENTRY_COLUMNS), np.int64)
        fill(pieces, free, cached)
        hold(pieces, entries, found, owners.requests, owners.sequences)
        return Moment(pieces, entries)


def _pieces(starts: IntArray, num_slots: int) -> IntArray:
    """Pieces that begin at starts and cover the pool."""
    pieces: IntArray = np.empty((len(starts), NUM_PIECE_COLUMNS), np.int64)
    pieces[:, START] = starts
    pieces[:, SIZE] = np.diff(starts, append=num_slots)
    return pieces


def _ranges(found: IntArray, free: IntArray, cached: IntArray, num_slots: int) -> IntArray:
    """The pieces of a pool in ranges: what is held, free or cached, and what is between them."""
    ranges = [found[:, held.START : held.SIZE + 1], free, cached[:, :2]]
    bounds = [bound for part in ranges for bound in (part[:, 0], part.sum(axis=1))]
    starts = np.unique(np.concatenate([[0], *bounds]))
    return _pieces(starts[starts < num_slots], num_slots)


@compiled
def find(pieces: IntArray, start: int) -> int:
    """The number of the piece that begins at a slot."""
    low, high = 0, len(pieces)
    if high > 1 and pieces[1, START] > 0:  # blocks, mostly
        guess: int = start // pieces[1, START]
        if guess < high and pieces[guess, START] == start:
            return guess
    while low < high:
        middle = (low + high) // 2
        if pieces[middle, START] < start:
            low = middle + 1
        else:
            high = middle
    return low


@compiled
def fill(pieces: IntArray, free: IntArray, cached: IntArray) -> None:
    """Say what pieces are while nobody holds them."""
    for i in range(len(pieces)):
        pieces[i, REQUEST] = pieces[i, SEQUENCE] = pieces[i, INDEX] = -1
        pieces[i, WRITTEN] = pieces[i, RESERVED] = pieces[i, REFS] = 0
        pieces[i, STATE] = EXTERNAL
    for k in range(len(free)):
        i = find(pieces, free[k, 0])
        while i < len(pieces) and pieces[i, START] < free[k, 0] + free[k, 1]:
            pieces[i, STATE] = FREE
            i += 1
    for k in range(len(cached)):
        i = find(pieces, cached[k, 0])
        pieces[i, STATE] = CACHED
        pieces[i, WRITTEN] = cached[k, 2]


@compiled
def hold(
    pieces: IntArray, entries: IntArray, found: IntArray, requests: IntArray, sequences: IntArray
) -> None:
    """Let the owners hold their pieces, and fill entries.

    What several hold is what it is to who needs it most, and the first one's.
    """
    for e in range(len(found)):
        owner = found[e, held.WHICH]
        entries[e, OWNER] = requests[owner] * MAX_SEQUENCES + sequences[owner]
        entries[e, ENTRY] = found[e, held.INDEX]
        entries[e, ON_HOST] = found[e, held.ON_HOST]
        entries[e, FIRST_SLOT] = found[e, held.START]
        entries[e, NUM_SLOTS] = found[e, held.SIZE]
        if found[e, held.ON_HOST]:
            continue
        i = find(pieces, found[e, held.START])
        written = found[e, held.WRITTEN]
        reach = written + found[e, held.RESERVED]
        if pieces[i, REFS] == 0:
            pieces[i, STATE] = HELD
            pieces[i, REQUEST] = requests[owner]
            pieces[i, SEQUENCE] = sequences[owner]
            pieces[i, INDEX] = found[e, held.INDEX]
        else:
            reach = max(reach, pieces[i, WRITTEN] + pieces[i, RESERVED])
            written = max(written, pieces[i, WRITTEN])
        pieces[i, REFS] += 1
        pieces[i, WRITTEN] = written
        pieces[i, RESERVED] = reach - written
