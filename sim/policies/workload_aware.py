"""workload-aware: the block goes first that is least likely to be asked for again.

The idea is of Wang et al., KVCache Cache in the Wild, USENIX ATC 2025 (arXiv 2506.02634).

From the paper: blocks of one category of requests (their type and turn) are reused after times that
are near an exponential distribution. The block goes first that is least likely to be used within
the time that blocks stay in the cache; of equal ones the farthest from its prompt's beginning.

Ours, because traces name no types, or because the paper leaves it open:
- the category is the turn of the request that last used the block, where the trace has sessions,
  and how often the block has been used otherwise; the last of NUM_CATEGORIES takes all beyond;
- time is counted in requests, and nothing is fitted beforehand: shares and mean times of reuse are
  counted as requests come, over all blocks ever seen, starting from one reuse in two uses;
- p is the share of a category's uses that another one followed, m the mean time to it. After age a
  without a use, the chance of one in the next s requests is
  p e^(-a/m) (1 - e^(-s/m)) / (1 - p + p e^(-a/m)); s is the mean age at which blocks went so far.
Within a category the oldest leaf is the least likely, so only that one of each is compared.
"""

from __future__ import annotations

from math import exp

from sim.jit import compiled
from sim.policies.tree import Cache, evict, insert, move, num_cached, offer, tip_of
from workloads.trace import FloatColumn, IntColumn

NUM_CATEGORIES = 8
USES, REUSES, WAITED = range(3)


@compiled
def _chance(counts: FloatColumn, age: float, stay: float) -> float:
    """How likely a block of a category is used within stay more requests."""
    share = (counts[REUSES] + 1) / (counts[USES] + 2)
    mean = (counts[WAITED] + 1) / (counts[REUSES] + 1)
    left = share * exp(-age / mean)
    return float(left * (1 - exp(-stay / mean)) / (1 - share + left))


@compiled
def _victim(
    cache: Cache, counts: FloatColumn, last_use: IntColumn, request: int, stay: float
) -> int:
    """The leaf that is least likely to be used again, -1 if there are none."""
    best, lowest = -1, 2.0
    for category in range(len(cache.num_leaves)):
        if cache.num_leaves[category] == 0:
            continue
        oldest = cache.heaps[category, 0]
        chance = _chance(counts[category], float(request - last_use[oldest]), stay)
        if chance < lowest:
            best, lowest = oldest, chance
    return best


@compiled
def _note_use(
    counts: FloatColumn, uses: IntColumn, last_use: IntColumn, block: int, request: int, turn: int
) -> int:
    """Count a use of a block, and what it says of the use before; the block's category now.

    uses[block] is how often it was used, with its last category: uses * NUM_CATEGORIES + category.
    """
    number, before = uses[block] // NUM_CATEGORIES, uses[block] % NUM_CATEGORIES
    if number > 0:
        counts[before, REUSES] += 1
        counts[before, WAITED] += request - last_use[block]
    category = min(turn if turn >= 0 else number, NUM_CATEGORIES - 1)
    counts[category, USES] += 1
    uses[block] = (number + 1) * NUM_CATEGORIES + category
    last_use[block] = request
    return int(category)


@compiled
def replay_workload_aware(
    cache: Cache,
    first: IntColumn,
    blocks: IntColumn,
    turns: IntColumn,
    capacity: int,
    counts: FloatColumn,
    work: IntColumn,
    found: IntColumn,
) -> None:
    """Serve all requests; found[r] becomes the number of blocks that request r found.

    turns[r] is the turn of request r in its session from 0 on, -1 without sessions. counts has
    shape (NUM_CATEGORIES, 3), work (2, blocks), both zero.
    """
    uses, last_use = work[0], work[1]
    size, num_evicted, ages = 0, 1.0, 1.0
    for request in range(len(found)):
        end = first[request + 1]
        path = blocks[first[request] : end]
        known = num_cached(cache, path)
        found[request] = known
        tip = tip_of(cache, path, known)
        is_kept = True
        for i in range(len(path)):
            block = path[i]
            category = _note_use(counts, uses, last_use, block, request, turns[request])
            if i < known:
                move(cache, block, category, end - i)
                continue
            if is_kept and size == capacity:
                victim = _victim(cache, counts, last_use, request, ages / num_evicted)
                is_kept = victim >= 0
                if is_kept:
                    ages += request - last_use[victim]
                    num_evicted += 1
                    evict(cache, victim, tip)
                    size -= 1
            if is_kept:
                insert(cache, block, category, end - i)
                size += 1
                tip = block
        offer(cache, tip)
