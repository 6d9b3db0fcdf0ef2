"""vLLM's prefix cache as its documentation tells it: the example, duplicated blocks, the rules.

Source: docs/design/prefix_caching.md of vllm-project/vllm. The documentation numbers blocks from 0;
in the engine, and here, block 0 is never given away, so ids here are one less than the allocator's.
It describes the releases before 0.23, which put all freed blocks at the end of the free queue.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

from sim.allocators.prefix import FreeOrder, Prefix
from sim.claims.probes.pools import Pool, histories
from sim.sequence import FINAL_TOKENS
from workloads.content import Run

Prompt = Sequence[Run]
FIRST = 1  # the first block that is given away


def documented_example(free_order: FreeOrder = "append") -> dict[str, object]:
    """Ten blocks of 4: prompts of 15, 14 and 29 tokens, the last two begin like the first one.

    With 10 and 12 tokens of it. The first one generates two tokens and one of these needs a block;
    the first two are gone before the third comes.
    """
    prompts = [[(1, 0, 15)], [(1, 0, 10), (2, 0, 4)], [(1, 0, 12), (3, 0, 17)]]
    pool, memory = _pool(10, 4, free_order)
    pool.know(prompts, [9, 9, 9])
    first = pool.enter_known(0)
    pool.write(first, 2)
    hit = _hit(pool, 1)
    second = pool.enter_known(1)
    for row in (first, second):
        pool.leave(row)
    queue = [block - FIRST for block in memory.free_list().tolist()]
    return {
        "hit_tokens_req1": hit,
        "free_queue": queue,
        "req2_blocks": _table(memory, pool.enter_known(2)),
    }


def duplicated_blocks(
    prompt: int, output: int, block_size: int, free_order: FreeOrder = "append"
) -> dict[str, list[int]]:
    """Block tables of two equal requests, one after the other: all of the first, two of the second.

    Every generated token is written, as in the documentation, so one more is generated, whose KV
    is not.
    """
    pool, memory = _pool(10, block_size, free_order)
    pool.know([[(1, 0, prompt)]] * 2, [output + 1] * 2)
    tables = []
    for request in (0, 1):
        row = pool.enter_known(request)
        pool.write(row, output)
        tables.append(_table(memory, row))
        pool.leave(row)
    return {"req1": tables[0], "req2_first_two": tables[1][:2]}


def cache_rules(free_order: FreeOrder = "append", seeds: int = 5) -> dict[str, bool]:
    """Whether three rules hold at every step of random histories of prompts that begin alike.

    Only full blocks can be found; a freed sequence's blocks stand at the end of the free queue, its
    last block first; what a sequence takes, beside its hits, is the head of the queue.
    """
    found = {"only_full": True, "freed_to_tail_reversed": True, "taken_from_head": True}
    for rng, steps in histories(seeds, 200):
        pool, memory = _pool(60, 4, free_order)
        pool.know([_prompt(rng) for _ in range(steps)], [8] * steps)
        for request in range(steps):
            if len(pool.held) > 3:
                row = rng.choice(pool.held)
                found["freed_to_tail_reversed"] &= _leaves_in_reverse(pool, memory, row)
            found["taken_from_head"] &= _takes_the_head(pool, memory, request)
            row = rng.choice(pool.held)
            if pool.num_tokens(row) < pool.sequences.rows.item(row, FINAL_TOKENS) - 1:
                pool.write(row, 1)
            found["only_full"] &= _finds_only_full(pool, memory)
        pool.check()
    return found


def _pool(num_blocks: int, block_size: int, free_order: FreeOrder) -> tuple[Pool, Prefix]:
    memory = Prefix(block_size, free_order=free_order)
    return Pool(memory, (num_blocks + FIRST) * block_size, 4096), memory


def _hit(pool: Pool, request: int) -> int:
    """Tokens that a request would find if it came now."""
    row = pool.open_known(request)
    found = pool.allocator.lookup(row)
    pool.sequences.close(row)
    return found


def _table(memory: Prefix, row: int) -> list[int]:
    return [block - FIRST for block in memory.block_table(row).tolist()]


def _prompt(rng: random.Random) -> Prompt:
    """A prompt that begins with up to 20 tokens of one of three texts."""
    text, alike = rng.randint(1, 3), rng.randint(1, 20)
    return [(text, 0, alike), (rng.randint(10, 1 << 30), 0, rng.randint(1, 12))]


def _leaves_in_reverse(pool: Pool, memory: Prefix, row: int) -> bool:
    """Free a row, and see whether what nobody else holds stands last, its last block first."""
    before = memory.free_list().tolist()
    own = [b for b in memory.block_table(row).tolist() if memory.ref_counts()[b] == 1]
    pool.leave(row)
    return bool(memory.free_list().tolist() == before + own[::-1])


def _takes_the_head(pool: Pool, memory: Prefix, request: int) -> bool:
    """Admit a request, and see whether what it did not find is the head of the free queue."""
    queue = memory.free_list().tolist()
    num_hits = _hit(pool, request) // memory.block_size
    table = memory.block_table(pool.enter_known(request)).tolist()
    hits, taken = table[:num_hits], table[num_hits:]
    left = [block for block in queue if block not in hits]
    return bool(taken == left[: len(taken)])


def _finds_only_full(pool: Pool, memory: Prefix) -> bool:
    """Whether no block that can be found is one whose holder has not filled it."""
    findable = set(memory.findable()[:, 0].tolist())
    for row in pool.held:
        num_full = pool.num_tokens(row) // memory.block_size
        if findable & set(memory.block_table(row).tolist()[num_full:]):
            return False
    return True
