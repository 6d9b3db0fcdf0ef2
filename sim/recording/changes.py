"""What differs between two moments, as rows that turn one into the other; and back again."""

from __future__ import annotations

import numpy as np

from sim.recording.pool import (
    ENTRY,
    FIRST_SLOT,
    OWNER,
    REQUEST,
    SIZE,
    START,
    STATE,
    WRITTEN,
)
from sim.recording.tables import HELD
from sim.sequence import IntArray

GONE = -1  # the first slot of an entry behind the end of a table


def changed_pieces(old: IntArray, new: IntArray) -> IntArray:
    """The pieces of new that old does not have just so; both cover the pool."""
    if len(old) == len(new) and np.array_equal(old[:, START], new[:, START]):
        return new[(old != new).any(axis=1)]
    if not len(old):
        return new
    places = np.searchsorted(old[:, START], new[:, START]).clip(max=len(old) - 1)
    return new[(old[places] != new).any(axis=1)]


def apply_pieces(old: IntArray, rows: IntArray) -> IntArray:
    """The pool after all changes of a moment."""
    if not len(rows):
        return old
    if not len(old):
        return rows
    rows = rows[np.argsort(rows[:, START], kind="stable")]
    before = np.searchsorted(rows[:, START], old[:, START], side="right") - 1
    ends = rows[:, START] + rows[:, SIZE]
    is_covered = (before >= 0) & (old[:, START] < ends[before])
    pieces = np.concatenate([old[~is_covered], rows])
    return pieces[np.argsort(pieces[:, START], kind="stable")]


def merged(rows: IntArray) -> IntArray:
    """Changed pieces, in order of address, with adjacent ones that nobody holds as one."""
    if len(rows) < 2:
        return rows
    first, second = rows[:-1], rows[1:]
    is_next = first[:, START] + first[:, SIZE] == second[:, START]
    is_alike = (first[:, REQUEST:WRITTEN] == second[:, REQUEST:WRITTEN]).all(axis=1)
    is_alike &= (second[:, STATE] == first[:, STATE]) & (second[:, STATE] != HELD)
    is_whole = (rows[:, WRITTEN] == 0) | (rows[:, WRITTEN] == rows[:, SIZE])
    is_alike &= is_whole[:-1] & is_whole[1:]
    begins = np.flatnonzero(np.concatenate([[True], ~(is_next & is_alike)]))
    if len(begins) == len(rows):
        return rows
    joined = rows[begins]
    joined[:, SIZE] = np.add.reduceat(rows[:, SIZE], begins)
    joined[:, WRITTEN] = np.add.reduceat(rows[:, WRITTEN], begins)
    return joined


def cut(rows: IntArray, block_size: int) -> IntArray:
    """Rows that `merged` joined as blocks again."""
    counts = np.where(rows[:, STATE] == HELD, 1, np.maximum(rows[:, SIZE] // block_size, 1))
    if not len(rows) or counts.max() <= 1:
        return rows
    pieces = np.repeat(rows, counts, axis=0)
    number = np.arange(len(pieces)) - np.repeat(np.cumsum(counts) - counts, counts)
    of_many = np.repeat(counts, counts) > 1
    pieces[:, START] += number * block_size
    pieces[of_many, SIZE] = block_size
    pieces[:, WRITTEN] //= np.where(of_many, np.repeat(counts, counts), 1)
    return pieces


def changed_entries(old: IntArray, new: IntArray) -> IntArray:
    """Entries of new that are not in old, and where tables of old now end."""
    if old.shape == new.shape and np.array_equal(old, new):
        return new[:0]
    old_owners, old_firsts, old_counts = _tables(old)
    owners, _, counts = _tables(new)
    if not len(old):
        return new
    match = np.searchsorted(old_owners, owners).clip(max=len(old_owners) - 1)
    known = np.where(old_owners[match] == owners, old_counts[match], 0)
    in_old = new[:, ENTRY] < np.repeat(known, counts)
    places = (np.repeat(old_firsts[match], counts) + new[:, ENTRY])[in_old]
    is_new = np.ones(len(new), np.bool_)
    is_new[in_old] = (old[places] != new[in_old]).any(axis=1)
    left = np.zeros(len(old_owners), np.int64)  # entries that old tables have now
    if len(owners):
        back = np.searchsorted(owners, old_owners).clip(max=len(owners) - 1)
        left = np.where(owners[back] == old_owners, counts[back], 0)
    shorter = np.flatnonzero(left < old_counts)
    ends: IntArray = np.zeros((len(shorter), old.shape[1]), np.int64)
    ends[:, OWNER], ends[:, ENTRY] = old_owners[shorter], left[shorter]
    ends[:, FIRST_SLOT] = GONE
    return np.concatenate([ends, new[is_new]])


def _tables(entries: IntArray) -> tuple[IntArray, IntArray, IntArray]:
    """Whose tables there are, where each begins, and how long it is."""
    firsts = np.flatnonzero(entries[:, ENTRY] == 0)
    return entries[firsts, OWNER], firsts, np.diff(firsts, append=len(entries))


def apply_entries(old: IntArray, rows: IntArray) -> IntArray:
    """The tables after all changes of a moment."""
    if not len(rows):
        return old
    is_gone = rows[:, FIRST_SLOT] == GONE
    cells = np.concatenate([old, rows[~is_gone]])
    cells = cells[np.lexsort((cells[:, ENTRY], cells[:, OWNER]))]  # stable: the later one behind
    is_last = np.ones(len(cells), np.bool_)
    is_last[:-1] = (cells[1:, : ENTRY + 1] != cells[:-1, : ENTRY + 1]).any(axis=1)
    cells = cells[is_last]
    ends = rows[is_gone]
    if not len(ends):
        return cells
    ends = ends[np.argsort(ends[:, OWNER])]
    match = np.searchsorted(ends[:, OWNER], cells[:, OWNER]).clip(max=len(ends) - 1)
    is_beyond = ends[match, OWNER] == cells[:, OWNER]
    is_beyond &= cells[:, ENTRY] >= ends[match, ENTRY]
    return cells[~is_beyond]
