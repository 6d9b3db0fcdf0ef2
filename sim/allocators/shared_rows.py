"""Compiled operations on whole rows of shared blocks: admission, forks, and giving all back."""

from __future__ import annotations

from sim.allocators.blocks import (
    BLOCK_SIZE,
    NUM_BLOCKS,
    NUM_FREE,
    WATERMARK_BLOCKS,
    BlockIds,
)
from sim.allocators.shared_blocks import (
    COPIED,
    NUM_COPIED_BLOCKS,
    NUM_PINNED,
    drop_block,
    hold_block,
    log_event,
    move_block,
    num_entries,
    take_block,
)
from sim.allocators.terms import (
    TABLE_BLOCKS,
)
from sim.jit import compiled
from sim.sequence import FINAL_TOKENS, MAX_FINAL_TOKENS, NUM_COMPUTED, NUM_SLOTS, IntArray


@compiled
def admission(pool: IntArray, num_tokens: int, num_found: int) -> int:
    """0 if num_tokens fit and leave the watermark free, 1 if later, 2 if never.

    num_found of them are in pinned blocks, of which the whole ones need no copy.
    """
    need = num_entries(pool, num_tokens) - num_found // pool[BLOCK_SIZE]
    if pool[NUM_BLOCKS] - pool[NUM_PINNED] - need < pool[WATERMARK_BLOCKS]:
        return 2
    return 1 if pool[NUM_FREE] - need < pool[WATERMARK_BLOCKS] else 0


@compiled
def outstanding(pool: IntArray, sequences: IntArray, rows: IntArray) -> int:
    """Blocks that the rows may still take, if each becomes as long as it may."""
    total = 0
    for i in range(len(rows)):
        longest = num_entries(pool, sequences[rows[i], MAX_FINAL_TOKENS])
        total += max(longest - sequences[rows[i], NUM_SLOTS] // pool[BLOCK_SIZE], 0)
    return total


@compiled
def share_prefix(
    pool: IntArray,
    sequences: IntArray,
    table: BlockIds,
    refs: IntArray,
    free_blocks: BlockIds,
    events: IntArray,
    row: int,
    pinned: BlockIds,
    num_found: int,
) -> None:
    """Let an empty row begin with num_found tokens of pinned blocks; a partial one is copied."""
    size = pool[BLOCK_SIZE]
    whole = num_found // size
    for entry in range(whole):
        hold_block(pool, refs, pinned[entry])
        table[row, entry] = pinned[entry]
    sequences[row, NUM_COMPUTED] = num_found
    sequences[row, NUM_SLOTS] = whole * size
    pool[TABLE_BLOCKS] += whole
    if num_found % size > 0:
        take_block(pool, sequences, table, refs, free_blocks, row, whole)
        sequences[row, NUM_SLOTS] += size
        pool[TABLE_BLOCKS] += 1
        pool[NUM_COPIED_BLOCKS] += 1
        log_event(pool, events, COPIED, pinned[whole], table[row, whole])


@compiled
def free(
    pool: IntArray,
    sequences: IntArray,
    table: BlockIds,
    refs: IntArray,
    free_blocks: BlockIds,
    rows: IntArray,
) -> None:
    """Take back what the rows hold, the last block first, so that the first is handed out next."""
    for i in range(len(rows)):
        row = rows[i]
        for entry in range(sequences[row, NUM_SLOTS] // pool[BLOCK_SIZE] - 1, -1, -1):
            drop_block(pool, sequences, table, refs, free_blocks, row, entry)
        forget(pool, sequences, row)


@compiled
def forget(pool: IntArray, sequences: IntArray, row: int) -> None:
    """The row's blocks have been dropped."""
    pool[TABLE_BLOCKS] -= sequences[row, NUM_SLOTS] // pool[BLOCK_SIZE]
    sequences[row, NUM_COMPUTED] = 0
    sequences[row, NUM_SLOTS] = 0


@compiled
def fork(
    pool: IntArray,
    sequences: IntArray,
    table: BlockIds,
    refs: IntArray,
    parents: IntArray,
    children: IntArray,
) -> None:
    """Let each child hold its parent's blocks, too."""
    for i in range(len(parents)):
        parent, child = parents[i], children[i]
        held = sequences[parent, NUM_SLOTS] // pool[BLOCK_SIZE]
        for entry in range(held):
            table[child, entry] = table[parent, entry]
            refs[table[child, entry]] += 1
        pool[TABLE_BLOCKS] += held
        sequences[child, NUM_COMPUTED] = sequences[parent, NUM_COMPUTED]
        sequences[child, NUM_SLOTS] = sequences[parent, NUM_SLOTS]


@compiled
def retire(pool: IntArray, sequences: IntArray, table: BlockIds, refs: IntArray, row: int) -> None:
    """What the row alone holds is of no use any more, until it is freed.

    What is pinned stays what it is: others begin with it. The row shares nothing else, because
    whoever forks does not stay when it is done.
    """
    held = sequences[row, NUM_SLOTS] // pool[BLOCK_SIZE]
    for entry in range(held):
        if refs[table[row, entry]] == 1:
            move_block(pool, sequences, row, entry, -1)
    sequences[row, NUM_COMPUTED] = 0
    sequences[row, FINAL_TOKENS] = 1
    for entry in range(held):
        if refs[table[row, entry]] == 1:
            move_block(pool, sequences, row, entry, 1)
