"""A prefix cache of some capacity under one policy: what each request of a trace finds in it."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from sim.policies.arc import replay_arc
from sim.policies.ghosts import no_ghosts
from sim.policies.ranked import CLAIRVOYANT, FIFO, LFU, LRU, replay_ranked
from sim.policies.references import References
from sim.policies.s3_fifo import replay_s3_fifo
from sim.policies.tree import empty_cache
from sim.policies.workload_aware import NUM_CATEGORIES, replay_workload_aware
from workloads.trace import IntColumn

Replay = Callable[[References, int, IntColumn], None]


class Policy(NamedTuple):
    """What it is in a line, and how it fills the blocks that requests find."""

    about: str
    replay: Replay


def hit_blocks(name: str, asked: References, capacity: int) -> IntColumn:
    """How many of its prompt's blocks each request finds in a cache of capacity blocks.

    Requests are served one after the other, each at once; nothing else takes memory. Raises
    ValueError for an unknown name or a negative capacity.
    """
    if name not in POLICIES:
        raise ValueError(f"policy: unknown {name!r}; accepted: {', '.join(POLICIES)}")
    if capacity < 0:
        raise ValueError(f"capacity: must be 0 blocks or more, got {capacity}")
    found = np.zeros(len(asked.num_asked), np.int64)
    if capacity > 0:
        POLICIES[name].replay(asked, capacity, found)
    return np.minimum(found, asked.num_asked)


def hit_rate(asked: References, hits: IntColumn) -> float:
    """Tokens found as a share of the tokens of all prompts."""
    return int(hits.sum()) * asked.block_size / int(asked.prompt_tokens.sum())


def _ranked(rule: int, asked: References, capacity: int, found: IntColumn) -> None:
    is_foreseen = rule == CLAIRVOYANT
    next_use = asked.next_use if is_foreseen else np.zeros(0, np.int64)
    uses = np.zeros(asked.num_blocks, np.int64)
    cache = empty_cache(asked.parent, 1)
    replay_ranked(cache, asked.first, asked.blocks, next_use, rule, capacity, uses, found)


def _lru(asked: References, capacity: int, found: IntColumn) -> None:
    _ranked(LRU, asked, capacity, found)


def _lfu(asked: References, capacity: int, found: IntColumn) -> None:
    _ranked(LFU, asked, capacity, found)


def _fifo(asked: References, capacity: int, found: IntColumn) -> None:
    _ranked(FIFO, asked, capacity, found)


def _clairvoyant(asked: References, capacity: int, found: IntColumn) -> None:
    _ranked(CLAIRVOYANT, asked, capacity, found)


def _unbounded(asked: References, capacity: int, found: IntColumn) -> None:
    _ranked(LRU, asked, asked.num_blocks + 1, found)


def _none(asked: References, capacity: int, found: IntColumn) -> None:
    found[:] = 0


def _s3_fifo(asked: References, capacity: int, found: IntColumn) -> None:
    cache, ghosts = empty_cache(asked.parent, 2), no_ghosts(asked.num_blocks, 1)
    hits = np.zeros(asked.num_blocks, np.int64)
    replay_s3_fifo(cache, ghosts, asked.first, asked.blocks, capacity, hits, found)


def _arc(asked: References, capacity: int, found: IntColumn) -> None:
    cache, ghosts = empty_cache(asked.parent, 2), no_ghosts(asked.num_blocks, 2)
    replay_arc(cache, ghosts, asked.first, asked.blocks, capacity, found)


def _workload_aware(asked: References, capacity: int, found: IntColumn) -> None:
    cache = empty_cache(asked.parent, NUM_CATEGORIES)
    counts = np.zeros((NUM_CATEGORIES, 3))
    work = np.zeros((2, asked.num_blocks), np.int64)
    replay_workload_aware(
        cache, asked.first, asked.blocks, asked.turns, capacity, counts, work, found
    )


# ceilings first, floors last, as they lie in a figure
POLICIES = {
    "unbounded": Policy("a cache that never evicts: the ceiling of any size", _unbounded),
    "clairvoyant": Policy("whose next use is farthest away goes first: the ceiling", _clairvoyant),
    "workload-aware": Policy("least likely to be used again, by turn or uses", _workload_aware),
    "arc": Policy("two recency lists whose sizes adapt", _arc),
    "s3-fifo": Policy("a small queue filters what enters the main one", _s3_fifo),
    "lru": Policy("least recently used goes first", _lru),
    "lfu": Policy("least often used goes first, the least recent of these", _lfu),
    "fifo": Policy("written first goes first: the floor of eviction", _fifo),
    "none": Policy("no cache", _none),
}
