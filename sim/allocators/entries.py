"""Block tables of several rows as one array: who holds which slots, and what is in them.

A row of the array is one entry of one row's table: a block, or a range of contiguous memory.
Entries stand in the order of the rows, and within one in logical order.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from sim.allocators.blocks import BlockIds
from sim.jit import compiled
from sim.sequence import FINAL_TOKENS, NUM_COMPUTED, NUM_SLOTS, IntArray

# columns
WHICH = 0  # of the rows that were asked for: its place among them
INDEX = 1  # of the entry in its table
START, SIZE = 2, 3  # slots; of the pool, or of the host's
WRITTEN = 4  # slots that hold a token
RESERVED = 5  # slots that do not, and that the row will reach
ON_HOST = 6  # 1 if the slots are the host's
NUM_COLUMNS = 7


def listed(
    sequences: IntArray, rows: IntArray, pieces: Sequence[tuple[IntArray, IntArray]]
) -> IntArray:
    """Entries of rows; pieces[i] is (start, size) of what rows[i] holds on device and host."""
    counts = [len(device) + len(host) for device, host in pieces]
    entries: IntArray = np.zeros((sum(counts), NUM_COLUMNS), np.int64)
    ranges = [part for pair in pieces for part in pair]
    if ranges:
        entries[:, START : SIZE + 1] = np.concatenate(ranges)
        on_host = [np.repeat([0, 1], [len(device), len(host)]) for device, host in pieces]
        entries[:, ON_HOST] = np.concatenate(on_host)
    fill(sequences, rows, np.array(counts, np.int64), entries)
    return entries


@compiled
def fill(sequences: IntArray, rows: IntArray, counts: IntArray, entries: IntArray) -> None:
    """Number the entries of rows, counts[i] of rows[i], and say what is in them.

    Where they begin and how large they are must be there already.
    """
    e = 0
    for i in range(len(rows)):
        offset = 0
        computed = sequences[rows[i], NUM_COMPUTED]
        final = sequences[rows[i], FINAL_TOKENS]
        for index in range(counts[i]):
            size = entries[e, SIZE]
            written = min(max(computed - offset, 0), size)
            reach = min(max(final - 1 - offset, 0), size)
            entries[e, WHICH] = i
            entries[e, INDEX] = index
            entries[e, WRITTEN] = written
            entries[e, RESERVED] = max(reach - written, 0)
            offset += size
            e += 1


@compiled
def name_blocks(
    sequences: IntArray,
    table: BlockIds,
    rows: IntArray,
    places: IntArray,
    size: int,
    num_device: int,
    entries: IntArray,
) -> None:
    """Say where the blocks of rows are: those of rows[i] stand in table[places[i]].

    Ids from num_device on are the host's.
    """
    e = 0
    for i in range(len(rows)):
        for index in range(sequences[rows[i], NUM_SLOTS] // size):
            block = np.int64(table[places[i], index])
            on_host = block >= num_device
            entries[e, START] = (block - num_device if on_host else block) * size
            entries[e, SIZE] = size
            entries[e, ON_HOST] = 1 if on_host else 0
            e += 1
