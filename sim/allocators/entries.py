"""Block tables of several rows as one array: who holds which slots, and what is in them.

A row of the array is one entry of one row's table: a block, or a range of contiguous memory.
Entries stand in the order of the rows, and within one in logical order.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from sim.sequence import FINAL_TOKENS, NUM_COMPUTED, IntArray

# columns
WHICH = 0  # of the rows that were asked for: its place among them
INDEX = 1  # of the entry in its table
START, SIZE = 2, 3  # slots; of the pool, or of the host's
WRITTEN = 4  # slots that hold a token
RESERVED = 5  # slots that do not, and that the row will reach
ON_HOST = 6  # 1 if the slots are the host's
NUM_COLUMNS = 7


def listed(sequences: IntArray, pieces: Sequence[tuple[IntArray, IntArray]]) -> IntArray:
    """Entries of rows: sequences[i] is a row, pieces[i] its (start, size) on device and host."""
    counts = np.array([len(device) + len(host) for device, host in pieces], np.int64)
    entries = numbered(counts)
    ranges = [part for pair in pieces for part in pair]
    if ranges:
        entries[:, START : SIZE + 1] = np.concatenate(ranges)
    on_host = [np.repeat([0, 1], [len(device), len(host)]) for device, host in pieces]
    if on_host:
        entries[:, ON_HOST] = np.concatenate(on_host)
    ends = np.cumsum(entries[:, SIZE])
    before_row = np.concatenate([[0], ends])[np.cumsum(counts) - counts]
    fill(entries, sequences, ends - entries[:, SIZE] - before_row[entries[:, WHICH]])
    return entries


def numbered(counts: IntArray) -> IntArray:
    """Entries of tables with so many entries each, of which only WHICH and INDEX are filled."""
    total = int(counts.sum())
    entries: IntArray = np.zeros((total, NUM_COLUMNS), np.int64)
    entries[:, WHICH] = np.repeat(np.arange(len(counts)), counts)
    entries[:, INDEX] = np.arange(total) - np.repeat(np.cumsum(counts) - counts, counts)
    return entries


def fill(entries: IntArray, sequences: IntArray, offsets: IntArray) -> None:
    """Say what is written and reserved in entries; offsets are the tokens before each of them."""
    of_rows = sequences[entries[:, WHICH]]
    size = entries[:, SIZE]
    written = np.clip(of_rows[:, NUM_COMPUTED] - offsets, 0, size)
    reach = np.clip(of_rows[:, FINAL_TOKENS] - 1 - offsets, 0, size)
    entries[:, WRITTEN] = written
    entries[:, RESERVED] = np.maximum(reach - written, 0)
