"""Orders of requests that a radix tree knows: who repeats an earlier one, who is near whom.

Rules of SGLang 0.5.x, srt/managers/schedule_policy.py and mem_cache/base_prefix_cache.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from sim.allocators.tree import Node, RadixTree
from sim.allocators.tree_keys import Key


def repeated(keys: Iterable[Key], least: int) -> list[bool]:
    """Which keys begin with least tokens or more of an earlier one that does not itself."""
    tree = RadixTree(1, "lru", 2)
    found = []
    for key in keys:
        found.append(tree.match(key)[1] >= least)
        if not found[-1]:
            tree.insert(key, np.broadcast_to(np.int64(0), (key.length,)))
    return found


def depth_first(root: Node, nodes: Sequence[Node]) -> list[int]:
    """The places of nodes in depth-first order: the child with most of them first, then its own.

    Children with equally many go in the tree's order; a node comes after all below it.
    """
    weights: dict[Node, int] = {}
    places: dict[Node, list[int]] = {}
    for place, node in enumerate(nodes):
        places.setdefault(node, []).append(place)
        for above in node.path():
            weights[above] = weights.get(above, 0) + 1
    order: list[int] = []
    stack = [(root, False)]
    while stack:
        node, is_done = stack.pop()
        if is_done:
            order += places.get(node, [])
            continue
        stack.append((node, True))
        children = [child for child in node.children.values() if child in weights]
        children.sort(key=weights.__getitem__, reverse=True)
        stack += [(child, False) for child in reversed(children)]
    return order
