"""Attention over keys and values that lie where an allocator's block tables say.

In numpy, at float32: once over the blocks of a pool, block after block, with a running maximum and
sum, as kernels read paged memory; once over the same keys and values side by side. The project's
own kernels are compared with such a reference in tests/kernels_interp.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sim.claims.probes.pools import Pool, histories, made

Floats = NDArray[np.float32]


@dataclass(frozen=True)
class Shape:
    """Heads and values a head of one layer."""

    heads: int = 4
    head_dim: int = 64


def paged_attention_error(
    block_size: int = 16, allocator: str = "paged", seeds: int = 5, steps: int = 200
) -> float:
    """The largest difference between the two, over all sequences that live at the end.

    Sequences come, grow and go at random before, so that block tables are out of order.
    """
    shape, worst = Shape(), 0.0
    for rng, left in histories(seeds, steps):
        pool = Pool(made(allocator, block_size=block_size), 256 * block_size, 1024)
        for _ in range(left):
            if pool.held and rng.random() < 0.45:
                pool.leave(rng.choice(pool.held))
            else:
                pool.enter(rng.randint(1, 500), 20)
        worst = max(worst, _error(pool, shape, np.random.default_rng(rng.randint(0, 1 << 30))))
    return worst


def _error(pool: Pool, shape: Shape, rng: np.random.Generator) -> float:
    """The largest difference over the sequences in a pool, whose keys and values are random."""
    width = shape.heads, shape.head_dim
    memory = np.zeros((2, pool.allocator.num_slots, *width), np.float32)
    whole = {}
    for row in pool.held:
        kv = rng.standard_normal((2, pool.num_tokens(row), *width), np.float32)
        memory[:, _slots(pool, row)] = kv
        whole[row] = kv
    query = rng.standard_normal(width, np.float32)
    errors = [
        np.abs(_by_block(pool, row, memory, query) - _at_once(kv, query)).max()
        for row, kv in whole.items()
    ]
    return float(max(errors, default=0.0))


def _slots(pool: Pool, row: int) -> NDArray[np.int64]:
    """Where the row's tokens lie, in their order."""
    pieces = [np.arange(first, first + n) for first, n in pool.allocator.held_ranges(row).tolist()]
    return np.concatenate(pieces)[: pool.num_tokens(row)]


def _at_once(kv: Floats, query: Floats) -> Floats:
    """Attention of a query over keys and values, shape (2, tokens, heads, head_dim)."""
    scores = np.einsum("hd,thd->ht", query, kv[0]) / np.float32(query.shape[1] ** 0.5)
    weights = np.exp(scores - scores.max(axis=1, keepdims=True))
    result: Floats = np.einsum("ht,thd->hd", weights, kv[1]) / weights.sum(axis=1, keepdims=True)
    return result


def _by_block(pool: Pool, row: int, memory: Floats, query: Floats) -> Floats:
    """The same, a range of slots at a time, in the order of the block table."""
    left = pool.num_tokens(row)
    high = np.full((query.shape[0], 1), -np.inf, np.float32)
    total = np.zeros_like(high)
    result = np.zeros_like(query)
    for first, count in pool.allocator.held_ranges(row).tolist():
        kv = memory[:, first : first + min(count, left)]
        left -= kv.shape[1]
        if not kv.shape[1]:
            break
        scores = np.einsum("hd,thd->ht", query, kv[0]) / np.float32(query.shape[1] ** 0.5)
        above = np.maximum(high, scores.max(axis=1, keepdims=True))
        shrink, weights = np.exp(high - above), np.exp(scores - above)
        result = result * shrink + np.einsum("ht,thd->hd", weights, kv[1])
        total = total * shrink + weights.sum(axis=1, keepdims=True)
        high = above
    return result / total
