"""Requests go where most of their prompt is cached, unless that replica is far busier than others.

Models the cache-aware policy of SGLang's router (sglang-router, now SGLang Model Gateway 0.3;
vLLM's router inherits it), with its thresholds and their defaults. While the replicas are balanced,
the one that knows the longest prefix serves the request, if that is more than cache_threshold of
the prompt. They are not balanced if the busiest has more than balance_abs_threshold requests more
than the idlest, and more than balance_rel_threshold times as many; then the idlest serves it.
Differs on purpose: SGLang's router keeps a tree of its own of the texts that it has sent where, and
sends what is known nowhere to the replica with the smallest tree. Here replicas are asked what
they hold at this moment, as routers do that listen to cache events (llm-d, Dynamo), so that
nothing evicted is counted on; a prompt that still waits somewhere is not known there, and what is
known nowhere goes where the fewest requests are.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from sim.routers.base import Router, Server, least_loaded


class PrefixAware(Router):
    """The replica that holds most of the prompt; of several, the one with the fewest requests.

    cache_threshold is the fraction of a prompt that must be held for that to count. Replicas are
    out of balance, and the one with the fewest requests is taken, if the most and the fewest
    requests of one differ by more than balance_abs_threshold, and by a factor of more than
    balance_rel_threshold.
    """

    kind: ClassVar[str] = "prefix_aware"
    reads_prefixes: bool = True

    def __init__(
        self,
        cache_threshold: float = 0.3,
        balance_abs_threshold: int = 64,
        balance_rel_threshold: float = 1.5,
    ) -> None:
        if not 0 <= cache_threshold <= 1:
            raise ValueError(f"cache_threshold: must be from 0 to 1, got {cache_threshold}")
        if balance_abs_threshold < 0:
            raise ValueError(
                f"balance_abs_threshold: must be at least 0, got {balance_abs_threshold}"
            )
        if balance_rel_threshold < 1:
            raise ValueError(
                f"balance_rel_threshold: must be at least 1, got {balance_rel_threshold}"
            )
        self.cache_threshold = cache_threshold
        self.balance_abs_threshold = balance_abs_threshold
        self.balance_rel_threshold = balance_rel_threshold

    def route(self, request: int, replicas: Sequence[Server]) -> int:
        loads = [replica.num_requests for replica in replicas]
        most, fewest = max(loads), min(loads)
        is_far = most - fewest > self.balance_abs_threshold
        if is_far and most > self.balance_rel_threshold * fewest:
            return least_loaded(replicas)
        hits = [replica.lookup(request) for replica in replicas]
        if max(hits) <= self.cache_threshold * self.num_prompt_tokens(request):
            return least_loaded(replicas)
        return min(range(len(loads)), key=lambda number: (-hits[number], loads[number]))
