"""Which unlocked leaf of a radix tree is evicted next: SGLang's eviction policies.

A policy gives a leaf a key; the smallest is evicted. No two leaves of a tree have the same, because
every operation has its own tick of the tree's clock. One line a policy in EVICTION_POLICIES.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol

EvictionKey = int | tuple[int, int]


class Leaf(Protocol):
    """What policies look at: two times in ticks, hits, and the priority of its requests."""

    last_access: int
    created: int
    hit_count: int
    priority: int


class EvictionPolicy(NamedTuple):
    """key(leaf, protected_threshold); falls says whether a hit can make it smaller."""

    key: Callable[[Leaf, int], EvictionKey]
    falls: bool = False


EVICTION_POLICIES: dict[str, EvictionPolicy] = {
    "lru": EvictionPolicy(lambda leaf, _: leaf.last_access),
    "lfu": EvictionPolicy(lambda leaf, _: (leaf.hit_count, leaf.last_access)),
    "fifo": EvictionPolicy(lambda leaf, _: leaf.created),
    "mru": EvictionPolicy(lambda leaf, _: -leaf.last_access, falls=True),
    "filo": EvictionPolicy(lambda leaf, _: -leaf.created),
    "priority": EvictionPolicy(lambda leaf, _: (leaf.priority, leaf.last_access)),
    "slru": EvictionPolicy(lambda leaf, threshold: (leaf.hit_count >= threshold, leaf.last_access)),
}
