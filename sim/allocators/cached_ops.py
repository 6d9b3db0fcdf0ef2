"""Compiled operations of the prefix cache: admit, append, free. The state is cached_blocks'.

What concerns many iterations at once is in cached_ahead.py.
"""

from __future__ import annotations

from sim.allocators.blocks import (
    BLOCK_SIZE,
    NUM_BLOCKS,
    NUM_FREE,
    WATERMARK_BLOCKS,
    BlockIds,
    blocks_for,
)
from sim.allocators.cached_blocks import (
    CACHES_COMPUTED,
    FIRST,
    FIRST_KEY,
    FREED_AT,
    KEY,
    MAX_TOKENS,
    NONE,
    NUM_ACTIVE,
    NUM_CACHED,
    NUM_HOLDING,
    NUM_NULL_BLOCKS,
    NUM_TAKEN,
    PREPENDS_UNHASHED,
    PREVIOUS,
    REF_CNT,
    RESERVES_FULL,
    TAKES_ALL,
    cache_up_to,
    change_refs,
    find,
    insert_behind,
    is_retired,
    take,
    touch,
)
from sim.allocators.terms import (
    CACHED,
    FREE,
    HELD_BLOCKS,
    RESERVED,
    TABLE_BLOCKS,
    TOKEN_STATES,
    resize_row,
    retire_row,
)
from sim.jit import compiled
from sim.sequence import FINAL_TOKENS, NUM_COMPUTED, NUM_SLOTS, NUM_TOKENS, IntArray


@compiled
def admission(
    pool: IntArray,
    sequences: IntArray,
    keys: IntArray,
    blocks: IntArray,
    chains: IntArray,
    row: int,
    count: int,
) -> int:
    """0 if the row can be admitted with count tokens beyond its hit, 1 if later, 2 if never.

    A block that is hit while it is free is one free block fewer.
    """
    size = pool[BLOCK_SIZE]
    num_tokens = min(sequences[row, NUM_TOKENS], pool[MAX_TOKENS])
    if blocks_for(num_tokens, size) > pool[NUM_BLOCKS] - pool[NUM_NULL_BLOCKS]:
        return 2
    num_hits = find(pool, sequences, keys, chains, row)
    spare = pool[NUM_FREE] + num_hits
    for i in range(num_hits):
        if blocks[chains[keys[row, FIRST_KEY + i], FIRST], REF_CNT] == 0:
            spare -= 1
    if pool[NUM_HOLDING] > 0:
        spare -= pool[WATERMARK_BLOCKS]
    if pool[RESERVES_FULL] and blocks_for(num_tokens, size) > spare:
        return 1
    reach = min(num_hits * size + count, pool[MAX_TOKENS])
    return 1 if blocks_for(reach, size) > spare else 0


@compiled
def write(
    pool: IntArray,
    sequences: IntArray,
    table: BlockIds,
    keys: IntArray,
    blocks: IntArray,
    chains: IntArray,
    events: IntArray,
    row: int,
    count: int,
    reach: int,
) -> bool:
    """Write count tokens for a row, which will have blocks for reach tokens at least.

    False, and nothing changed, if there are too few blocks. Blocks that are full then, and whose
    tokens are known, are findable at once, though nothing has been computed yet, unless the pool
    says otherwise.
    """
    size = pool[BLOCK_SIZE]
    written = sequences[row, NUM_COMPUTED] + count
    held = sequences[row, NUM_SLOTS] // size
    need = max(blocks_for(max(written, reach), size), held)
    if need - held > pool[NUM_FREE]:
        return False
    if held == 0 and need > 0:
        pool[NUM_HOLDING] += 1
    for i in range(held, need):
        take(pool, table, blocks, chains, events, row, i)
    resize_row(pool, sequences, row, written, need * size)
    if not pool[CACHES_COMPUTED]:
        known = min(written, sequences[row, NUM_TOKENS])
        cache_up_to(pool, table, keys, blocks, chains, events, row, known)
    return True


@compiled
def admit(
    pool: IntArray,
    sequences: IntArray,
    table: BlockIds,
    keys: IntArray,
    blocks: IntArray,
    chains: IntArray,
    events: IntArray,
    distances: IntArray,
    row: int,
    count: int,
) -> int:
    """admission and, if the answer is 0, take what is found and write count tokens behind it."""
    verdict = admission(pool, sequences, keys, blocks, chains, row, count)
    if verdict != 0:
        return verdict
    num_hits = find(pool, sequences, keys, chains, row)
    for i in range(num_hits):
        block = chains[keys[row, FIRST_KEY + i], FIRST]
        touch(pool, blocks, distances, block)
        table[row, i] = block
    if num_hits > 0:
        pool[NUM_HOLDING] += 1
        hit_slots = num_hits * pool[BLOCK_SIZE]
        resize_row(pool, sequences, row, hit_slots, hit_slots)
    keys[row, NUM_CACHED] = num_hits
    reach = sequences[row, NUM_TOKENS] if pool[TAKES_ALL] else 0
    write(pool, sequences, table, keys, blocks, chains, events, row, count, reach)
    return 0


@compiled
def append(
    pool: IntArray,
    sequences: IntArray,
    table: BlockIds,
    keys: IntArray,
    blocks: IntArray,
    chains: IntArray,
    events: IntArray,
    rows: IntArray,
    counts: IntArray,
) -> int:
    """Write counts[i] tokens for rows[i] in order; return how many rows got their blocks."""
    served = len(rows)
    within = 0  # tokens written into slots that were reserved for them
    for i in range(len(rows)):
        row = rows[i]
        written = sequences[row, NUM_COMPUTED] + 1
        is_inside = written < sequences[row, NUM_SLOTS] and written < sequences[row, FINAL_TOKENS]
        if counts[i] == 1 and is_inside:
            sequences[row, NUM_COMPUTED] = written  # takes no block, and makes none findable
            within += 1
        elif counts[i] > 0 and not write(
            pool, sequences, table, keys, blocks, chains, events, row, counts[i], 0
        ):
            served = i
            break
    pool[TOKEN_STATES] += within
    pool[RESERVED] -= within
    return served


@compiled
def free(
    pool: IntArray,
    sequences: IntArray,
    table: BlockIds,
    keys: IntArray,
    blocks: IntArray,
    rows: IntArray,
) -> None:
    """Return the rows' blocks, each row's last one first: findable ones to the back of the queue.

    The others go to the front, the last one foremost, if the pool prepends them.
    """
    size, end = pool[BLOCK_SIZE], pool[NUM_BLOCKS]
    for k in range(len(rows)):
        row = rows[k]
        held = sequences[row, NUM_SLOTS] // size
        active = 0 if is_retired(sequences, row) else -1
        if held > 0:
            pool[NUM_HOLDING] -= 1
            pool[TABLE_BLOCKS] -= held
        for i in range(held - 1, -1, -1):
            block = table[row, i]
            if change_refs(pool, blocks, block, -1, active) == 0:
                blocks[block, NUM_ACTIVE] = 0
                blocks[block, FREED_AT] = pool[NUM_TAKEN]
                pool[NUM_FREE] += 1
                pool[HELD_BLOCKS] -= 1
                if blocks[block, KEY] != NONE:
                    pool[CACHED] += size
                    pool[FREE] -= size
                if blocks[block, KEY] != NONE or not pool[PREPENDS_UNHASHED]:
                    insert_behind(blocks, block, blocks[end, PREVIOUS])
        if pool[PREPENDS_UNHASHED]:
            for i in range(held):
                if blocks[table[row, i], KEY] == NONE:
                    insert_behind(blocks, table[row, i], end)
        resize_row(pool, sequences, row, 0, 0)
        keys[row, NUM_CACHED] = 0


@compiled
def retire(
    pool: IntArray, sequences: IntArray, table: BlockIds, blocks: IntArray, row: int
) -> None:
    """All that the row holds is of no use to it now; what it shares may be to others."""
    if is_retired(sequences, row):
        return
    for i in range(sequences[row, NUM_SLOTS] // pool[BLOCK_SIZE]):
        change_refs(pool, blocks, table[row, i], 0, -1)
    retire_row(pool, sequences, row)
