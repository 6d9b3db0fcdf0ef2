"""What measures a claim without an experiment: functions over kvsim's own objects.

A probe takes the keys of the claim's `with` and returns what it found, in the shape of the
expected value: a number, a word, or mappings and lists of such. A list of numbers for each of
several seeds is a Seeds. PROBES names them; adding one is a function and a line.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sim.claims.probes import geometry, memory, traces, trees

PROBES: dict[str, Callable[..., Any]] = {
    "kv_bytes_per_token": geometry.kv_bytes_per_token,
    "memory_of_tokens": memory.memory_of_tokens,
    "reuse_break_even_gb_s": memory.reuse_break_even_gb_s,
    "how_many_below": traces.how_many_below,
    "trace_statistics": traces.trace_statistics,
    "mean_hit_per_request": traces.mean_hit_per_request,
    "median_lengths": traces.median_lengths,
    "median_prompts": traces.median_prompts,
    "mean_lengths_and_ratio": traces.mean_lengths_and_ratio,
    "share_of_maximum": traces.share_of_maximum,
    "hit_rates": traces.hit_rates,
    "global_over_local": traces.global_over_local,
    "lru_beats_lfu": traces.lru_beats_lfu,
    "policy_gain": traces.policy_gain,
    "unbounded_hit_rate": traces.unbounded_hit_rate,
    "reuses_of_top_blocks": traces.reuses_of_top_blocks,
    "hits_of_single_turns": traces.hits_of_single_turns,
    "block_lifespans_s": traces.block_lifespans_s,
    "turn_shares": traces.turn_shares,
    "depth_first_is_optimal": trees.depth_first_is_optimal,
    "leaves_go_first_and_what_is_held_stays": trees.leaves_go_first_and_what_is_held_stays,
}
