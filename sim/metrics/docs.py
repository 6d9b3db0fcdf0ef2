"""What each column of summary.csv is: unit, formula, and the code or paper that it comes from.

One table for `kvsim list metrics`, the reference page, and a test that no column lacks its line.
Columns of several percentiles or six terms stand here once and are written out by METRICS.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

TERMS = ("token_states", "reserved", "internal", "external", "cached", "free")
QUEUED = "_queued"  # the suffix of means over the time in which a request waits


@dataclass(frozen=True)
class Metric:
    """A column: unit ("" for text), formula in words, where it is computed or defined."""

    unit: str
    formula: str
    source: str

    def __str__(self) -> str:
        unit = f" [{self.unit}]" if self.unit else ""
        return f"{self.formula}{unit}. From: {self.source}"


RECORDER = "sim/engine/recorder.py"
ROWS = "sim/metrics/summary.py"
TALLY = "sim/schedulers/tally.py"
COUNTS = "the allocator's counters"
TIMES = "sim/batch.py"
SHARE = "share of all slots, 0 to 1"

_RUN = {
    "experiment": Metric("", "name of the experiment", "the file"),
    "run": Metric("", "name of the run, also that of its folder", "sim/config/naming.py"),
    "seed": Metric("", "seed of what the workload draws", "seeds of the file"),
    "status": Metric(
        "",
        "finished; stalled, no event can change anything and requests are left; error; skipped",
        "sim/engine/simulation.py, sim/runs/runner.py",
    ),
    "reason": Metric("", "why a run is not finished; empty otherwise", "sim/engine/simulation.py"),
    "allocator": Metric("", "kind of the allocator, one of the cells that tell runs apart", "file"),
    "engine": Metric("", "engine preset, where engines are compared", "the file"),
    "router": Metric("", "kind of the router, with replicas", "the file"),
    "num_replicas": Metric("replicas", "engines behind the router, with replicas", "the file"),
    "record_every": Metric(
        "iterations",
        "with record: of so many iterations one is recorded; 1 if all are",
        "sim/recording/tables.py",
    ),
    "record_block_size": Metric(
        "slots",
        "with record: slots of a recorded block; 0 of memory without blocks",
        "sim/recording/tables.py",
    ),
    "times_from": Metric(
        "",
        "cost model and what its times rest on: assumed, roofline, fitted, measured",
        "sim/costs",
    ),
}

TERM_MEANINGS = {
    "token_states": "slots written and held by a running sequence, a shared slot once",
    "reserved": "slots held and not written that a holder will write before it stops",
    "internal": "slots held that will never be written: rest of a reservation, of a last block, "
    "padding",
    "external": "slots that are no use: holes too small for the waiting head, buddy rounding, "
    "padding and null blocks, the remainder of the pool that makes no block",
    "cached": "slots that nobody holds but that can be found again by their content",
    "free": "all other slots",
}

_MEMORY = {
    f"{term}_frac": Metric(
        SHARE,
        f"{what}; integral over time / that of all six terms",
        f"{RECORDER}; PagedAttention paper, Fig. 2",
    )
    for term, what in TERM_MEANINGS.items()
}
_MEMORY["shared_blocks_saved_frac"] = Metric(
    "share of blocks, 0 to 1",
    "(blocks in block tables - different blocks in them) / blocks in block tables, both integrated "
    "over time",
    f"{RECORDER}; PagedAttention paper, Fig. 15",
)

_QUEUE = {
    "queued_time_frac": Metric(
        "share of time, 0 to 1",
        "time of iterations after whose schedule() a request waits for memory or max_num_seqs / "
        "time after the warm-up",
        RECORDER,
    ),
    "num_queued_iterations": Metric("iterations", "iterations of queued_time_frac", RECORDER),
    "num_running_mean": Metric("sequences", "integral of running sequences / makespan", RECORDER),
    "num_running_mean_queued": Metric(
        "sequences", "the same over queued time; empty without any", RECORDER
    ),
    "num_running_max": Metric("sequences", "most that ran in one iteration", RECORDER),
    "num_waiting_mean": Metric("requests", "integral of waiting requests / makespan", RECORDER),
    "admission_capacity": Metric(
        "sequences", "num_running_mean_queued: what fits while more would come", ROWS
    ),
    "token_states_frac_batch_sd": Metric(
        SHARE,
        "standard deviation of token_states_frac between ten equal stretches of the run: the "
        "spread within a run, by batch means",
        f"{ROWS}: batch_sd",
    ),
    "num_running_mean_queued_batch_sd": Metric(
        "sequences", "likewise of num_running_mean_queued", f"{ROWS}: batch_sd"
    ),
}

_COUNTS = {
    "num_slots": Metric(
        "slots", "size of the pool; a slot is the KV of one token", "sim/config/pool.py"
    ),
    "num_blocks": Metric("blocks", "blocks of the pool; empty without blocks", "the allocator"),
    "num_requests": Metric("requests", "requests of the trace", ROWS),
    "num_finished": Metric("requests", "that have got their last token", ROWS),
    "num_rejected": Metric("requests", "that could never fit, refused at arrival", ROWS),
    "num_failed": Metric("requests", "that outgrew the whole pool while alone", ROWS),
    "num_unfinished": Metric("requests", "that neither finished nor were refused", ROWS),
    "num_truncated": Metric(
        "requests", "whose output was cut at max_model_len, rejected ones not counted", ROWS
    ),
    "num_max_tokens_cuts": Metric("requests", "whose output was cut at max_tokens", ROWS),
    "num_preemptions": Metric("preemptions", "times that a request lost its memory", ROWS),
    "num_placements": Metric("searches", "searches of the arena for a range", COUNTS),
    "num_holes_inspected": Metric("holes", "holes looked at in those searches", COUNTS),
    "holes_per_search_mean": Metric("holes", "num_holes_inspected / num_placements", ROWS),
    "num_compactions": Metric("compactions", "times that ranges were slid together", COUNTS),
    "num_copied_tokens": Metric("tokens", "tokens whose KV was copied within the pool", COUNTS),
    "num_copied_blocks": Metric("blocks", "blocks copied on write, or for a fork", COUNTS),
    "copied_bytes": Metric("bytes", "num_copied_tokens x KV bytes of a token", ROWS),
    "num_blocks_swapped_out": Metric("blocks", "blocks moved to the host", COUNTS),
    "num_blocks_swapped_in": Metric("blocks", "blocks moved back", COUNTS),
    "swapped_bytes": Metric("bytes", "slots moved either way x KV bytes of a token", ROWS),
    "swap_time_s": Metric(
        "s", "iteration times with their swaps - without them", "sim/engine/simulation.py"
    ),
    "num_pages_taken": Metric("pages", "pages that sequences came to need (vattention)", COUNTS),
    "num_pages_mapped": Metric("pages", "pages mapped, ahead or not", COUNTS),
    "num_pages_mapped_ahead": Metric("pages", "of those, mapped before they were needed", COUNTS),
    "num_pages_unmapped": Metric("pages", "pages unmapped", COUNTS),
    "num_evicted_blocks": Metric("blocks", "given away while they could still be found", COUNTS),
}

_SHARING = {
    "num_queried_tokens": Metric(
        "tokens", "tokens asked of the prefix cache when a request is admitted", TALLY
    ),
    "num_hit_tokens": Metric("tokens", "of those, tokens found", TALLY),
    "num_hit_requests": Metric("lookups", "lookups that found anything", TALLY),
    "hit_rate": Metric("share of tokens, 0 to 1", "num_hit_tokens / num_queried_tokens", ROWS),
    "num_recomputed_tokens": Metric(
        "tokens", "computed once more, because their request was preempted and lost them", TALLY
    ),
    "reuse_distance_blocks_mean": Metric(
        "blocks",
        "of each hit in the free queue: blocks taken for other tokens since it was freed",
        "sim/allocators/base.py: reuse_distances",
    ),
}

_TIME = {
    "num_iterations": Metric("iterations", "iterations of the engine", "sim/engine/simulation.py"),
    "makespan_s": Metric("s", "end of the run - first arrival", ROWS),
    "throughput_req_s": Metric("requests/s", "num_finished / makespan_s", ROWS),
    "output_tokens_s": Metric(
        "tokens/s",
        "tokens generated by all samples, by unfinished requests too, each once / makespan_s",
        ROWS,
    ),
    "normalized_latency_s_mean": Metric(
        "s/token",
        "mean of e2e / output tokens of finished requests",
        f"{ROWS}; Orca, OSDI 2022 §6.2",
    ),
    "goodput_req_s": Metric(
        "requests/s", "finished requests within every limit of slo / makespan_s", ROWS
    ),
    "num_extrapolated_iterations": Metric(
        "iterations",
        "times that an iteration left a size that the cost profile was fitted to",
        "sim/costs/measured.py",
    ),
    "extrapolated": Metric("", "which sizes those were, and how often", "sim/costs/measured.py"),
}

_SPREADS = {
    "ttft_s": Metric("s", "time to first token of finished requests: first token - arrival", ROWS),
    "tpot_s": Metric(
        "s", "of finished requests: (e2e - ttft) / (output tokens - 1), none for one token", ROWS
    ),
    "itl_s": Metric(
        "s",
        "gap between two tokens of a request, over all gaps (percentiles to 0.1 %)",
        "sim/gaps.py",
    ),
    "e2e_s": Metric("s", "end-to-end latency of finished requests: last token - arrival", ROWS),
}

_REPLAY = {
    "trace": Metric("", "trace that a policy is replayed on", "the file"),
    "policy": Metric("", "eviction policy of a replay", "sim/policies"),
    "block_size": Metric("tokens", "tokens of a block in a replay", "the file"),
    "capacity_tokens": Metric("tokens", "capacity of the replayed cache", "the file"),
    "capacity_blocks": Metric("blocks", "the same in whole blocks", "sim/policies/sweep.py"),
    "num_prompt_tokens": Metric("tokens", "prompt tokens of the replayed trace", "sim/policies"),
}


def _written_out() -> dict[str, Metric]:
    """Every column by name, in about the order of a row."""
    queued = {
        name + QUEUED: replace(metric, formula=f"{metric.formula}; over queued time only")
        for name, metric in _MEMORY.items()
    }
    spreads = {
        f"{name}_{part}": replace(metric, formula=f"{metric.formula}; {_part(part)}")
        for name, metric in _SPREADS.items()
        for part in ("mean", "p50", "p90", "p99")
    }
    reuse = _SHARING["reuse_distance_blocks_mean"]
    distances = {
        f"reuse_distance_blocks_{part}": replace(reuse, formula=f"{reuse.formula}; {_part(part)}")
        for part in ("mean", "p50", "p90")
    }
    parts = (_RUN, _MEMORY, queued, _QUEUE, _COUNTS, _SHARING, distances, _TIME, spreads, _REPLAY)
    return {name: metric for part in parts for name, metric in part.items()}


def _part(part: str) -> str:
    return "mean" if part == "mean" else f"{part[1:]}th percentile"


METRICS = _written_out()


def describe(column: str) -> Metric | None:
    """The line of a column; of one with a dot, which a sweep has set, what that is.

    None for a column that nobody has described.
    """
    if column in METRICS:
        return METRICS[column]
    if "." in column or column in {"workload", "replicas", "scheduler", "cost", "device", "model"}:
        return Metric("", f"value of the swept key {column}", "sweep of the file")
    return None
