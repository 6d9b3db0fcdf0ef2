"""Compiled operations of the prefix cache over many iterations: until when, and making them."""

from __future__ import annotations

from sim.allocators.base import NUM_RECORDED, RESERVED, TOKEN_STATES, resize_row
from sim.allocators.blocks import BLOCK_SIZE, NUM_BLOCKS, BlockIds, distance_to_boundary
from sim.allocators.cached_blocks import (
    FIRST_KEY,
    IS_CACHING,
    KEY,
    NEXT,
    NONE,
    NUM_KEYS,
    cache_up_to,
    find,
    take,
)
from sim.jit import compiled
from sim.sequence import NUM_COMPUTED, NUM_SLOTS, NUM_TOKENS, IntArray


@compiled
def until_findable(
    pool: IntArray, sequences: IntArray, keys: IntArray, chains: IntArray, row: int, rows: IntArray
) -> int:
    """Iterations of one token a row before the one that makes the waiting row's hit longer."""
    never = 1 << 62
    size = pool[BLOCK_SIZE]
    index = find(pool, sequences, keys, chains, row)
    most = min(keys[row, NUM_KEYS], (sequences[row, NUM_TOKENS] - 1) // size)
    if pool[IS_CACHING] == 0 or index == most:
        return never
    first = never
    for k in range(len(rows)):
        other = rows[k]
        missing = (index + 1) * size - sequences[other, NUM_COMPUTED]
        is_same = index < keys[other, NUM_KEYS] and missing > 0
        if is_same and keys[other, FIRST_KEY + index] == keys[row, FIRST_KEY + index]:
            first = min(first, missing - 1)
    return first


@compiled
def until_lost(
    pool: IntArray,
    sequences: IntArray,
    keys: IntArray,
    blocks: IntArray,
    chains: IntArray,
    row: int,
    rows: IntArray,
    num_iterations: int,
    crossings: IntArray,
) -> int:
    """Iterations of one token a row, of those asked for, before one that evicts what is found.

    Then the waiting row has more to compute, which a token budget may not allow. crossings is
    scratch of at least block_size cells.
    """
    size = pool[BLOCK_SIZE]
    num_found = find(pool, sequences, keys, chains, row)
    if num_found == 0:
        return num_iterations
    crossings[:size] = 0
    for i in range(len(rows)):
        crossings[distance_to_boundary(sequences, rows[i])] += 1
    block = blocks[pool[NUM_BLOCKS], NEXT]  # the front of the free queue
    for i in range(num_iterations):
        for _ in range(crossings[i % size]):
            key = blocks[block, KEY]
            for j in range(num_found):
                if key == keys[row, FIRST_KEY + j]:
                    return i
            block = blocks[block, NEXT]
    return num_iterations


@compiled
def append_ahead(
    pool: IntArray,
    sequences: IntArray,
    table: BlockIds,
    keys: IntArray,
    blocks: IntArray,
    chains: IntArray,
    events: IntArray,
    rows: IntArray,
    num_iterations: int,
    scratch: IntArray,
    log: IntArray,
) -> None:
    """num_iterations iterations of one token a row, visiting rows at a block boundary only.

    Blocks are taken, evicted and made findable in (iteration, running order), as single steps
    would; a block is full in the iteration before its row needs the next one, and within an
    iteration it makes no difference whether blocks are taken or filled first. scratch is as in
    blocks.append_ahead.
    """
    size = pool[BLOCK_SIZE]
    num_rows = len(rows)
    scratch[:size] = NONE
    for k in range(num_rows - 1, -1, -1):
        distance = distance_to_boundary(sequences, rows[k])
        sequences[rows[k], NUM_COMPUTED] += num_iterations
        if distance <= num_iterations:
            scratch[size + k] = scratch[distance]
            scratch[distance] = k
    for i in range(num_iterations):
        k = scratch[i % size]
        while k != NONE:
            # the row's slots are full, and its token of this iteration is not yet written
            row = rows[k]
            num_slots = sequences[row, NUM_SLOTS]
            take(pool, table, blocks, chains, events, row, num_slots // size)
            written = sequences[row, NUM_COMPUTED]
            sequences[row, NUM_COMPUTED] = num_slots
            resize_row(pool, sequences, row, num_slots, num_slots + size)
            sequences[row, NUM_COMPUTED] = written
            k = scratch[size + k]
        k = scratch[(i + 1) % size]
        while k != NONE:
            row = rows[k]
            full = sequences[row, NUM_COMPUTED] - num_iterations + i + 1
            cache_up_to(pool, table, keys, blocks, chains, events, row, full)
            k = scratch[size + k]
        pool[TOKEN_STATES] += num_rows
        pool[RESERVED] -= num_rows
        for j in range(NUM_RECORDED):
            log[i, j] = pool[j]
