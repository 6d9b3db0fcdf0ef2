"""A recount of blocks that rows share: the slow way, for `check` and for tests."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from sim.allocators.cached_blocks import (
    FIRST,
    KEY,
    LAST,
    NEXT,
    NEXT_SAME,
    NONE,
    NUM_ACTIVE,
    PREVIOUS,
    PREVIOUS_SAME,
    REF_CNT,
)
from sim.allocators.terms import HELD_BLOCKS, TABLE_BLOCKS, ConservationError, KVUsage, row_terms
from sim.jit import compiled
from sim.sequence import FINAL_TOKENS, NUM_COMPUTED, NUM_SLOTS, IntArray

SOUND, OF_ANOTHER, BROKEN, ENDS_ELSEWHERE = range(4)  # what a walk along the chains finds

State = tuple[IntArray, IntArray, IntArray]
"""blocks, chains, and the free queue as a list"""


def require(condition: bool, sentence: str) -> None:
    if not condition:
        raise ConservationError(f"prefix: {sentence}")


def recount_shared(
    sequences: IntArray,
    tables: dict[int, IntArray],
    state: State,
    block_size: int,
    num_null_blocks: int,
) -> KVUsage:
    """The terms, but for external, slot by slot, from the block tables of the rows.

    A slot that several rows hold counts once, by what it is to the row that needs it most. The
    first num_null_blocks blocks nobody may hold.
    Raises ConservationError if references, the free queue or the keys contradict the tables.
    """
    blocks, _, free_list = state
    num_blocks = len(blocks) - 1
    holders = np.zeros(num_blocks, np.int64)
    active = np.zeros(num_blocks, np.int64)
    use = np.zeros((num_blocks, block_size), np.int64)  # 0 free, 1 internal, 2 reserved, 3 written
    for row, table in tables.items():
        computed, slots, final = sequences[row, [NUM_COMPUTED, NUM_SLOTS, FINAL_TOKENS]].tolist()
        require(computed <= slots, f"row {row} has written {computed} tokens in {slots} slots")
        require(len(set(table.tolist())) == len(table), f"row {row} holds a block twice")
        written, reserved, internal = row_terms(computed, slots, final)
        cells = np.repeat([3, 2, 1], [written, reserved, internal]).reshape(-1, block_size)
        use[table] = np.maximum(use[table], cells)
        holders[table] += 1
        active[table] += final > 1
    require(np.array_equal(holders, blocks[:-1, REF_CNT]), "reference counts are wrong")
    require(np.array_equal(active, blocks[:-1, NUM_ACTIVE]), "active references are wrong")
    unheld = np.flatnonzero(holders[num_null_blocks:] == 0) + num_null_blocks
    require(np.array_equal(np.sort(free_list), unheld), "the free queue is not what nobody holds")
    _check_links(state)
    is_cached = (blocks[:-1, KEY] != NONE) & (holders == 0)
    counts = [int((use == kind).sum()) for kind in (3, 2, 1)]
    cached = int(is_cached.sum()) * block_size
    return KVUsage(counts[0], counts[1], counts[2], 0, cached, len(unheld) * block_size - cached)


def check_tables(recorded: IntArray, tables: Iterable[IntArray], kind: str) -> None:
    """Compare the running sums of what stands in block tables with the tables.

    Raises ConservationError if they differ.
    """
    blocks = np.concatenate([np.empty(0, np.int64), *tables])
    counted = [len(blocks), len(np.unique(blocks))]
    found = recorded[[TABLE_BLOCKS, HELD_BLOCKS]].tolist()
    if found != counted:
        raise ConservationError(
            f"{kind}: {found} are recorded as blocks in tables and different ones, a recount "
            f"gives {counted}"
        )


def _check_links(state: State) -> None:
    """The free queue reads the same backwards, and every findable block is in its key's chain."""
    blocks, chains, free_list = state
    end = len(blocks) - 1
    queue = np.concatenate([[end], free_list, [end]])
    is_same = np.array_equal(blocks[queue[1:], PREVIOUS], queue[:-1])
    require(is_same, "the free queue differs read backwards")
    require(blocks.item(end, NEXT) == queue[1], "a lost front")
    fault, block, linked = walk_chains(blocks, chains)
    require(fault != OF_ANOTHER, f"block {block} is in another key's chain")
    require(fault != BROKEN, f"block {block}: a broken chain")
    require(fault != ENDS_ELSEWHERE, "a chain ends elsewhere")
    require(linked == (blocks[:, KEY] != NONE).sum(), "a findable block is in no chain")


@compiled
def walk_chains(blocks: IntArray, chains: IntArray) -> tuple[int, int, int]:
    """What is wrong with the keys' chains, at which block, and how many blocks they link."""
    linked = 0
    for key in range(len(chains)):
        before, block = NONE, chains[key, FIRST]
        if block == NONE:
            continue
        while block != NONE:
            if blocks[block, KEY] != key:
                return OF_ANOTHER, block, linked
            if blocks[block, PREVIOUS_SAME] != before:
                return BROKEN, block, linked
            before, block, linked = block, blocks[block, NEXT_SAME], linked + 1
        if chains[key, LAST] != before:
            return ENDS_ELSEWHERE, before, linked
    return SOUND, NONE, linked
