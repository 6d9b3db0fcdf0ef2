"""The cache that all policies run over: blocks in a tree, and a heap of leaves for each list.

Only leaves are evicted: blocks behind which nothing is cached. An inner block's children would
stay in memory and could not be found any more, since a hit needs every block before it. So what is
cached is always closed towards the root, and a request's hits are its first cached blocks.

State is a Cache of arrays, one cell a block (a number of workloads.blockkeys):

parent[b]     the block before it, -1 for the first of a prompt
children[b]   cached blocks right behind it
where[b]      the list that it is cached in, -1 if it is not cached
key[b]        the leaf with the smallest key of a list is evicted first
place[b]      its position in the list's heap, -1 unless it is an evictable leaf
heaps         shape (lists, blocks): evictable leaves, as binary heaps of block numbers
num_leaves    shape (lists,): how many of each heap are in use
sizes         shape (lists,): cached blocks of each list, leaves or not

While a request is served, its deepest cached block (its tip) is in no heap: a policy does not
evict what the request has just found or brought.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from sim.jit import compiled
from workloads.trace import IntColumn


class Cache(NamedTuple):
    """An empty cache; see above."""

    parent: IntColumn
    children: IntColumn
    where: IntColumn
    key: IntColumn
    place: IntColumn
    heaps: IntColumn
    num_leaves: IntColumn
    sizes: IntColumn


def empty_cache(parent: IntColumn, num_lists: int) -> Cache:
    """A cache without blocks, for policies that keep them in num_lists lists."""
    count = len(parent)
    return Cache(
        parent,
        np.zeros(count, np.int64),
        np.full(count, -1),
        np.zeros(count, np.int64),
        np.full(count, -1),
        np.zeros((num_lists, count), np.int64),
        np.zeros(num_lists, np.int64),
        np.zeros(num_lists, np.int64),
    )


@compiled
def _rise(cache: Cache, queue: int, start: int) -> None:
    """Move a leaf towards the top of its heap while its key is smaller than the one above."""
    heap, key, place, at = cache.heaps[queue], cache.key, cache.place, start
    block = heap[at]
    while at > 0:
        above = (at - 1) // 2
        if key[heap[above]] <= key[block]:
            break
        heap[at] = heap[above]
        place[heap[at]] = at
        at = above
    heap[at] = block
    place[block] = at


@compiled
def _sink(cache: Cache, queue: int, start: int) -> None:
    """Move a leaf away from the top of its heap while one below has a smaller key."""
    heap, key, place, at = cache.heaps[queue], cache.key, cache.place, start
    block, count = heap[at], cache.num_leaves[queue]
    while True:
        below = 2 * at + 1
        if below >= count:
            break
        if below + 1 < count and key[heap[below + 1]] < key[heap[below]]:
            below += 1
        if key[heap[below]] >= key[block]:
            break
        heap[at] = heap[below]
        place[heap[at]] = at
        at = below
    heap[at] = block
    place[block] = at


@compiled
def offer(cache: Cache, block: int) -> None:
    """Make a cached block evictable if nothing is cached behind it."""
    if block < 0 or cache.where[block] < 0 or cache.children[block] > 0 or cache.place[block] >= 0:
        return
    queue = cache.where[block]
    at = cache.num_leaves[queue]
    cache.heaps[queue, at] = block
    cache.num_leaves[queue] += 1
    _rise(cache, queue, at)


@compiled
def withhold(cache: Cache, block: int) -> None:
    """Take a block out of the heap of evictable leaves if it is there."""
    at = cache.place[block]
    if at < 0:
        return
    queue = cache.where[block]
    last = cache.num_leaves[queue] - 1
    cache.num_leaves[queue] = last
    cache.place[block] = -1
    if at < last:
        moved = cache.heaps[queue, last]
        cache.heaps[queue, at] = moved
        cache.place[moved] = at
        _rise(cache, queue, at)
        _sink(cache, queue, cache.place[moved])


@compiled
def move(cache: Cache, block: int, queue: int, key: int) -> None:
    """Give a cached block another list and key; the caller offers it again if it is a leaf."""
    withhold(cache, block)
    cache.sizes[cache.where[block]] -= 1
    cache.sizes[queue] += 1
    cache.where[block] = queue
    cache.key[block] = key


@compiled
def insert(cache: Cache, block: int, queue: int, key: int) -> None:
    """Cache a block. It becomes evictable when it is offered."""
    cache.where[block] = queue
    cache.key[block] = key
    cache.sizes[queue] += 1
    if cache.parent[block] >= 0:
        cache.children[cache.parent[block]] += 1


@compiled
def evict(cache: Cache, block: int, tip: int) -> None:
    """Drop an evictable leaf; the block before it may become one, unless it is the tip."""
    withhold(cache, block)
    cache.sizes[cache.where[block]] -= 1
    cache.where[block] = -1
    parent = cache.parent[block]
    if parent >= 0:
        cache.children[parent] -= 1
        if parent != tip:
            offer(cache, parent)


@compiled
def num_cached(cache: Cache, path: IntColumn) -> int:
    """How many of a request's blocks, from the first on, are cached."""
    count = 0
    while count < len(path) and cache.where[path[count]] >= 0:
        count += 1
    return count


@compiled
def tip_of(cache: Cache, path: IntColumn, count: int) -> int:
    """The deepest of the first count blocks, withheld from eviction; -1 if there are none."""
    if count == 0:
        return -1
    withhold(cache, path[count - 1])
    return int(path[count - 1])
