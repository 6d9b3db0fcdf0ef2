"""From a finished run to its summary row and its tables. Every figure and claim reads these.

Fractions are time-weighted: the integral of a term over the run divided by the integral of all
six, so the six add to 1. With the suffix `_queued` the integral covers the queued iterations
after the warm-up only: iterations after whose schedule() a request still waited for memory or
for max_num_seqs, from the moment as many requests have finished as ran when memory was first
full. Without such time the value is None, never 0.

What sharing saves (docs/prefix_caching.md), None in memory that shares nothing:

num_queried_tokens, num_hit_tokens, num_hit_requests, num_recomputed_tokens   sim.schedulers.tally
hit_rate                   num_hit_tokens / num_queried_tokens
num_evicted_blocks         blocks that were given away while they could still be found
reuse_distance_blocks_*    Allocator.reuse_distances
shared_blocks_saved_frac   (blocks in the tables of sequences - different blocks in them) / the
                           former, both integrated over time: Fig. 15 of the PagedAttention paper
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from sim.allocators.terms import TERM_NAMES
from sim.engine.fleet import FleetRun
from sim.engine.simulation import Run
from sim.gaps import GAP_BITS, GAP_COUNT, GAP_FIRST, GAP_SUM_NS, GAP_SUM_S
from sim.metrics.facts import Facts, facts_of, replica_facts
from sim.sequence import (
    ARRIVAL_NS,
    BY_MAX_MODEL_LEN,
    BY_MAX_TOKENS,
    CUT,
    FAILED,
    FINISH_NS,
    FINISHED,
    FIRST_TOKEN_NS,
    NUM_GENERATED,
    NUM_PREEMPTIONS,
    PENDING,
    REJECTED,
    STATUS,
    IntArray,
)

Value = float | int | str | None
Row = dict[str, Value]
Floats = NDArray[np.float64]
BoolArray = NDArray[np.bool_]

NS_PER_S = 1_000_000_000
NUM_BATCHES = 10
PERCENTILES = (50, 90, 99)

# latencies, and the columns of a request between which they lie: one at a time is in memory, since
# there may be ten million requests
LATENCIES = {
    "ttft_s": (FIRST_TOKEN_NS, ARRIVAL_NS),
    "tpot_s": (FINISH_NS, FIRST_TOKEN_NS),
    "e2e_s": (FINISH_NS, ARRIVAL_NS),
}

# an allocator's or a scheduler's own counts; None for one that does not count them
COUNTERS = (
    "num_placements",
    "num_holes_inspected",
    "num_compactions",
    "num_copied_tokens",
    "num_copied_blocks",
    "num_blocks_swapped_out",
    "num_blocks_swapped_in",
    "num_queried_tokens",
    "num_hit_tokens",
    "num_hit_requests",
    "num_recomputed_tokens",
    "num_evicted_blocks",
    "num_pages_taken",
    "num_pages_mapped",
    "num_pages_mapped_ahead",
    "num_pages_unmapped",
)


def summarize(
    run: Run | FleetRun, slo: Mapping[str, float], kv_bytes_per_token: int | None = None
) -> Row:
    """The summary row of a run. slo maps ttft_s, tpot_s and e2e_s to their limits.

    Of replicas, counts and numbers of requests are sums, fractions weighted by slots and time, and
    what is queued is over the time in which a replica's own requests wait. Without
    kv_bytes_per_token nothing is said in bytes.
    """
    return summary_of(facts_of(run), slo, kv_bytes_per_token)


def summary_of(
    facts: Facts, slo: Mapping[str, float], kv_bytes_per_token: int | None = None
) -> Row:
    """The summary row of facts."""
    requests = facts.requests
    status = requests[:, STATUS]
    is_done = status == FINISHED
    num_finished = int(is_done.sum())
    makespan_s = (facts.end_ns - facts.start_ns) / NS_PER_S
    row: Row = {"status": facts.status, "reason": facts.reason}
    row |= memory_metrics(facts)
    row |= {
        "num_slots": facts.num_slots,
        "num_blocks": facts.num_blocks,
        "num_requests": len(requests),
        "num_finished": num_finished,
        "num_rejected": int((status == REJECTED).sum()),
        "num_failed": int((status == FAILED).sum()),
        "num_unfinished": int((status == PENDING).sum()),
        "num_truncated": int(((requests[:, CUT] == BY_MAX_MODEL_LEN) & (status != REJECTED)).sum()),
        "num_max_tokens_cuts": int((requests[:, CUT] == BY_MAX_TOKENS).sum()),
        "num_preemptions": int(requests[:, NUM_PREEMPTIONS].sum()),
        **_counters(facts, kv_bytes_per_token),
        "num_iterations": facts.num_iterations,
        "makespan_s": makespan_s,
        "throughput_req_s": _rate(num_finished, makespan_s),
        "output_tokens_s": _rate(facts.num_output_tokens, makespan_s),
    }
    is_good = np.ones(num_finished, np.bool_)
    for name in LATENCIES:
        latency = request_latency(name, requests, is_done)
        if name == "e2e_s":
            row |= histogram_spread("itl_s", facts.gaps, PERCENTILES, NS_PER_S)
        row |= spread(name, latency)
        if name in slo:  # a one-token output has no TPOT
            is_good &= np.isnan(latency) | (latency <= slo[name])
    row["normalized_latency_s_mean"] = _mean(latency / requests[:, NUM_GENERATED][is_done])
    row["goodput_req_s"] = _rate(int(is_good.sum()), makespan_s) if slo else None
    return row


def _counters(facts: Facts, kv_bytes_per_token: int | None) -> Row:
    """What allocator and scheduler have counted, and what follows from it."""
    counts = facts.counters
    row: Row = {name: counts.get(name) for name in COUNTERS}
    searches, inspected = counts.get("num_placements", 0), counts.get("num_holes_inspected", 0)
    row["holes_per_search_mean"] = inspected / searches if searches else None
    copied = counts.get("num_copied_tokens")
    for name, count in {"copied_bytes": copied, "swapped_bytes": facts.swapped_slots}.items():
        row[name] = None
        if count is not None and kv_bytes_per_token is not None:
            row[name] = count * kv_bytes_per_token
    row["swap_time_s"] = facts.swap_s
    queried = counts.get("num_queried_tokens", 0)
    row["hit_rate"] = counts["num_hit_tokens"] / queried if queried else None
    return row | histogram_spread("reuse_distance_blocks", facts.reuse_distances, (50, 90))


def request_latency(name: str, requests: IntArray, is_done: BoolArray) -> Floats:
    """One of LATENCIES of the requests that are done, in seconds, NaN for those without.

    TPOT is the time after the first token by the number of tokens after it.
    """
    end, start = LATENCIES[name]
    spent_ns = requests[:, end][is_done]
    spent_ns -= requests[:, start][is_done]
    spent_s: Floats = spent_ns / NS_PER_S
    if name == "tpot_s":
        num_gaps = requests[:, NUM_GENERATED][is_done]
        num_gaps -= 1
        np.divide(spent_s, num_gaps, out=spent_s, where=num_gaps > 0)
        spent_s[num_gaps <= 0] = np.nan
    return spent_s


def spread(name: str, values: Floats) -> Row:
    """Mean and percentiles of the values that are not NaN; None without any."""
    values = values[~np.isnan(values)]
    row: Row = {f"{name}_mean": _mean(values)}
    found = [None] * len(PERCENTILES)
    if len(values):
        found = np.percentile(values, PERCENTILES, overwrite_input=True).tolist()
    for percentile, cell in zip(PERCENTILES, found, strict=True):
        row[f"{name}_p{percentile}"] = cell
    return row


def histogram_spread(
    name: str, histogram: IntArray | None, percentiles: Sequence[int], unit: int = 1
) -> Row:
    """Mean and percentiles of what sim.gaps has counted, in units; None if it is nothing.

    The mean is exact; a percentile is the middle of a cell that is at most 0.1 % wide.
    """
    count = 0 if histogram is None else histogram.item(GAP_COUNT)
    if histogram is None or count == 0:
        return {f"{name}_mean": None, **{f"{name}_p{p}": None for p in percentiles}}
    total = histogram.item(GAP_SUM_S) * NS_PER_S + histogram.item(GAP_SUM_NS)
    row: Row = {f"{name}_mean": total / count / unit}
    cumulative = np.cumsum(histogram[GAP_FIRST:])
    for percentile in percentiles:
        rank = max(1, -(-count * percentile // 100))
        row[f"{name}_p{percentile}"] = cell_middle(int(np.searchsorted(cumulative, rank))) / unit
    return row


def cell_middle(cell: int) -> float:
    """The middle of a cell of a histogram."""
    if cell < 2 << GAP_BITS:
        return float(cell)
    shift = (cell >> GAP_BITS) - 1
    low = (cell - (shift << GAP_BITS)) << shift
    return low + ((1 << shift) - 1) / 2


def memory_metrics(facts: Facts) -> Row:
    """Where the slots were, and how many sequences ran: over the run, and while queued."""
    timeline, queued = facts.timeline, facts.queued
    totals = {name: sum(timeline[name]) for name in timeline}
    time_ns, measured_ns = facts.end_ns - facts.start_ns, facts.measured_ns
    row: Row = {}
    for suffix, integrals in (("", totals), ("_queued", queued)):
        pool = sum(integrals[name] for name in TERM_NAMES)
        for name in TERM_NAMES:
            row[f"{name}_frac{suffix}"] = integrals[name] / pool if pool else None
        tables, held = integrals["table_blocks"], integrals["held_blocks"]
        row[f"shared_blocks_saved_frac{suffix}"] = (tables - held) / tables if tables else None
    row["queued_time_frac"] = queued["queued"] / measured_ns if measured_ns else None
    row["num_queued_iterations"] = facts.num_queued_iterations
    row["num_running_mean"] = totals["num_running"] / time_ns if time_ns else None
    running_queued = queued["num_running"] / queued["queued"] if queued["queued"] else None
    row["num_running_mean_queued"] = running_queued
    row["num_running_max"] = facts.num_running_max
    row["num_waiting_mean"] = totals["num_waiting"] / time_ns if time_ns else None
    row["admission_capacity"] = running_queued
    row["token_states_frac_batch_sd"] = batch_sd(
        timeline["token_states"], [sum(cells) for cells in zip(*_terms(timeline), strict=True)]
    )
    row["num_running_mean_queued_batch_sd"] = batch_sd(
        timeline["num_running_queued"], timeline["queued"]
    )
    return row


def _terms(timeline: Mapping[str, Sequence[int]]) -> list[Sequence[int]]:
    return [timeline[name] for name in TERM_NAMES]


def batch_sd(parts: Sequence[int], weights: Sequence[int]) -> float | None:
    """Standard deviation of the means of ten equal stretches of a run: its spread within.

    parts / weights is the mean of a bucket. None with fewer than two stretches that have any.
    """
    edges = np.linspace(0, len(parts), NUM_BATCHES + 1).astype(int)
    means = []
    for low, high in itertools.pairwise(edges.tolist()):
        weight = sum(weights[low:high])
        if weight:
            means.append(sum(parts[low:high]) / weight)
    return float(np.std(means, ddof=1)) if len(means) > 1 else None


def _mean(values: Floats) -> float | None:
    return float(values.mean()) if len(values) else None


def _rate(count: int, seconds: float) -> float | None:
    return count / seconds if seconds > 0 else None


def replicas_table(
    run: FleetRun, slo: Mapping[str, float], kv_bytes_per_token: int | None = None
) -> pd.DataFrame:
    """One row a replica: what summarize says of its own requests, memory and iterations."""
    rows = [
        {"replica": number, **summary_of(facts, slo, kv_bytes_per_token)}
        for number, facts in replica_facts(run)
    ]
    return pd.DataFrame(rows)
