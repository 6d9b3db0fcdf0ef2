"""What differs between two moments, as rows that turn one into the other; and back again."""

from __future__ import annotations

import numpy as np

from sim.allocators.base import BoolArray
from sim.jit import compiled
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
    which: IntArray = np.empty(len(new), np.int64)
    return new[which[: compare_pieces(old, new, which)]]


@compiled
def compare_pieces(old: IntArray, new: IntArray, which: IntArray) -> int:
    """Write the numbers of the pieces that are new to which; return how many they are."""
    count = k = 0
    for i in range(len(new)):
        while k < len(old) and old[k, START] < new[i, START]:
            k += 1
        is_known = k < len(old)
        if is_known:
            for c in range(new.shape[1]):
                if old[k, c] != new[i, c]:
                    is_known = False
                    break
        if not is_known:
            which[count] = i
            count += 1
    return count


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
    """Where tables of old now end, and entries of new that are not in old."""
    which: IntArray = np.empty(len(new), np.int64)
    ends: IntArray = np.zeros((len(old), old.shape[1]), np.int64)
    num_changed, num_ends = compare_entries(old, new, which, ends)
    return np.concatenate([ends[:num_ends], new[which[:num_changed]]])


@compiled
def compare_entries(
    old: IntArray, new: IntArray, which: IntArray, ends: IntArray
) -> tuple[int, int]:
    """Write the numbers of changed entries to which, and a row for each table that is shorter now.

    Returns how many they are.
    """
    num_changed = num_ends = k = 0
    for i in range(len(new)):
        while k < len(old) and is_before(old, k, new, i):
            num_ends += note_end(old, k, ends, num_ends)
            k += 1
        is_known = k < len(old)
        if is_known:
            for c in range(new.shape[1]):
                if old[k, c] != new[i, c]:
                    is_known = False
        if k < len(old) and old[k, OWNER] == new[i, OWNER] and old[k, ENTRY] == new[i, ENTRY]:
            k += 1
        if not is_known:
            which[num_changed] = i
            num_changed += 1
    while k < len(old):
        num_ends += note_end(old, k, ends, num_ends)
        k += 1
    return num_changed, num_ends


@compiled
def is_before(old: IntArray, k: int, new: IntArray, i: int) -> bool:
    """Whether an old entry comes before a new one, and so is in no table any more."""
    if old[k, OWNER] != new[i, OWNER]:
        return bool(old[k, OWNER] < new[i, OWNER])
    return bool(old[k, ENTRY] < new[i, ENTRY])


@compiled
def note_end(old: IntArray, k: int, ends: IntArray, count: int) -> int:
    """Note that a table ends before an old entry, unless it ends before an earlier one; 1 or 0."""
    if count > 0 and ends[count - 1, OWNER] == old[k, OWNER]:
        return 0
    ends[count, OWNER], ends[count, ENTRY] = old[k, OWNER], old[k, ENTRY]
    ends[count, FIRST_SLOT] = GONE
    return 1


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
    is_beyond: BoolArray = ends[match, OWNER] == cells[:, OWNER]
    is_beyond &= cells[:, ENTRY] >= ends[match, ENTRY]
    return cells[~is_beyond]
