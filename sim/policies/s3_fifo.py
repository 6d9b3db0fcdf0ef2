"""s3-fifo: three queues (Yang et al., FIFO queues are all you need for cache eviction, SOSP 2023).

From the paper: new blocks enter a small queue, a tenth of the cache; at its end those that were
hit more than once move to the main queue, the others are dropped and remembered in a ghost queue
as long as the main one. What the ghost queue remembers enters the main queue when it comes again.
At the end of the main queue a block that was hit goes back to the front with one hit less; hits
count up to 3.

Ours: the end of a queue is its oldest leaf, blocks with cached children keep their place; of one
request's blocks the deepest is the oldest; if only the other queue has leaves, that one is taken.
"""

from __future__ import annotations

from sim.jit import compiled
from sim.policies.ghosts import Ghosts, forget, forget_oldest, is_ghost, remember
from sim.policies.tree import Cache, evict, insert, move, num_cached, offer, tip_of
from workloads.trace import IntColumn

SMALL, MAIN = range(2)
MAX_HITS = 3


@compiled
def _make_room(
    cache: Cache, ghosts: Ghosts, hits: IntColumn, capacity: int, tip: int, clock: int
) -> int:
    """Evict one block. The clock afterwards, or -1 if no block can be evicted."""
    small_size = max(1, capacity // 10)
    while True:
        queue = SMALL if cache.sizes[SMALL] >= small_size else MAIN
        if cache.num_leaves[queue] == 0:
            queue = 1 - queue
        if cache.num_leaves[queue] == 0:
            return -1
        block = cache.heaps[queue, 0]
        if queue == SMALL and hits[block] <= 1:
            remember(ghosts, block, 0)
            if ghosts.sizes[0] > capacity - small_size:
                forget_oldest(ghosts, 0)
        if hits[block] <= (1 if queue == SMALL else 0):
            evict(cache, block, tip)
            return clock
        clock += 1
        hits[block] = 0 if queue == SMALL else hits[block] - 1
        move(cache, block, MAIN, clock)
        offer(cache, block)


@compiled
def replay_s3_fifo(
    cache: Cache,
    ghosts: Ghosts,
    first: IntColumn,
    blocks: IntColumn,
    capacity: int,
    hits: IntColumn,
    found: IntColumn,
) -> None:
    """Serve all requests; found[r] becomes the number of blocks that request r found.

    hits is a cell of work a block.
    """
    size, clock = 0, 0
    for request in range(len(found)):
        path = blocks[first[request] : first[request + 1]]
        known = num_cached(cache, path)
        found[request] = known
        tip = tip_of(cache, path, known)
        for i in range(known):
            hits[path[i]] = min(MAX_HITS, hits[path[i]] + 1)
        clock += len(path)
        front = clock
        for i in range(known, len(path)):
            block = path[i]
            if size == capacity:
                later = _make_room(cache, ghosts, hits, capacity, tip, clock)
                if later < 0:
                    break
                clock = later
                size -= 1
            queue = MAIN if is_ghost(ghosts, block, 0) else SMALL
            forget(ghosts, block)
            hits[block] = 0
            insert(cache, block, queue, front - i)
            size += 1
            tip = block
        offer(cache, tip)
