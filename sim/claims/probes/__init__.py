"""What measures a claim without an experiment: functions over kvsim's own objects.

A probe takes the keys of the claim's `with` and returns what it found, in the shape of the
expected value: a number, a word, or mappings and lists of such. A list of numbers for each of
several seeds is a Seeds. PROBES names them; adding one is a function and a line.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sim.claims.probes import (
    attention,
    branching,
    engines,
    geometry,
    memory,
    prefix,
    sharing,
    traces,
    trees,
    worked_example,
)

PROBES: dict[str, Callable[..., Any]] = {
    "paged_attention_error": attention.paged_attention_error,
    "beams_spare_percent": branching.beams_spare_percent,
    "prompt_share_percent": branching.prompt_share_percent,
    "samples_spare_percent": branching.samples_spare_percent,
    "accepted_page_sizes": engines.accepted_page_sizes,
    "engine_values": engines.engine_values,
    "kv_ratio": engines.kv_ratio,
    "kv_sizes": engines.kv_sizes,
    "largest_batch": engines.largest_batch,
    "one_pool_for_tokens_and_ranks": engines.one_pool_for_tokens_and_ranks,
    "reservation_gb": engines.reservation_gb,
    "reserves_max_tokens": engines.reserves_max_tokens,
    "tensor_block_sizes": engines.tensor_block_sizes,
    "tokens_per_page": engines.tokens_per_page,
    "kv_bytes_per_token": geometry.kv_bytes_per_token,
    "memory_of_tokens": memory.memory_of_tokens,
    "reuse_break_even_gb_s": memory.reuse_break_even_gb_s,
    "cache_rules": prefix.cache_rules,
    "documented_example": prefix.documented_example,
    "duplicated_blocks": prefix.duplicated_blocks,
    "first_write_copies": sharing.first_write_copies,
    "system_prompt_spares": sharing.system_prompt_spares,
    "system_prompt_spares_tens_of_gb": sharing.system_prompt_spares_tens_of_gb,
    "writes_in_place_when_alone": sharing.writes_in_place_when_alone,
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
    "admitted_beside": worked_example.admitted_beside,
    "blocks_after_growth": worked_example.blocks_after_growth,
    "blocks_and_padding": worked_example.blocks_and_padding,
    "contiguous_beside_paged": worked_example.contiguous_beside_paged,
    "free_blocks": worked_example.free_blocks,
    "is_admitted_between": worked_example.is_admitted_between,
    "lookups_and_waste": worked_example.lookups_and_waste,
    "never_filled_slots": worked_example.never_filled_slots,
    "reservations_that_fit": worked_example.reservations_that_fit,
    "reserved_and_filled": worked_example.reserved_and_filled,
    "wasted_percent": worked_example.wasted_percent,
    "worst_hole_slots": worked_example.worst_hole_slots,
    "worst_padding": worked_example.worst_padding,
}
