"""Policies that rank leaves by one number: lru, lfu, fifo, and the clairvoyant.

lru          least recently asked for or written goes first.
lfu          least often goes first, the least recent of these; counts are forgotten at eviction.
fifo         written first goes first, asked for or not: the floor.
clairvoyant  Belady's MIN (IBM Systems Journal 5(2), 1966) with bypass: whose next use is farthest
             away goes first, and a block that is used later than all others is not kept at all.

Of blocks with equal rank that one request brings, the deepest goes first (as vLLM frees them). A
child is never more recent, more frequent or sooner used than the block before it, so lru, lfu and
clairvoyant evict what they would without the tree; fifo passes over blocks with cached children.

The clairvoyant is exact for this replay (equal blocks, requests served one after the other, as in
the trace): uses of a block are intervals of time, at most `capacity` of which can be kept at once,
and dropping the one that ends last keeps most of them; hits need no other rule, because a block's
interval ends no later than its children's. It is only the best known bound where a request writes,
as output, what another has in its prompt before it is asked for again.
"""

from __future__ import annotations

from sim.jit import compiled
from sim.policies.tree import Cache, evict, insert, num_cached, offer, tip_of
from workloads.trace import IntColumn

LRU, LFU, FIFO, CLAIRVOYANT = range(4)


@compiled
def replay_ranked(
    cache: Cache,
    first: IntColumn,
    blocks: IntColumn,
    next_use: IntColumn,
    rule: int,
    capacity: int,
    uses: IntColumn,
    found: IntColumn,
) -> None:
    """Serve all requests; found[r] becomes the number of blocks that request r found.

    first[r] to first[r + 1] are the positions of its blocks in blocks and next_use. uses is a
    cell of work a block.
    """
    total = len(blocks) + 1
    size = 0
    for request in range(len(found)):
        start, end = first[request], first[request + 1]
        path = blocks[start:end]
        known = num_cached(cache, path)
        found[request] = known
        tip = tip_of(cache, path, known)
        for i in range(len(path)):
            block = path[i]
            is_new = i >= known
            uses[block] = 1 if is_new else uses[block] + 1
            if rule == CLAIRVOYANT:
                key = -next_use[start + i]
            elif rule == LFU:
                key = uses[block] * total + end - i
            else:
                key = end - i
            if not is_new:
                if rule != FIFO:
                    cache.key[block] = key
                continue
            if size == capacity:
                if cache.num_leaves[0] == 0:
                    break
                victim = cache.heaps[0, 0]
                if rule == CLAIRVOYANT and cache.key[victim] >= key:
                    break
                evict(cache, victim, tip)
                size -= 1
            insert(cache, block, 0, key)
            size += 1
            tip = block
        offer(cache, tip)
