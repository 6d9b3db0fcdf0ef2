"""The state of blocks that stay findable by content, and what happens to one block.

Beside the pool, the sequences and the block tables there are:

keys[row]     a row's number of keys, how many of its blocks are findable, then its keys: number i
              stands for the content of its block i and all before it
blocks        one row a block: references, the key it is findable by, its neighbours in the free
              queue and among the blocks of the same key, and when it was freed; the row behind the
              last block holds the ends of the queue
chains[key]   the first and the last block of a key, in the order in which they became findable
events        who became findable or was evicted, in order, if somebody wants to know
distances     a histogram (sim.gaps) of reuse distances, in blocks

In vLLM block 0 is the null block: it is never given away. Flags of the pool say how others differ.
"""

from __future__ import annotations

from sim.allocators.blocks import BLOCK_SIZE, NUM_BLOCKS, NUM_FREE, BlockIds
from sim.allocators.blocks import NUM_CELLS as NUM_BLOCK_CELLS
from sim.allocators.terms import CACHED, FREE, HELD_BLOCKS, INTERNAL, TABLE_BLOCKS, TOKEN_STATES
from sim.gaps import count_gaps
from sim.jit import compiled
from sim.sequence import FINAL_TOKENS, NUM_TOKENS, IntArray

# cells of the pool's state, after those of every block pool
NUM_HOLDING = NUM_BLOCK_CELLS  # rows that hold blocks
IS_CACHING, PREPENDS_UNHASHED, RESERVES_FULL, MAX_TOKENS = range(NUM_HOLDING + 1, NUM_HOLDING + 5)
NUM_EVENTS, NUM_EVICTED = NUM_HOLDING + 5, NUM_HOLDING + 6
NUM_TAKEN = NUM_HOLDING + 7  # blocks taken from the front of the free queue, so far
NUM_NULL_BLOCKS = NUM_HOLDING + 8
# how other engines differ: an admission takes blocks for all known tokens; blocks are findable when
# the iteration has ended that fills them, not begun; a new one takes the place of one like it
TAKES_ALL, CACHES_COMPUTED, FINDS_NEWEST = range(NUM_HOLDING + 9, NUM_HOLDING + 12)
NUM_CELLS = NUM_HOLDING + 12

# columns of keys
NUM_KEYS, NUM_CACHED, FIRST_KEY = range(3)

# columns of blocks
REF_CNT, NUM_ACTIVE, KEY, NEXT, PREVIOUS, NEXT_SAME, PREVIOUS_SAME = range(7)
FREED_AT = 7  # NUM_TAKEN when it was last freed
NUM_COLUMNS = 8
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
def read_queue(blocks: IntArray, found: IntArray) -> int:
    """Write the free queue's blocks, the front first, as long as there is room; return how many."""
    end = len(blocks) - 1
    block, count = blocks[end, NEXT], 0
    while block != end and count < len(found):
        found[count] = block
        block, count = blocks[block, NEXT], count + 1
    return count


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
    """Make a block findable by its key, behind those that are already, or in their place."""
    last = chains[key, LAST]
    if last != NONE and pool[FINDS_NEWEST]:
        forget(pool, blocks, chains, last)
        last = NONE
    blocks[block, KEY] = key
    blocks[block, PREVIOUS_SAME], blocks[block, NEXT_SAME] = last, NONE
    if last == NONE:
        chains[key, FIRST] = block
    else:
        blocks[last, NEXT_SAME] = block
    chains[key, LAST] = block
    note(pool, events, BECAME_CACHED, row, block)


@compiled
def forget(pool: IntArray, blocks: IntArray, chains: IntArray, block: int) -> None:
    """A block is no longer found under its content."""
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
    if blocks[block, REF_CNT] == 0:
        pool[CACHED] -= pool[BLOCK_SIZE]
        pool[FREE] += pool[BLOCK_SIZE]


@compiled
def evict(pool: IntArray, blocks: IntArray, chains: IntArray, events: IntArray, block: int) -> None:
    """A free block is about to be given away: it is no longer found under its old content."""
    forget(pool, blocks, chains, block)
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
def touch(pool: IntArray, blocks: IntArray, distances: IntArray, block: int) -> None:
    """A row takes a block that was found: out of the free queue, if it is there.

    Then distances counts how many blocks have been taken from the front since it was freed.
    """
    if blocks[block, REF_CNT] == 0:
        unlink(blocks, block)
        pool[NUM_FREE] -= 1
        pool[HELD_BLOCKS] += 1
        pool[CACHED] -= pool[BLOCK_SIZE]
        pool[FREE] += pool[BLOCK_SIZE]
        count_gaps(distances, pool[NUM_TAKEN] - blocks[block, FREED_AT], 1)
    pool[TABLE_BLOCKS] += 1
    change_refs(pool, blocks, block, 1, 1)


@compiled
def find(pool: IntArray, sequences: IntArray, keys: IntArray, chains: IntArray, row: int) -> int:
    """How many of a row's first blocks are findable; at least one token is left to compute."""
    if pool[IS_CACHING] == 0:
        return 0
    most: int = min(keys[row, NUM_KEYS], (sequences[row, NUM_TOKENS] - 1) // pool[BLOCK_SIZE])
    for i in range(most):
        if chains[keys[row, FIRST_KEY + i], FIRST] == NONE:
            return i
    return most


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
    pool[NUM_TAKEN] += 1
    pool[HELD_BLOCKS] += 1
    pool[TABLE_BLOCKS] += 1
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
def is_retired(sequences: IntArray, row: int) -> bool:
    """Whether the row's sequence is done and stays: an active one has two tokens or more."""
    return bool(sequences[row, FINAL_TOKENS] == 1)
