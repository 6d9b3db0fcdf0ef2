"""Compiled operations of shared blocks over many iterations: how many succeed, and making them."""

from __future__ import annotations

from sim.allocators.blocks import BLOCK_SIZE, NUM_FREE, BlockIds, distance_to_boundary
from sim.allocators.shared_blocks import entry_of, take_block
from sim.allocators.terms import NUM_RECORDED, RESERVED, TABLE_BLOCKS, TOKEN_STATES
from sim.jit import compiled
from sim.sequence import NUM_COMPUTED, NUM_SLOTS, REQUEST, IntArray


@compiled
def can_append(
    pool: IntArray,
    sequences: IntArray,
    table: BlockIds,
    refs: IntArray,
    rows: IntArray,
    num_iterations: int,
) -> int:
    """How many of num_iterations iterations of one token a row `append` would serve in full."""
    num_free = pool[NUM_FREE]
    num_rows = len(rows)
    for i in range(num_iterations):
        first = 0
        while first < num_rows:
            end = first
            num_taken = 0
            request = sequences[rows[first], REQUEST]
            while end < num_rows and sequences[rows[end], REQUEST] == request:
                num_taken += takes_block(pool, sequences, table, refs, rows[first : end + 1], i)
                end += 1
            if end - first > num_free:
                return i
            num_free -= num_taken
            first = end
    return num_iterations


@compiled
def takes_block(
    pool: IntArray,
    sequences: IntArray,
    table: BlockIds,
    refs: IntArray,
    rows: IntArray,
    ahead: int,
) -> int:
    """1 if the last row's token after ahead more takes a block, a new one or for a copy; else 0.

    rows are those of its request that are served before it. Blocks are shared in the first
    iteration only: after it, each row has copied what it writes into.
    """
    size = pool[BLOCK_SIZE]
    row = rows[len(rows) - 1]
    computed = sequences[row, NUM_COMPUTED] + ahead
    entry = entry_of(pool, computed // size)
    if entry * size >= sequences[row, NUM_SLOTS]:
        return 1 if computed == entry * size else 0  # a ring's first time round
    if ahead > 0 or computed % size == 0:
        return 0  # in a ring it begins a block that it has already
    num_holders = refs[table[row, entry]]
    for i in range(len(rows) - 1):
        same = entry * size < sequences[rows[i], NUM_SLOTS]
        if same and table[rows[i], entry] == table[row, entry]:
            num_holders -= 1
    return 1 if num_holders > 1 else 0


@compiled
def append_ahead(
    pool: IntArray,
    sequences: IntArray,
    table: BlockIds,
    refs: IntArray,
    free_blocks: BlockIds,
    rows: IntArray,
    num_iterations: int,
    chains: IntArray,
    log: IntArray,
) -> None:
    """num_iterations iterations of one token a row, visiting rows at a block boundary only.

    No row's last block is shared, and none finishes. As sim.allocators.blocks.append_ahead, but
    for the reference counts and for tables that are rings.
    """
    size = pool[BLOCK_SIZE]
    num_rows = len(rows)
    num_written = num_rows  # tokens of an iteration that go into slots never written before
    chains[: min(size, num_iterations)] = -1
    for k in range(num_rows - 1, -1, -1):
        distance = distance_to_boundary(sequences, rows[k])
        sequences[rows[k], NUM_COMPUTED] += num_iterations
        if distance < 0:
            num_written -= 1  # the ring is full and has been written round
        elif distance < num_iterations:
            chains[size + k] = chains[distance]
            chains[distance] = k
    for i in range(num_iterations):
        k = chains[i % size]
        while k >= 0:
            row = rows[k]
            entry = sequences[row, NUM_SLOTS] // size
            written = sequences[row, NUM_COMPUTED]
            if entry_of(pool, entry) == entry:
                sequences[row, NUM_COMPUTED] = written - num_iterations + i
                take_block(pool, sequences, table, refs, free_blocks, row, entry)
                sequences[row, NUM_COMPUTED] = written
                sequences[row, NUM_SLOTS] += size
                pool[TABLE_BLOCKS] += 1
            elif written - num_iterations + i == sequences[row, NUM_SLOTS]:
                num_written -= 1  # from now on it writes over what it wrote
            k = chains[size + k]
        pool[TOKEN_STATES] += num_written
        pool[RESERVED] -= num_written
        for j in range(NUM_RECORDED):
            log[i, j] = pool[j]
