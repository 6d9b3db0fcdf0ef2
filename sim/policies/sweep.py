"""Policies at several capacities on several traces: the table of kvsim trace policies."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from sim.policies.references import References
from sim.policies.replay import POLICIES, hit_blocks, hit_rate

NUM_HALVINGS = 10  # of the unbounded cache, if no capacities are given


def default_capacities(asked: References) -> list[int]:
    """Capacities in tokens: what an unbounded cache holds in the end, and that halved again."""
    halved = {max(1, asked.num_blocks >> k) for k in range(NUM_HALVINGS + 1)}
    return [blocks * asked.block_size for blocks in sorted(halved)]


def rows(
    trace: str, asked: References, capacities: Sequence[int], policies: Sequence[str]
) -> Iterator[dict[str, Any]]:
    """One row a policy and capacity in tokens, of which whole blocks count.

    Raises ValueError for an unknown policy, or a capacity without one whole block.
    """
    for name in policies:
        if name not in POLICIES:
            raise ValueError(f"policy: unknown {name!r}; accepted: {', '.join(POLICIES)}")
    for tokens in capacities:
        if tokens < asked.block_size:
            raise ValueError(
                f"capacity: {tokens} tokens hold no block of {asked.block_size} ({trace})"
            )
    for name in policies:
        for tokens in capacities:
            found = hit_blocks(name, asked, tokens // asked.block_size)
            yield {
                "trace": trace,
                "policy": name,
                "block_size": asked.block_size,
                "capacity_tokens": tokens,
                "capacity_blocks": tokens // asked.block_size,
                "num_requests": len(found),
                "num_prompt_tokens": int(asked.prompt_tokens.sum()),
                "num_hit_tokens": int(found.sum()) * asked.block_size,
                "num_hit_requests": int((found > 0).sum()),
                "hit_rate": hit_rate(asked, found),
            }
