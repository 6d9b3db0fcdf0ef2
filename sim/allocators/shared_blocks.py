"""Compiled operations of blocks that several sequences hold: reference counts, copies on write.

The arrays of sim.allocators.blocks, and refs[block], the number of rows that hold a block; a block
that is pinned has PIN more and is never given away. Ids from pool[NUM_BLOCKS] on are blocks of the
host pool, whose free ids are a stack of their own. With a window, a table is a ring of
WINDOW_BLOCKS entries.

The written part of a block is the same for all who hold it, because whoever wants to write into it
copies it first. So a block's slots change their term only when its first holder takes it, when its
only holder writes, and when its last holder gives it back.
"""

from __future__ import annotations

from sim.allocators.blocks import (
    BLOCK_SIZE,
    NUM_FREE,
    BlockIds,
    blocks_for,
)
from sim.allocators.blocks import NUM_CELLS as FIRST_CELL
from sim.allocators.terms import (
    CACHED,
    FREE,
    HELD_BLOCKS,
    INTERNAL,
    RESERVED,
    TABLE_BLOCKS,
    TOKEN_STATES,
)
from sim.jit import compiled
from sim.sequence import FINAL_TOKENS, NUM_COMPUTED, NUM_SLOTS, REQUEST, IntArray

# further cells of the pool's state
WINDOW_BLOCKS = FIRST_CELL  # entries of a table at most; 0 without a window
NUM_HOST_FREE, NUM_PINNED, NUM_COPIED_BLOCKS, NUM_BLOCKS_OUT, NUM_BLOCKS_IN = range(
    FIRST_CELL + 1, FIRST_CELL + 6
)
NUM_EVENTS = FIRST_CELL + 6
NUM_CELLS = FIRST_CELL + 7

PIN = 1 << 40

# what is logged for whoever compares: (kind, from, to) block ids
COPIED, SWAPPED_OUT, SWAPPED_IN = range(3)


@compiled
def num_entries(pool: IntArray, num_tokens: int) -> int:
    """Entries of the table of a sequence of num_tokens tokens."""
    need = blocks_for(num_tokens, pool[BLOCK_SIZE])
    window: int = pool[WINDOW_BLOCKS]
    return min(need, window) if window > 0 else need


@compiled
def entry_of(pool: IntArray, logical_block: int) -> int:
    """Where the table of a sequence names its block number logical_block."""
    window: int = pool[WINDOW_BLOCKS]
    return logical_block % window if window > 0 else logical_block


@compiled
def log_event(pool: IntArray, events: IntArray, kind: int, block: int, new: int) -> None:
    """Note what happened to a block, if anybody compares and there is room."""
    count = pool[NUM_EVENTS]
    if count < len(events):
        events[count, 0], events[count, 1], events[count, 2] = kind, block, new
        pool[NUM_EVENTS] = count + 1


@compiled
def move_block(pool: IntArray, sequences: IntArray, row: int, entry: int, sign: int) -> None:
    """Add (1) a block that the row alone holds to the terms, or take it out (-1)."""
    size = pool[BLOCK_SIZE]
    start = entry * size
    written = min(max(sequences[row, NUM_COMPUTED] - start, 0), size)
    reach = max(written, min(max(sequences[row, FINAL_TOKENS] - 1 - start, 0), size))
    pool[TOKEN_STATES] += sign * written
    pool[RESERVED] += sign * (reach - written)
    pool[INTERNAL] += sign * (size - reach)
    pool[FREE] -= sign * size


@compiled
def take_block(
    pool: IntArray,
    sequences: IntArray,
    table: BlockIds,
    refs: IntArray,
    free_blocks: BlockIds,
    row: int,
    entry: int,
) -> None:
    """Give the row a free block of its own, for an entry of its table."""
    num_free = pool[NUM_FREE] - 1
    block = free_blocks[num_free]
    pool[NUM_FREE] = num_free
    pool[HELD_BLOCKS] += 1
    refs[block] = 1
    table[row, entry] = block
    move_block(pool, sequences, row, entry, 1)


@compiled
def drop_block(
    pool: IntArray,
    sequences: IntArray,
    table: BlockIds,
    refs: IntArray,
    free_blocks: BlockIds,
    row: int,
    entry: int,
) -> None:
    """The row no longer holds the block of an entry; the last holder gives it back."""
    block = table[row, entry]
    refs[block] -= 1
    if refs[block] == 0:
        move_block(pool, sequences, row, entry, -1)
        free_blocks[pool[NUM_FREE]] = block
        pool[NUM_FREE] += 1
        pool[HELD_BLOCKS] -= 1
    elif refs[block] == PIN:
        pool[HELD_BLOCKS] -= 1
        pool[TOKEN_STATES] -= pool[BLOCK_SIZE]
        pool[CACHED] += pool[BLOCK_SIZE]


@compiled
def hold_block(pool: IntArray, refs: IntArray, block: int) -> None:
    """One more row holds a block that is held or pinned already."""
    if refs[block] == PIN:
        pool[HELD_BLOCKS] += 1
        pool[TOKEN_STATES] += pool[BLOCK_SIZE]
        pool[CACHED] -= pool[BLOCK_SIZE]
    refs[block] += 1


@compiled
def write(
    pool: IntArray,
    sequences: IntArray,
    table: BlockIds,
    refs: IntArray,
    free_blocks: BlockIds,
    events: IntArray,
    row: int,
    count: int,
) -> None:
    """Write count tokens for a row, into blocks of its own; there are enough free ones."""
    size = pool[BLOCK_SIZE]
    for _ in range(blocks_to_visit(pool, sequences, row, count)):
        computed = sequences[row, NUM_COMPUTED]
        entry = entry_of(pool, computed // size)
        held = sequences[row, NUM_SLOTS] // size
        if entry == held:
            take_block(pool, sequences, table, refs, free_blocks, row, entry)
            sequences[row, NUM_SLOTS] += size
            pool[TABLE_BLOCKS] += 1
        elif refs[table[row, entry]] > 1:
            shared = table[row, entry]
            drop_block(pool, sequences, table, refs, free_blocks, row, entry)
            take_block(pool, sequences, table, refs, free_blocks, row, entry)
            pool[NUM_COPIED_BLOCKS] += 1
            log_event(pool, events, COPIED, shared, table[row, entry])
        here = min(count, size - computed % size)
        move_block(pool, sequences, row, entry, -1)
        sequences[row, NUM_COMPUTED] = computed + here
        move_block(pool, sequences, row, entry, 1)
        count -= here


@compiled
def blocks_to_visit(pool: IntArray, sequences: IntArray, row: int, count: int) -> int:
    """Blocks into which the row's next count tokens go."""
    if count == 0:
        return 0
    size = pool[BLOCK_SIZE]
    computed = sequences[row, NUM_COMPUTED]
    visited: int = (computed + count - 1) // size - computed // size + 1
    return visited


@compiled
def demand(
    pool: IntArray, sequences: IntArray, table: BlockIds, refs: IntArray, row: int, count: int
) -> int:
    """Free blocks that must be there before the row may write count tokens.

    One token asks for a block whether it needs one or not (vLLM v0's can_append_slot).
    """
    if count <= 1:
        return count
    size = pool[BLOCK_SIZE]
    computed = sequences[row, NUM_COMPUTED]
    held = sequences[row, NUM_SLOTS] // size
    need = 0
    for i in range(blocks_to_visit(pool, sequences, row, count)):
        entry = entry_of(pool, computed // size + i)
        if entry >= held or refs[table[row, entry]] > 1:
            need += 1
    return need


@compiled
def append(
    pool: IntArray,
    sequences: IntArray,
    table: BlockIds,
    refs: IntArray,
    free_blocks: BlockIds,
    events: IntArray,
    rows: IntArray,
    counts: IntArray,
) -> int:
    """Write counts[i] tokens for rows[i], request by request; return how many rows were served.

    Rows of one request that stand side by side are served together or not at all.
    """
    num_rows = len(rows)
    size = pool[BLOCK_SIZE]
    first = 0
    while first < num_rows:
        need = 0
        end = first
        request = sequences[rows[first], REQUEST]
        while end < num_rows and sequences[rows[end], REQUEST] == request:
            need += demand(pool, sequences, table, refs, rows[end], counts[end])
            end += 1
        if need > pool[NUM_FREE]:
            return first
        for i in range(first, end):
            row = rows[i]
            computed = sequences[row, NUM_COMPUTED]
            entry = entry_of(pool, computed // size)
            is_inside = computed % size > 0 and refs[table[row, entry]] == 1
            if counts[i] == 1 and is_inside and computed + 1 < sequences[row, FINAL_TOKENS]:
                sequences[row, NUM_COMPUTED] = computed + 1
                if computed < sequences[row, NUM_SLOTS]:  # a ring's slots are written already
                    pool[TOKEN_STATES] += 1
                    pool[RESERVED] -= 1
            else:
                write(pool, sequences, table, refs, free_blocks, events, row, counts[i])
        first = end
    return num_rows
