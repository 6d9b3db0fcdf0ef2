"""How fast the radix tree is: prompts matched and inserted, and leaves evicted."""

from __future__ import annotations

import statistics
import time

import numpy as np

from sim.allocators.tree import RadixTree
from sim.allocators.tree_keys import Key
from sim.sequence import IntArray
from workloads.content import token_runs

PROMPT, SHARED, NUM_FAMILIES, NUM_LEAVES = 1024, 512, 200, 2000
VOCABULARY = 32_000
REPEATS = 3


def measure_tree() -> dict[str, float]:
    """Medians of three, for blocks of 1 and of 16 tokens.

    tree_pairs_per_s        a match and an insert of a prompt of 1,024 tokens that begins like
                            those of its family, with 512 tokens; 200 families, a run a part
    tree_id_pairs_per_s     the same where content is token ids, so that a run is a token
    tree_evictions_per_s    1,024 tokens, two of some 2,000 leaves
    """
    facts: dict[str, float] = {}
    for size in (1, 16):
        facts[f"tree_pairs_per_s_{size}"] = statistics.median(
            [pairs_per_s(size) for _ in range(REPEATS)]
        )
        by_id = [pairs_per_s(size, 2_000, has_ids=True) for _ in range(REPEATS)]
        facts[f"tree_id_pairs_per_s_{size}"] = statistics.median(by_id)
        evictions = [evictions_per_s(size) for _ in range(REPEATS)]
        facts[f"tree_evictions_per_s_{size}"] = statistics.median(evictions)
    return facts


def pairs_per_s(block_size: int, count: int = 20_000, has_ids: bool = False) -> float:
    """Prompts a second; the tree is cut to 2,000 leaves outside of the time."""
    tree = RadixTree(block_size, "lru", protected_threshold=2)
    prompts = [_ids(i) if has_ids else _runs(i) for i in range(count)]
    blocks: IntArray = np.arange(PROMPT // block_size)
    wall_s = 0.0
    for first in range(0, count, 1000):
        start = time.perf_counter()
        for key in prompts[first : first + 1000]:
            tree.match(key)
            tree.insert(key, blocks)
        wall_s += time.perf_counter() - start
        tree.evict(tree.evictable - NUM_LEAVES * SHARED)
    return count / wall_s


def evictions_per_s(block_size: int, count: int = 2_000) -> float:
    """Evictions of 1,024 tokens a second; the tree is filled up again outside of the time."""
    tree = RadixTree(block_size, "lru", protected_threshold=2)
    blocks: IntArray = np.arange(PROMPT // block_size)
    wall_s, added = 0.0, 0
    for _ in range(0, count, 100):
        while tree.num_nodes < NUM_LEAVES + NUM_FAMILIES:
            tree.insert(_runs(added), blocks)
            added += 1
        start = time.perf_counter()
        for _ in range(100):
            tree.evict(PROMPT)
        wall_s += time.perf_counter() - start
    return count / wall_s


def _runs(number: int) -> Key:
    """A prompt that begins like all of its family and goes on alone."""
    family = number % NUM_FAMILIES
    return Key.of([(1 + family, 0, SHARED), (-1 - number, SHARED, PROMPT - SHARED)], PROMPT)


def _ids(number: int) -> Key:
    """The same as token ids."""
    parts = [
        np.random.default_rng(seed).integers(0, VOCABULARY, SHARED)
        for seed in (number % NUM_FAMILIES, NUM_FAMILIES + number)
    ]
    runs = token_runs(np.concatenate(parts)).tolist()
    return Key.of([(source, start, length) for source, start, length in runs], PROMPT)
