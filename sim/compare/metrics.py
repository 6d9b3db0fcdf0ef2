"""Which direction of a metric is the better one, and which metrics are shown.

A metric that is in neither list, such as num_running_mean, has no better direction: it is high
where memory holds much and where much waits. Shares of slots are judged as waste is: fewer are
better of what holds no token.
"""

from __future__ import annotations

import re

LOWER = (
    "ttft_s",
    "tpot_s",
    "itl_s",
    "e2e_s",
    "normalized_latency_s",
    "makespan_s",
    "reserved_frac",
    "internal_frac",
    "external_frac",
    "queued_time_frac",
    "num_waiting",
    "num_rejected",
    "num_failed",
    "num_unfinished",
    "num_truncated",
    "num_preemptions",
    "num_recomputed_tokens",
    "num_compactions",
    "num_copied_tokens",
    "num_copied_blocks",
    "num_blocks_swapped_out",
    "num_blocks_swapped_in",
    "copied_bytes",
    "swapped_bytes",
    "swap_time_s",
)
HIGHER = (
    "throughput_req_s",
    "output_tokens_s",
    "goodput_req_s",
    "hit_rate",
    "num_hit_tokens",
    "num_hit_requests",
    "num_finished",
    "token_states_frac_queued",
    "num_running_mean_queued",
    "admission_capacity",
    "shared_blocks_saved_frac",
)
BETTER = {**dict.fromkeys(LOWER, "lower"), **dict.fromkeys(HIGHER, "higher")}

# shown unless others are named, as far as they have values
SHOWN = (
    "ttft_s_p50",
    "ttft_s_p99",
    "tpot_s_p50",
    "e2e_s_p50",
    "output_tokens_s",
    "goodput_req_s",
    "num_preemptions",
    "num_running_mean",
    "hit_rate",
)
OF_REQUESTS = ("ttft_s_mean", "tpot_s_mean", "e2e_s_mean")  # means that sim.compare.stretches tests

_STATISTIC = re.compile(r"_(mean|p[0-9]+)$|_queued$")


def better(metric: str) -> str:
    """Its better direction: lower, higher or ""; statistics have that of what they are of."""
    if metric in BETTER:
        return BETTER[metric]
    return BETTER.get(_STATISTIC.sub("", metric), "")
