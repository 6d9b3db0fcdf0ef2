"""How fast the radix tree of token runs is: pairs of match and insert, and evictions."""

from __future__ import annotations

import time

import numpy as np

from sim.allocators.tree import RadixTree
from sim.allocators.tree_keys import Key
from sim.sequence import IntArray

PROMPT, SHARED, NUM_FAMILIES = 1024, 512, 200


def pairs_per_s(block_size: int, count: int = 20_000) -> float:
    """Match and insert of prompts a second: 1,024 tokens, of which a family shares the first 512.

    As in a serving engine, the tree is kept at some 2,000 leaves: evictions are left out of the
    time.
    """
    tree = RadixTree(block_size, "lru", protected_threshold=2)
    keys = [_prompt(i) for i in range(count)]
    blocks: IntArray = np.arange(PROMPT // block_size)
    wall_s = 0.0
    for first in range(0, count, 1000):
        start = time.perf_counter()
        for key in keys[first : first + 1000]:
            tree.match(key)
            tree.insert(key, blocks)
        wall_s += time.perf_counter() - start
        tree.evict(tree.evictable - 2000 * SHARED)
    return count / wall_s


def evictions_per_s(block_size: int, count: int = 2_000) -> float:
    """Evictions of 1,024 tokens a second, two leaves each, from a tree of some 2,000 leaves."""
    tree = RadixTree(block_size, "lru", protected_threshold=2)
    blocks: IntArray = np.arange(PROMPT // block_size)
    wall_s, added = 0.0, 0
    for _ in range(0, count, 100):
        while tree.num_nodes < 2000 + NUM_FAMILIES:
            tree.insert(_prompt(added), blocks)
            added += 1
        start = time.perf_counter()
        for _ in range(100):
            tree.evict(PROMPT)
        wall_s += time.perf_counter() - start
    return count / wall_s


def _prompt(number: int) -> Key:
    """A prompt that begins like all of its family and goes on alone."""
    family = number % NUM_FAMILIES
    runs = [(1 + family, 0, SHARED), (-1 - number, SHARED, PROMPT - SHARED)]
    return Key.of(runs, PROMPT)
