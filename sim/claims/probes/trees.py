"""What theory says of the radix tree, tried on the tree that SGLang's engine is simulated with."""

from __future__ import annotations

import random
from collections.abc import Iterator

import numpy as np

from sim.allocators.tree import RadixTree
from sim.allocators.tree_keys import Key
from workloads.content import Run

Path = tuple[Run, ...]


def depth_first_is_optimal(trees: int, max_requests: int) -> dict[str, bool]:
    """Theorem 3.1: one request at a time, in a cache that holds just the longest of them.

    Random trees of prompts. dfs and longest_prefix_first say whether every order of that kind
    computes each token of the tree once; random whether no random order computes fewer.
    """
    found = {"dfs": True, "longest_prefix_first": True, "random": True}
    for seed in range(trees):
        draw = random.Random(seed)
        paths = list(_leaves(draw, max_requests))
        unique = sum(length for _, _, length in {run for path in paths for run in path})
        capacity = max(map(_length, paths))
        found["dfs"] &= computed(paths, capacity) == unique
        shuffled = draw.sample(paths, len(paths))
        found["longest_prefix_first"] &= computed(_longest_first(shuffled), capacity) == unique
        found["random"] &= computed(shuffled, capacity) >= unique
    return found


def computed(paths: list[Path], capacity: int) -> int:
    """Tokens that are computed when paths are served in order in a cache of capacity tokens.

    The path that is served is held, so it cannot be evicted.
    """
    tree = RadixTree(1, "lru", protected_threshold=2)
    total = 0
    for path in paths:
        length = _length(path)
        key = Key.of(list(path), length)
        node, known = tree.match(key)
        tree.lock(node)
        short = tree.evictable + tree.protected + length - known - capacity
        if short > 0:
            tree.evict(short)
        tree.insert(key, np.arange(length))
        tree.unlock(node)
        total += length - known
    return total


def leaves_go_first_and_what_is_held_stays() -> dict[str, bool]:
    """Three prompts behind one beginning: the least recent leaf goes first, a held one never."""
    tree = RadixTree(1, "lru", protected_threshold=2)
    start: Run = (0, 0, 8)
    keys = [Key.of([start, (1 + leaf, 0, 4)], 12) for leaf in range(3)]
    for key in keys:
        tree.insert(key, np.arange(12))
    tree.match(keys[0])
    tree.evict(4)
    lengths = [tree.peek(key)[0] for key in keys]
    node, _ = tree.match(keys[0])
    tree.lock(node)
    tree.evict(1000)
    return {
        "least recent leaf first": lengths == [12, 8, 12],
        "what is held stays": [tree.peek(key)[0] for key in keys] == [12, 8, 8],
    }


def _leaves(draw: random.Random, max_requests: int) -> Iterator[Path]:
    """The paths to the leaves of a random tree, depth first."""
    number = 0

    def below(depth: int) -> Iterator[Path]:
        nonlocal number
        number += 1
        own: Run = (number, 0, draw.randint(1, 9))
        children = 0 if depth == 4 else draw.choice((0, 1, 2, 3))
        if children == 0:
            yield (own,)
        for _ in range(children):
            for path in below(depth + 1):
                yield (own, *path)

    paths = [path for _ in range(draw.randint(1, 3)) for path in below(0)]
    yield from paths[:max_requests]


def _longest_first(paths: list[Path]) -> list[Path]:
    """Next is always what shares most with what was served last; others keep their order.

    What was served last is what a cache of the longest request surely holds.
    """
    left, order = list(paths), []
    last: Path = ()
    while left:
        best = max(left, key=lambda path: _shared(path, last))
        left.remove(best)
        order.append(best)
        last = best
    return order


def _shared(path: Path, other: Path) -> int:
    total = 0
    for mine, its in zip(path, other, strict=False):
        if mine != its:
            break
        total += mine[2]
    return total


def _length(path: Path) -> int:
    return sum(length for _, _, length in path)
