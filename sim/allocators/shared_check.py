"""A recount of blocks that rows share or that are pinned: the slow way, for `check`."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from sim.allocators.shared_blocks import PIN
from sim.allocators.terms import ConservationError, KVUsage
from sim.sequence import FINAL_TOKENS, NUM_COMPUTED, IntArray


class Blocks(NamedTuple):
    """Who holds what, as the allocator says."""

    size: int
    refs: IntArray  # the device's blocks, then the host's
    num_device: int
    free: IntArray  # of both
    pinned: IntArray  # one row a declared prefix
    prefix_tokens: int


FREE, INTERNAL, RESERVED, WRITTEN = range(4)  # what a slot is, by how much somebody needs it


def require(condition: bool, sentence: str) -> None:
    if not condition:
        raise ConservationError(f"paged_cow: {sentence}")


def recount_blocks(sequences: IntArray, tables: dict[int, IntArray], blocks: Blocks) -> KVUsage:
    """The terms, but for external, slot by slot.

    A slot that several rows hold counts once, by what it is to the row that needs it most. Raises
    ConservationError if references or free lists contradict the tables.
    """
    size, num_device = blocks.size, blocks.num_device
    holders = np.zeros(len(blocks.refs), np.int64)
    use = np.full((len(blocks.refs), size), FREE)
    for row, table in tables.items():
        computed, final = sequences[row, [NUM_COMPUTED, FINAL_TOKENS]].tolist()
        require(len(set(table.tolist())) == len(table), f"row {row} holds a block twice")
        slots = np.arange(len(table) * size).reshape(-1, size)
        kinds = np.where(slots < final - 1, RESERVED, INTERNAL)
        kinds[slots < computed] = WRITTEN
        kinds[np.isin(table, blocks.pinned)] = WRITTEN  # also for a row that is done
        use[table] = np.maximum(use[table], kinds)
        holders[table] += 1
    cached = 0
    for prefix in blocks.pinned:
        for entry, block in enumerate(prefix.tolist()):
            written = min(size, blocks.prefix_tokens - entry * size)
            if holders[block] == 0:
                cached += written
                use[block, written:] = INTERNAL
    pins = np.zeros_like(holders)
    pins[blocks.pinned.ravel()] = PIN
    require(np.array_equal(holders + pins, blocks.refs), "reference counts are wrong")
    unheld = np.flatnonzero(blocks.refs == 0)
    require(
        np.array_equal(np.sort(blocks.free), unheld), "the free lists are not what nobody holds"
    )
    counts = [int((use[:num_device] == kind).sum()) for kind in (WRITTEN, RESERVED, INTERNAL)]
    free = int((unheld < num_device).sum()) * size
    return KVUsage(counts[0], counts[1], counts[2], 0, cached, free)
