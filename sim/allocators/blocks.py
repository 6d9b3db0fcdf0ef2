"""Compiled operations of the block-pool family: a free list of equal blocks and block tables.

pool holds what is recorded (sim.allocators.base) and then the cells named below; table[row, i] is
the id of the block that holds the row's tokens from i * block_size on; free_blocks is a stack whose
first pool[NUM_FREE] entries are the free ids.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sim.allocators.terms import EXTERNAL, FREE, NUM_RECORDED, RESERVED, TOKEN_STATES, resize_row
from sim.jit import compiled
from sim.sequence import (
    FINAL_TOKENS,
    MAX_FINAL_TOKENS,
    NUM_COMPUTED,
    NUM_SLOTS,
    NUM_TOKENS,
    IntArray,
)

BlockIds = NDArray[np.int32]

# cells of the pool's state, after what is recorded
BLOCK_SIZE, NUM_BLOCKS, NUM_FREE, WATERMARK_BLOCKS, RESERVES = range(NUM_RECORDED, NUM_RECORDED + 5)
NUM_CELLS = NUM_RECORDED + 5


def check_knobs(block_size: int, watermark: float) -> None:
    """Refuse a block size or a watermark that no pool of blocks can have. Raises ValueError."""
    if block_size < 1:
        raise ValueError(f"block_size: must be at least 1 slot, got {block_size}")
    if not 0 <= watermark < 1:
        raise ValueError(f"watermark: must be at least 0 and below 1, got {watermark}")


def whole_blocks(num_slots: int, block_size: int) -> int:
    """The blocks of a pool of num_slots slots. Raises ValueError if there is none."""
    if num_slots < block_size:
        raise ValueError(
            f"block_size: a block of {block_size} slots is larger than the pool of {num_slots}"
        )
    return num_slots // block_size


def new_pool(
    num_cells: int, num_slots: int, num_blocks: int, block_size: int, watermark: float
) -> IntArray:
    """The state of a pool whose blocks are all free; slots beside them are external."""
    pool: IntArray = np.zeros(num_cells, np.int64)
    pool[FREE] = num_blocks * block_size
    pool[EXTERNAL] = num_slots - num_blocks * block_size
    pool[BLOCK_SIZE] = block_size
    pool[NUM_BLOCKS] = pool[NUM_FREE] = num_blocks
    pool[WATERMARK_BLOCKS] = int(watermark * num_blocks)
    return pool


@compiled
def blocks_for(num_tokens: int, block_size: int) -> int:
    """Blocks that num_tokens tokens fill, the last one perhaps in part."""
    return (num_tokens + block_size - 1) // block_size


@compiled
def admission(pool: IntArray, num_tokens: int) -> int:
    """0 if num_tokens fit and leave the watermark free, 1 if later, 2 if never."""
    need = blocks_for(num_tokens, pool[BLOCK_SIZE])
    if pool[NUM_BLOCKS] - need < pool[WATERMARK_BLOCKS]:
        return 2
    return 1 if pool[NUM_FREE] - need < pool[WATERMARK_BLOCKS] else 0


@compiled
def room_for(pool: IntArray, sequences: IntArray, row: int, num_tokens: int) -> int:
    """Tokens that need room if the row is to hold num_tokens: all it may write, if it reserves."""
    if pool[RESERVES] == 0:
        return num_tokens
    longest: int = max(num_tokens, sequences[row, MAX_FINAL_TOKENS] - 1)
    return longest


@compiled
def outstanding(pool: IntArray, sequences: IntArray, rows: IntArray) -> int:
    """Blocks that the rows may still take, if each becomes as long as it may."""
    size = pool[BLOCK_SIZE]
    total = 0
    for i in range(len(rows)):
        longest = blocks_for(sequences[rows[i], MAX_FINAL_TOKENS], size)
        total += max(longest - sequences[rows[i], NUM_SLOTS] // size, 0)
    return total


@compiled
def write(
    pool: IntArray,
    sequences: IntArray,
    table: BlockIds,
    free_blocks: BlockIds,
    row: int,
    count: int,
) -> bool:
    """Write count tokens for a row; False, and nothing changed, if there are too few blocks."""
    block_size = pool[BLOCK_SIZE]
    written = sequences[row, NUM_COMPUTED] + count
    num_slots = sequences[row, NUM_SLOTS]
    if written > num_slots:
        held = num_slots // block_size
        need = blocks_for(room_for(pool, sequences, row, written), block_size) - held
        num_free = pool[NUM_FREE]
        if need > num_free:
            return False
        for j in range(need):
            table[row, held + j] = free_blocks[num_free - 1 - j]
        pool[NUM_FREE] = num_free - need
        num_slots += need * block_size
    resize_row(pool, sequences, row, written, num_slots)
    return True


@compiled
def append(
    pool: IntArray,
    sequences: IntArray,
    table: BlockIds,
    free_blocks: BlockIds,
    rows: IntArray,
    counts: IntArray,
) -> int:
    """Write counts[i] tokens for rows[i] in order; return how many rows got their blocks."""
    served = len(rows)
    within = 0  # tokens written into slots that were reserved for them
    for i in range(len(rows)):
        row = rows[i]
        written = sequences[row, NUM_COMPUTED] + counts[i]
        if written <= sequences[row, NUM_SLOTS] and written < sequences[row, FINAL_TOKENS]:
            sequences[row, NUM_COMPUTED] = written
            within += counts[i]
        elif not write(pool, sequences, table, free_blocks, row, counts[i]):
            served = i
            break
    pool[TOKEN_STATES] += within
    pool[RESERVED] -= within
    return served


@compiled
def admit(
    pool: IntArray,
    sequences: IntArray,
    table: BlockIds,
    free_blocks: BlockIds,
    row: int,
    count: int,
) -> int:
    """admission for all of the row's tokens and, if they fit, write count of them."""
    verdict = admission(pool, room_for(pool, sequences, row, sequences[row, NUM_TOKENS]))
    if verdict == 0:
        write(pool, sequences, table, free_blocks, row, count)
    return verdict


@compiled
def distance_to_boundary(sequences: IntArray, row: int) -> int:
    """Tokens that still fit into the row's blocks; fewer than a block if it has no spare ones."""
    distance: int = sequences[row, NUM_SLOTS] - sequences[row, NUM_COMPUTED]
    return distance


@compiled
def can_append(
    pool: IntArray, sequences: IntArray, rows: IntArray, num_iterations: int, crossings: IntArray
) -> int:
    """How many of num_iterations iterations find a block for every row at a block boundary.

    crossings is scratch of at least block_size cells.
    """
    block_size = pool[BLOCK_SIZE]
    num_free = pool[NUM_FREE]
    crossings[:block_size] = 0
    farthest = 0
    for k in range(len(rows)):
        farthest = max(farthest, distance_to_boundary(sequences, rows[k]))
    for i in range(num_iterations):
        if i % block_size == 0 and i <= farthest:  # rows that have filled all but one of theirs
            for k in range(len(rows)):
                distance = distance_to_boundary(sequences, rows[k]) - i
                if 0 <= distance < block_size:
                    crossings[distance] += 1
        num_free -= crossings[i % block_size]
        if num_free < 0:
            return i
    return num_iterations


@compiled
def append_ahead(
    pool: IntArray,
    sequences: IntArray,
    table: BlockIds,
    free_blocks: BlockIds,
    rows: IntArray,
    num_iterations: int,
    chains: IntArray,
    log: IntArray,
) -> None:
    """num_iterations iterations of one token a row, visiting rows at a block boundary only.

    Blocks are taken in (iteration, running order), as single steps would. chains is scratch of
    at least block_size + len(rows) cells: for every distance to the next boundary the first row
    at that distance, and for every row the next one.
    """
    block_size = pool[BLOCK_SIZE]
    num_rows = len(rows)
    chains[: min(block_size, num_iterations)] = -1
    for k in range(num_rows - 1, -1, -1):
        distance = distance_to_boundary(sequences, rows[k])
        sequences[rows[k], NUM_COMPUTED] += num_iterations
        if distance < num_iterations:
            chains[block_size + k] = chains[distance]
            chains[distance] = k
    for i in range(num_iterations):
        k = chains[i % block_size]
        while k >= 0:
            # the row's slots are full, and its token of this iteration is not yet written
            row = rows[k]
            num_slots = sequences[row, NUM_SLOTS]
            num_free = pool[NUM_FREE] - 1
            table[row, num_slots // block_size] = free_blocks[num_free]
            pool[NUM_FREE] = num_free
            written = sequences[row, NUM_COMPUTED]
            sequences[row, NUM_COMPUTED] = num_slots
            resize_row(pool, sequences, row, num_slots, num_slots + block_size)
            sequences[row, NUM_COMPUTED] = written
            k = chains[block_size + k]
        pool[TOKEN_STATES] += num_rows
        pool[RESERVED] -= num_rows
        for j in range(NUM_RECORDED):
            log[i, j] = pool[j]


@compiled
def free(
    pool: IntArray, sequences: IntArray, table: BlockIds, free_blocks: BlockIds, rows: IntArray
) -> None:
    """Return the rows' blocks, the last one first, so that the first one is handed out next."""
    for i in range(len(rows)):
        row = rows[i]
        num_free = pool[NUM_FREE]
        for j in range(sequences[row, NUM_SLOTS] // pool[BLOCK_SIZE] - 1, -1, -1):
            free_blocks[num_free] = table[row, j]
            num_free += 1
        pool[NUM_FREE] = num_free
        resize_row(pool, sequences, row, 0, 0)
