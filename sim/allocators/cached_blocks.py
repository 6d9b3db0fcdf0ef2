"""Compiled operations of blocks that stay findable by content: reference counts and a free queue.

Beside the pool, the sequences and the block tables there are:

keys[row]     a row's number of keys, how many of its blocks are findable, then its keys: number i
              stands for the content of its block i and all before it
blocks        one row a block: references, the key it is findable by, and its neighbours in the
              free queue and among the blocks of the same key; the row behind the last block holds
              the ends of the queue
chains[key]   the first and the last block of a key, in the order in which they became findable
events        who became findable or was evicted, in order, if somebody wants to know

Block 0 is the null block: it is never given away.
"""

from __future__ import annotations

from sim.allocators.base import (
    CACHED,
    FREE,
    INTERNAL,
    NUM_TERMS,
    RESERVED,
    TOKEN_STATES,
    resize_row,
    retire_row,
)
from sim.allocators.blocks import (
    BLOCK_SIZE,
    NUM_BLOCKS,
    NUM_FREE,
    WATERMARK_BLOCKS,
    BlockIds,
    blocks_for,
    distance_to_boundary,
)
from sim.allocators.blocks import NUM_CELLS as NUM_BLOCK_CELLS
from sim.jit import compiled
from sim.sequence import FINAL_TOKENS, NUM_COMPUTED, NUM_SLOTS, NUM_TOKENS, IntArray

# cells of the pool's state, after those of every block pool
NUM_HOLDING = NUM_BLOCK_CELLS  # rows that hold blocks
IS_CACHING, PREPENDS_UNHASHED, RESERVES_FULL, MAX_TOKENS = range(NUM_HOLDING + 1, NUM_HOLDING + 5)
NUM_EVENTS, NUM_EVICTED = NUM_HOLDING + 5, NUM_HOLDING + 6
NUM_CELLS = NUM_HOLDING + 7

# columns of keys
NUM_KEYS, NUM_CACHED, FIRST_KEY = range(3)

# columns of blocks
REF_CNT, NUM_ACTIVE, KEY, NEXT, PREVIOUS, NEXT_SAME, PREVIOUS_SAME = range(7)
NUM_COLUMNS = 7
NONE = -1

# columns of chains, and what an event says
FIRST, LAST = range(2)
BECAME_CACHED, WAS_EVICTED = range(2)


@compiled
def note(pool: IntArray, events: IntArray, kind: int, row: int, block: int) -> None:
    """Log an event, as long as there is room."""
    i = pool[NUM_EVENTS]
    if i < len(events):
        events[i, 0], events[i, 1], events[i, 2] = kind, row, block
        pool[NUM_EVENTS] = i + 1


@compiled
def insert_behind(blocks: IntArray, block: int, place: int) -> None:
    """Put a block into the free queue behind another one, or behind the end: in front."""
    after = blocks[place, NEXT]
    blocks[block, PREVIOUS], blocks[block, NEXT] = place, after
    blocks[place, NEXT] = block
    blocks[after, PREVIOUS] = block


@compiled
def unlink(blocks: IntArray, block: int) -> None:
    """Take a block out of the free queue, wherever it stands."""
    before, after = blocks[block, PREVIOUS], blocks[block, NEXT]
    blocks[before, NEXT] = after
    blocks[after, PREVIOUS] = before


@compiled
def remember(
    pool: IntArray,
    blocks: IntArray,
    chains: IntArray,
    events: IntArray,
    block: int,
    key: int,
    row: int,
) -> None:
    """Make a block findable by its key, behind those that are already."""
    last = chains[key, LAST]
    blocks[block, KEY] = key
    blocks[block, PREVIOUS_SAME], blocks[block, NEXT_SAME] = last, NONE
    if last == NONE:
        chains[key, FIRST] = block
    else:
        blocks[last, NEXT_SAME] = block
    chains[key, LAST] = block
    note(pool, events, BECAME_CACHED, row, block)


@compiled
def evict(
    pool: IntArray, blocks: IntArray, chains: IntArray, events: IntArray, block: int
) -> None:
    """A free block is about to be given away: it is no longer found under its old content."""
    key = blocks[block, KEY]
    before, after = blocks[block, PREVIOUS_SAME], blocks[block, NEXT_SAME]
    if before == NONE:
        chains[key, FIRST] = after
    else:
        blocks[before, NEXT_SAME] = after
    if after == NONE:
        chains[key, LAST] = before
    else:
        blocks[after, PREVIOUS_SAME] = before
    blocks[block, KEY] = NONE
    pool[CACHED] -= pool[BLOCK_SIZE]
    pool[FREE] += pool[BLOCK_SIZE]
    pool[NUM_EVICTED] += 1
    note(pool, events, WAS_EVICTED, NONE, block)


@compiled
def count_shared(pool: IntArray, num_refs: int, num_active: int, sign: int) -> None:
    """Rows count all their slots; with sign 1 a block's slots then count once, with -1 no more.

    A shared block is written in full. It is of use as long as one of its holders is active.
    """
    if num_refs > 1:
        slots = sign * pool[BLOCK_SIZE]
        useful = max(num_active - 1, 0)
        pool[TOKEN_STATES] -= slots * useful
        pool[INTERNAL] -= slots * (num_refs - 1 - useful)
        pool[FREE] += slots * (num_refs - 1)


@compiled
def change_refs(pool: IntArray, blocks: IntArray, block: int, refs: int, active: int) -> int:
    """Add to the references of a block, and to those by active rows; return how many are left."""
    count_shared(pool, blocks[block, REF_CNT], blocks[block, NUM_ACTIVE], -1)
    blocks[block, REF_CNT] += refs
    blocks[block, NUM_ACTIVE] += active
    num_refs: int = blocks[block, REF_CNT]
    count_shared(pool, num_refs, blocks[block, NUM_ACTIVE], 1)
    return num_refs


@compiled
def touch(pool: IntArray, blocks: IntArray, block: int) -> None:
    """A row takes a block that was found: out of the free queue, if it is there."""
    if blocks[block, REF_CNT] == 0:
        unlink(blocks, block)
        pool[NUM_FREE] -= 1
        pool[CACHED] -= pool[BLOCK_SIZE]
        pool[FREE] += pool[BLOCK_SIZE]
    change_refs(pool, blocks, block, 1, 1)


@compiled
def find(pool: IntArray, sequences: IntArray, keys: IntArray, chains: IntArray, row: int) -> int:
    """How many of a row's first blocks are findable; at least one token is left to compute."""
    if pool[IS_CACHING] == 0:
        return 0
    most = min(keys[row, NUM_KEYS], (sequences[row, NUM_TOKENS] - 1) // pool[BLOCK_SIZE])
    for i in range(most):
        if chains[keys[row, FIRST_KEY + i], FIRST] == NONE:
            return i
    return most


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
    if blocks_for(num_tokens, size) > pool[NUM_BLOCKS] - 1:
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
def take(
    pool: IntArray,
    table: BlockIds,
    blocks: IntArray,
    chains: IntArray,
    events: IntArray,
    row: int,
    index: int,
) -> None:
    """Give the block in front of the free queue to a row, as its block number index."""
    block = blocks[pool[NUM_BLOCKS], NEXT]
    unlink(blocks, block)
    pool[NUM_FREE] -= 1
    if blocks[block, KEY] != NONE:
        evict(pool, blocks, chains, events, block)
    blocks[block, REF_CNT] = blocks[block, NUM_ACTIVE] = 1
    table[row, index] = block


@compiled
def cache_up_to(
    pool: IntArray,
    table: BlockIds,
    keys: IntArray,
    blocks: IntArray,
    chains: IntArray,
    events: IntArray,
    row: int,
    num_tokens: int,
) -> None:
    """Make a row's full blocks of its first num_tokens tokens findable."""
    if pool[IS_CACHING] == 0:
        return
    num_full = min(num_tokens // pool[BLOCK_SIZE], keys[row, NUM_KEYS])
    for i in range(keys[row, NUM_CACHED], num_full):
        remember(pool, blocks, chains, events, table[row, i], keys[row, FIRST_KEY + i], row)
    keys[row, NUM_CACHED] = max(keys[row, NUM_CACHED], num_full)


@compiled
def cache_rows(
    pool: IntArray,
    table: BlockIds,
    keys: IntArray,
    blocks: IntArray,
    chains: IntArray,
    events: IntArray,
    rows: IntArray,
    num_tokens: IntArray,
) -> None:
    """cache_up_to for several rows."""
    for i in range(len(rows)):
        cache_up_to(pool, table, keys, blocks, chains, events, rows[i], num_tokens[i])


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
) -> bool:
    """Write count tokens for a row; False, and nothing changed, if there are too few blocks.

    Blocks that are full then, and whose tokens are known, are findable at once, though nothing
    has been computed yet.
    """
    size = pool[BLOCK_SIZE]
    written = sequences[row, NUM_COMPUTED] + count
    held = sequences[row, NUM_SLOTS] // size
    need = max(blocks_for(written, size), held)
    if need - held > pool[NUM_FREE]:
        return False
    if held == 0 and need > 0:
        pool[NUM_HOLDING] += 1
    for i in range(held, need):
        take(pool, table, blocks, chains, events, row, i)
    resize_row(pool, sequences, row, written, need * size)
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
        touch(pool, blocks, block)
        table[row, i] = block
    if num_hits > 0:
        pool[NUM_HOLDING] += 1
        hit_slots = num_hits * pool[BLOCK_SIZE]
        resize_row(pool, sequences, row, hit_slots, hit_slots)
    keys[row, NUM_CACHED] = num_hits
    write(pool, sequences, table, keys, blocks, chains, events, row, count)
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
            sequences[row, NUM_COMPUTED] = written  # neither begins nor fills a block
            within += 1
        elif counts[i] > 0 and not write(
            pool, sequences, table, keys, blocks, chains, events, row, counts[i]
        ):
            served = i
            break
    pool[TOKEN_STATES] += within
    pool[RESERVED] -= within
    return served


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
        for j in range(NUM_TERMS):
            log[i, j] = pool[j]


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
        for i in range(held - 1, -1, -1):
            block = table[row, i]
            if change_refs(pool, blocks, block, -1, active) == 0:
                blocks[block, NUM_ACTIVE] = 0
                pool[NUM_FREE] += 1
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
def is_retired(sequences: IntArray, row: int) -> bool:
    """Whether the row's sequence is done and stays: an active one has two tokens or more."""
    return bool(sequences[row, FINAL_TOKENS] == 1)


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
