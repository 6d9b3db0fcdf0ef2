"""Compiled operations of a radix tree's memory: free blocks, and those that only one row holds.

blocks[i, FREE_RING] is a ring: pool[NUM_FREE] free blocks from pool[HEAD] on, the next one to be
handed out first. Freed blocks go behind the others or, in SGLang's paged allocator, before them.

What a sequence holds beside the tree is a list of blocks, linked by blocks[i, FOLLOWING], from
private[row, FIRST] to private[row, LAST]: a block has one private holder at most, so that all lists
together need one cell a block, however long sequences are. Block 0 is never given away: it is what
the engine pads with, and here the end of every list.
"""

from __future__ import annotations

from sim.allocators.blocks import BLOCK_SIZE, NUM_BLOCKS, NUM_FREE, blocks_for, distance_to_boundary
from sim.allocators.blocks import NUM_CELLS as NUM_BLOCK_CELLS
from sim.allocators.terms import (
    CACHED,
    HELD_BLOCKS,
    NUM_RECORDED,
    RESERVED,
    TABLE_BLOCKS,
    TOKEN_STATES,
    resize_row,
)
from sim.jit import compiled
from sim.sequence import FINAL_TOKENS, NUM_COMPUTED, NUM_SLOTS, IntArray

# cells of the pool's state, after those of every block pool
HEAD = NUM_BLOCK_CELLS
FREES_BEHIND = HEAD + 1  # whether freed blocks go behind the free ones
EVICTS_EXACTLY = HEAD + 2  # whether a decode evicts for rows that need a block, not for all
NUM_CELLS = HEAD + 3

# columns of blocks, and of private
FREE_RING, FOLLOWING = range(2)
FIRST, LAST = range(2)
NONE = 0

# answers of decode beside a number of rows
SHORT, MIXED = -1, -2


@compiled
def take(pool: IntArray, blocks: IntArray, private: IntArray, row: int) -> None:
    """Give the next free block to a row, behind what it holds."""
    block = blocks[pool[HEAD], FREE_RING]
    pool[HEAD] = (pool[HEAD] + 1) % pool[NUM_BLOCKS]
    pool[NUM_FREE] -= 1
    pool[TABLE_BLOCKS] += 1
    pool[HELD_BLOCKS] += 1
    blocks[block, FOLLOWING] = NONE
    if private[row, FIRST] == NONE:
        private[row, FIRST] = block
    else:
        blocks[private[row, LAST], FOLLOWING] = block
    private[row, LAST] = block


@compiled
def put_back(pool: IntArray, blocks: IntArray, freed: IntArray) -> None:
    """Return blocks, in their order, behind the free ones or before them."""
    size = pool[NUM_BLOCKS]
    count = len(freed)
    if pool[FREES_BEHIND]:
        start = pool[HEAD] + pool[NUM_FREE]
    else:
        start = pool[HEAD] = (pool[HEAD] - count) % size
    for i in range(count):
        blocks[(start + i) % size, FREE_RING] = freed[i]
    pool[NUM_FREE] += count


@compiled
def gather(blocks: IntArray, private: IntArray, row: int, found: IntArray) -> None:
    """Write the row's own blocks to found, which is as long as they are many."""
    block = private[row, FIRST]
    for i in range(len(found)):
        found[i] = block
        block = blocks[block, FOLLOWING]


@compiled
def drop(private: IntArray, blocks: IntArray, row: int, count: int) -> None:
    """A row's first count own blocks are its own no more."""
    block = private[row, FIRST]
    for _ in range(count):
        block = blocks[block, FOLLOWING]
    private[row, FIRST] = block


@compiled
def extend(
    pool: IntArray,
    sequences: IntArray,
    blocks: IntArray,
    private: IntArray,
    row: int,
    count: int,
) -> None:
    """Write count tokens for a row: into its last block, then into new ones, which must be free."""
    size = pool[BLOCK_SIZE]
    written = sequences[row, NUM_COMPUTED] + count
    num_slots = max(sequences[row, NUM_SLOTS], blocks_for(written, size) * size)
    for _ in range((num_slots - sequences[row, NUM_SLOTS]) // size):
        take(pool, blocks, private, row)
    resize_row(pool, sequences, row, written, num_slots)


@compiled
def decode(
    pool: IntArray,
    sequences: IntArray,
    blocks: IntArray,
    private: IntArray,
    rows: IntArray,
    counts: IntArray,
) -> int:
    """Write one token a row in order; return how many rows got their blocks.

    Changes nothing and answers MIXED if a count is not one, and SHORT if there is something to
    evict and less than a free block for every row, whether it needs one or not; or, if the pool
    evicts exactly, for every row that does.
    """
    num_needed = len(rows)
    for i in range(len(rows)):
        if counts[i] != 1:
            return MIXED
        if pool[EVICTS_EXACTLY] and distance_to_boundary(sequences, rows[i]) > 0:
            num_needed -= 1
    if pool[NUM_FREE] < num_needed and pool[CACHED] > 0:
        return SHORT
    served = len(rows)
    within = 0  # tokens written into slots that were reserved for them
    for i in range(len(rows)):
        row = rows[i]
        written = sequences[row, NUM_COMPUTED] + 1
        is_inside = written <= sequences[row, NUM_SLOTS]
        if is_inside and written < sequences[row, FINAL_TOKENS]:
            sequences[row, NUM_COMPUTED] = written
            within += 1
        elif is_inside or pool[NUM_FREE] > 0:
            extend(pool, sequences, blocks, private, row, 1)
        else:
            served = i
            break
    pool[TOKEN_STATES] += within
    pool[RESERVED] -= within
    return served


@compiled
def until_short(
    pool: IntArray, sequences: IntArray, rows: IntArray, num_iterations: int, crossings: IntArray
) -> int:
    """How many of num_iterations iterations begin with a free block for every row.

    crossings is scratch of at least block_size cells.
    """
    size = pool[BLOCK_SIZE]
    num_free = pool[NUM_FREE]
    crossings[:size] = 0
    for i in range(len(rows)):
        crossings[distance_to_boundary(sequences, rows[i])] += 1
    for i in range(num_iterations):
        if num_free < len(rows):
            return i
        num_free -= crossings[i % size]
    return num_iterations


@compiled
def num_at_boundary(scratch: IntArray, size: int, iteration: int) -> int:
    """How many rows need a block in an iteration, by append_ahead's scratch."""
    count = 0
    k = scratch[iteration % size]
    while k >= 0:
        count += 1
        k = scratch[size + k]
    return count


@compiled
def append_ahead(
    pool: IntArray,
    sequences: IntArray,
    blocks: IntArray,
    private: IntArray,
    rows: IntArray,
    begin: int,
    num_iterations: int,
    scratch: IntArray,
    log: IntArray,
) -> int:
    """Iterations of one token a row from number begin on, visiting rows at a block boundary only.

    begin is negative at first. Returns the number of an iteration before which something must be
    evicted, to go on from there, or num_iterations. scratch is as in blocks.append_ahead, and kept
    between these calls.
    """
    size = pool[BLOCK_SIZE]
    num_rows = len(rows)
    if begin < 0:
        begin = 0
        scratch[: min(size, num_iterations)] = -1
        for k in range(num_rows - 1, -1, -1):
            distance = distance_to_boundary(sequences, rows[k])
            sequences[rows[k], NUM_COMPUTED] += num_iterations
            if distance < num_iterations:
                scratch[size + k] = scratch[distance]
                scratch[distance] = k
    for i in range(begin, num_iterations):
        if pool[NUM_FREE] < num_rows and pool[CACHED] > 0:
            num_needed = num_at_boundary(scratch, size, i) if pool[EVICTS_EXACTLY] else num_rows
            if pool[NUM_FREE] < num_needed:
                return i
        k = scratch[i % size]
        while k >= 0:
            # the row's slots are full, and its token of this iteration is not yet written
            row = rows[k]
            num_slots = sequences[row, NUM_SLOTS]
            take(pool, blocks, private, row)
            written = sequences[row, NUM_COMPUTED]
            sequences[row, NUM_COMPUTED] = num_slots
            resize_row(pool, sequences, row, num_slots, num_slots + size)
            sequences[row, NUM_COMPUTED] = written
            k = scratch[size + k]
        pool[TOKEN_STATES] += num_rows
        pool[RESERVED] -= num_rows
        for j in range(NUM_RECORDED):
            log[i, j] = pool[j]
    return num_iterations
