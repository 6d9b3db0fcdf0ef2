"""Compiled operations of the prefix cache over many iterations: until when, and making them."""

from __future__ import annotations

from sim.allocators.blocks import BLOCK_SIZE, NUM_BLOCKS, BlockIds, distance_to_boundary
from sim.allocators.cached_blocks import (
    CACHES_COMPUTED,
    FINDS_NEWEST,
    FIRST_KEY,
    IS_CACHING,
    KEY,
    NEXT,
    NONE,
    NUM_CACHED,
    NUM_KEYS,
    cache_up_to,
    find,
    take,
)
from sim.allocators.terms import NUM_RECORDED, RESERVED, TOKEN_STATES, resize_row
from sim.jit import compiled
from sim.sequence import NUM_COMPUTED, NUM_SLOTS, NUM_TOKENS, IntArray


@compiled
def until_findable(
    pool: IntArray, sequences: IntArray, keys: IntArray, chains: IntArray, row: int, rows: IntArray
) -> int:
    """Iterations of one token a row before the one that makes the waiting row's hit longer.

    Or, if a new block takes the place of a free one, cheaper: it is held already.
    """
    first = 1 << 62
    size = pool[BLOCK_SIZE]
    index = find(pool, sequences, keys, chains, row)
    most = min(keys[row, NUM_KEYS], (sequences[row, NUM_TOKENS] - 1) // size)
    if pool[IS_CACHING] == 0 or (index == most and not pool[FINDS_NEWEST]):
        return first
    for k in range(len(rows)):
        other = rows[k]
        i = min(index, keys[other, NUM_CACHED]) if pool[FINDS_NEWEST] else index
        is_coming = keys[other, NUM_CACHED] <= i < min(most, keys[other, NUM_KEYS])
        if is_coming and keys[other, FIRST_KEY + i] == keys[row, FIRST_KEY + i]:
            missing = max(0, (i + 1) * size - sequences[other, NUM_COMPUTED])
            first = min(first, missing if pool[CACHES_COMPUTED] else missing - 1)
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
        crossings[distance_to_boundary(sequences, rows[i]) % size] += 1
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
def chain_rows(
    sequences: IntArray, rows: IntArray, num_iterations: int, size: int, scratch: IntArray
) -> None:
    """Chain the rows by when they reach a block boundary, and let them have written their tokens.

    scratch is as in blocks.append_ahead: scratch[i % size] is the first row that is at a boundary
    before iteration i, in running order, scratch[size + k] the one behind row number k.
    """
    scratch[:size] = NONE
    for k in range(len(rows) - 1, -1, -1):
        distance = distance_to_boundary(sequences, rows[k]) % size
        sequences[rows[k], NUM_COMPUTED] += num_iterations
        if distance <= num_iterations:
            scratch[size + k] = scratch[distance]
            scratch[distance] = k


@compiled
def cache_chain(
    pool: IntArray,
    sequences: IntArray,
    table: BlockIds,
    keys: IntArray,
    blocks: IntArray,
    chains: IntArray,
    events: IntArray,
    rows: IntArray,
    missing: int,
    k: int,
    scratch: IntArray,
) -> None:
    """Make full blocks findable of row number k and those behind it.

    They have written missing tokens less than is noted.
    """
    while k != NONE:
        written = sequences[rows[k], NUM_COMPUTED] - missing
        cache_up_to(pool, table, keys, blocks, chains, events, rows[k], written)
        k = scratch[pool[BLOCK_SIZE] + k]


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
    iteration it makes no difference whether blocks are taken or filled first. If it is findable
    when that iteration has ended, it is so before the next one; for the last one, who ends it will
    see to that.
    """
    size, left = pool[BLOCK_SIZE], num_iterations
    if pool[CACHES_COMPUTED]:
        for k in range(len(rows)):
            written = sequences[rows[k], NUM_COMPUTED]
            cache_up_to(pool, table, keys, blocks, chains, events, rows[k], written)
    chain_rows(sequences, rows, num_iterations, size, scratch)
    for i in range(num_iterations):
        k = scratch[i % size]
        if pool[CACHES_COMPUTED]:
            cache_chain(
                pool, sequences, table, keys, blocks, chains, events, rows, left, k, scratch
            )
        while k != NONE:
            row = rows[k]
            num_slots = sequences[row, NUM_SLOTS]
            written = sequences[row, NUM_COMPUTED]
            if written - left == num_slots:
                # all its slots are full, and its token of this iteration is not yet written
                take(pool, table, blocks, chains, events, row, num_slots // size)
                sequences[row, NUM_COMPUTED] = num_slots
                resize_row(pool, sequences, row, num_slots, num_slots + size)
                sequences[row, NUM_COMPUTED] = written
            k = scratch[size + k]
        left -= 1
        if not pool[CACHES_COMPUTED]:
            k = scratch[(i + 1) % size]
            cache_chain(
                pool, sequences, table, keys, blocks, chains, events, rows, left, k, scratch
            )
        pool[TOKEN_STATES] += len(rows)
        pool[RESERVED] -= len(rows)
        for j in range(NUM_RECORDED):
            log[i, j] = pool[j]
