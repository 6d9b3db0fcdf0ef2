"""Compiled operations of swapping: blocks that move between the device's pool and the host's.

The arrays are those of sim.allocators.shared_blocks. The rows of one request move together; a
block that several of them hold moves once, and all of them hold it on the other side. Pinned
blocks stay where they are. moved is scratch, one cell a block, all of them NOWHERE.
"""

from __future__ import annotations

from sim.allocators.blocks import BLOCK_SIZE, NUM_BLOCKS, NUM_FREE, WATERMARK_BLOCKS, BlockIds
from sim.allocators.shared_blocks import (
    NUM_BLOCKS_IN,
    NUM_BLOCKS_OUT,
    NUM_HOST_FREE,
    NUM_PINNED,
    PIN,
    SWAPPED_IN,
    SWAPPED_OUT,
    drop_block,
    log_event,
    take_block,
)
from sim.allocators.terms import TABLE_BLOCKS
from sim.jit import compiled
from sim.sequence import NUM_SLOTS, IntArray

NOWHERE = -1


@compiled
def num_distinct(
    pool: IntArray, sequences: IntArray, table: BlockIds, refs: IntArray, rows: IntArray
) -> int:
    """Blocks that would move with the rows, which share a block only at the same place.

    Siblings stand side by side, so the search for another holder ends soon, or at once.
    """
    size = pool[BLOCK_SIZE]
    count = 0
    for i in range(len(rows)):
        for entry in range(sequences[rows[i], NUM_SLOTS] // size):
            block = table[rows[i], entry]
            num_before = 0  # rows before this one that hold it, at the same place
            if refs[block] > 1:
                for k in range(i - 1, -1, -1):
                    has_entry = sequences[rows[k], NUM_SLOTS] > entry * size
                    if has_entry and table[rows[k], entry] == block:
                        num_before = 1
                        break
            if refs[block] < PIN and num_before == 0:
                count += 1
    return count


@compiled
def can_swap_in(
    pool: IntArray, sequences: IntArray, table: BlockIds, refs: IntArray, rows: IntArray
) -> int:
    """0 if the rows can come back, and each get a block more, with the watermark left; 1 if not.

    2 if they never can.
    """
    need = num_distinct(pool, sequences, table, refs, rows) + len(rows) + pool[WATERMARK_BLOCKS]
    if need > pool[NUM_BLOCKS] - pool[NUM_PINNED]:
        return 2
    return 1 if need > pool[NUM_FREE] else 0


@compiled
def swap_out(
    pool: IntArray,
    sequences: IntArray,
    table: BlockIds,
    refs: IntArray,
    free_blocks: BlockIds,
    host_blocks: BlockIds,
    moved: BlockIds,
    events: IntArray,
    rows: IntArray,
) -> None:
    """Move all that the rows hold to the host, in the order of their tables; there is room."""
    for i in range(len(rows)):
        row = rows[i]
        for entry in range(sequences[row, NUM_SLOTS] // pool[BLOCK_SIZE]):
            block = table[row, entry]
            if refs[block] >= PIN:
                continue
            if moved[block] == NOWHERE:
                pool[NUM_HOST_FREE] -= 1
                moved[block] = host_blocks[pool[NUM_HOST_FREE]]
                pool[NUM_BLOCKS_OUT] += 1
                log_event(pool, events, SWAPPED_OUT, block, moved[block])
            there = moved[block]
            drop_block(pool, sequences, table, refs, free_blocks, row, entry)
            if refs[block] == 0:
                moved[block] = NOWHERE
            table[row, entry] = there
            refs[there] += 1
            pool[TABLE_BLOCKS] -= 1


@compiled
def swap_in(
    pool: IntArray,
    sequences: IntArray,
    table: BlockIds,
    refs: IntArray,
    free_blocks: BlockIds,
    host_blocks: BlockIds,
    moved: BlockIds,
    events: IntArray,
    rows: IntArray,
) -> None:
    """Bring the rows' blocks back, in the order of their tables; there is room for them."""
    for i in range(len(rows)):
        row = rows[i]
        for entry in range(sequences[row, NUM_SLOTS] // pool[BLOCK_SIZE]):
            block = table[row, entry]
            if block < pool[NUM_BLOCKS]:
                continue  # pinned
            if moved[block] == NOWHERE:
                take_block(pool, sequences, table, refs, free_blocks, row, entry)
                moved[block] = table[row, entry]
                pool[NUM_BLOCKS_IN] += 1
                log_event(pool, events, SWAPPED_IN, block, moved[block])
            else:
                table[row, entry] = moved[block]
                refs[moved[block]] += 1
            pool[TABLE_BLOCKS] += 1
            refs[block] -= 1
            if refs[block] == 0:
                moved[block] = NOWHERE
                host_blocks[pool[NUM_HOST_FREE]] = block
                pool[NUM_HOST_FREE] += 1


@compiled
def forget_swapped(
    pool: IntArray,
    sequences: IntArray,
    table: BlockIds,
    refs: IntArray,
    free_blocks: BlockIds,
    host_blocks: BlockIds,
    row: int,
) -> None:
    """Drop what a row holds on either side: it ends where it is."""
    for entry in range(sequences[row, NUM_SLOTS] // pool[BLOCK_SIZE] - 1, -1, -1):
        block = table[row, entry]
        if block < pool[NUM_BLOCKS]:
            drop_block(pool, sequences, table, refs, free_blocks, row, entry)
            continue
        pool[TABLE_BLOCKS] += 1  # forget() takes them out for all entries
        refs[block] -= 1
        if refs[block] == 0:
            host_blocks[pool[NUM_HOST_FREE]] = block
            pool[NUM_HOST_FREE] += 1
