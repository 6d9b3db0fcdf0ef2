"""arc: adaptive replacement (Megiddo and Modha, FAST 2003).

From the paper: T1 holds blocks seen once, T2 those seen again, both by recency; B1 and B2 remember
what left them. A block that B1 remembers makes the target size of T1 larger, one that B2 remembers
makes it smaller. T1 and B1 remember no more than the capacity, all four twice of it.

Ours: the least recent block of a list is its least recent leaf (in T2 a block may have children in
T1), of one request's blocks the deepest; if only the other list has leaves, that one is taken;
lists of ghosts are cut after a block has entered, not before it, to the same effect.
"""

from __future__ import annotations

from sim.jit import compiled
from sim.policies.ghosts import Ghosts, forget, forget_oldest, is_ghost, remember
from sim.policies.tree import Cache, evict, insert, move, num_cached, offer, tip_of
from workloads.trace import IntColumn

ONCE, AGAIN = range(2)


@compiled
def _replace(cache: Cache, ghosts: Ghosts, target: float, block: int, tip: int) -> bool:
    """Evict a block of T1 or T2 for a block to come; False if none can be evicted."""
    once = cache.sizes[ONCE]
    is_over = once > target or (once == target and is_ghost(ghosts, block, AGAIN))
    queue = ONCE if once >= 1 and is_over else AGAIN
    if cache.num_leaves[queue] == 0:
        queue = 1 - queue
    if cache.num_leaves[queue] == 0:
        return False
    victim = cache.heaps[queue, 0]
    evict(cache, victim, tip)
    remember(ghosts, victim, queue)
    return True


@compiled
def _adapted(ghosts: Ghosts, target: float, block: int, capacity: int) -> float:
    """The target size of T1 when this block comes."""
    once, again = ghosts.sizes[ONCE], ghosts.sizes[AGAIN]
    if is_ghost(ghosts, block, ONCE):
        return min(float(capacity), target + max(1.0, float(again / once)))
    if is_ghost(ghosts, block, AGAIN):
        return max(0.0, target - max(1.0, float(once / again)))
    return target


@compiled
def _cut(cache: Cache, ghosts: Ghosts, capacity: int) -> None:
    """Forget ghosts beyond what the paper keeps."""
    while ghosts.sizes[ONCE] > 0 and cache.sizes[ONCE] + ghosts.sizes[ONCE] > capacity:
        forget_oldest(ghosts, ONCE)
    cached = cache.sizes[ONCE] + cache.sizes[AGAIN]
    while ghosts.sizes[AGAIN] > 0 and cached + ghosts.sizes.sum() > 2 * capacity:
        forget_oldest(ghosts, AGAIN)


@compiled
def replay_arc(
    cache: Cache,
    ghosts: Ghosts,
    first: IntColumn,
    blocks: IntColumn,
    capacity: int,
    found: IntColumn,
) -> None:
    """Serve all requests; found[r] becomes the number of blocks that request r found."""
    size, target = 0, 0.0
    for request in range(len(found)):
        end = first[request + 1]
        path = blocks[first[request] : end]
        known = num_cached(cache, path)
        found[request] = known
        tip = tip_of(cache, path, known)
        for i in range(known):
            move(cache, path[i], AGAIN, end - i)
        for i in range(known, len(path)):
            block = path[i]
            target = _adapted(ghosts, target, block, capacity)
            if size == capacity:
                if not _replace(cache, ghosts, target, block, tip):
                    break
                size -= 1
            queue = AGAIN if ghosts.where[block] >= 0 else ONCE
            forget(ghosts, block)
            insert(cache, block, queue, end - i)
            size += 1
            tip = block
            _cut(cache, ghosts, capacity)
        offer(cache, tip)
