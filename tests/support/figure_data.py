"""Tables as figures read them, made up."""

import numpy as np
import pandas as pd

from sim.figures import Results
from sim.figures.base import Drawing
from sim.figures.tables import TERMS
from sim.recording.blocklog import COLUMNS

SOURCE = "linear: a made-up model for tests"
NUM_SLOTS = 1024
BLOCK_SIZE = 16
LOAD_FIGURES = {"latency_vs_rate", "waste_vs_load"}
SHARES = (0.40, 0.25, 0.10, 0.05, 0.02, 0.18)


def summary_row(run: str, kind: str, seed: int = 0, **cells: object) -> dict[str, object]:
    shift = 0.01 * seed
    shares = dict(zip(TERMS, SHARES, strict=True))
    shares["token_states"] += shift
    shares["free"] -= shift
    row: dict[str, object] = {"experiment": "example", "run": run, "seed": seed}
    row |= {"status": "finished"}
    row |= {name: value for name, value in cells.items() if "." in name}
    num_blocks = NUM_SLOTS // BLOCK_SIZE if kind == "paged" else None
    row |= {"allocator": kind, "num_slots": NUM_SLOTS, "num_blocks": num_blocks}
    row |= {f"{term}_frac": share for term, share in shares.items()}
    row |= {f"{term}_frac_queued": share for term, share in shares.items()}
    row |= {"num_running_mean": 12.5 + seed, "throughput_req_s": 3.25 + shift}
    return row | cells


def timeline(num_buckets: int = 50, scale: float = 1.0) -> pd.DataFrame:
    x = np.arange(num_buckets)
    swing = 0.2 * np.sin(x / 7)
    table = {"start_s": 0.5 * x * scale, "width_s": np.full(num_buckets, 0.5 * scale)}
    for term, share in zip(TERMS, SHARES, strict=True):
        table[term] = np.full(num_buckets, NUM_SLOTS * share)
    table["token_states"] = table["token_states"] + NUM_SLOTS * swing * 0.5
    table["free"] = table["free"] - NUM_SLOTS * swing * 0.5
    table["num_running"] = 10 + 20 * swing
    table["num_waiting"] = np.maximum(0, 30 * swing)
    table["queued_frac"] = (swing > 0).astype(float)
    return pd.DataFrame(table)


def blocks(paged: bool = True) -> pd.DataFrame:
    """Requests of 25, 47 and 12 tokens, alone at 0 s and all together at 1 s."""
    rows = [(0.0, 0, 0, 0, 16, 16)]
    start = 0
    for request, tokens in enumerate((25, 47, 12)):
        size = BLOCK_SIZE if paged else 256
        for index in range(-(-tokens // size)):
            rows.append((1.0, request, index, start, size, min(size, tokens - index * size)))
            start += size
    columns = ["time_s", "request", "index", "start_slot", "num_slots", "num_written"]
    rest = {"moment": "schedule", "sequence": 0, "place": "device", "num_reserved": 0}
    rest |= {"moved": "no", "from_slot": -1, "num_external": 0, "num_cached": 0}
    return pd.DataFrame(rows, columns=columns).assign(**rest)[list(COLUMNS)].astype(COLUMNS)


def make_results(rows: list[dict[str, object]], name: str = "example") -> Results:
    runs = [str(row["run"]) for row in rows]
    return Results(
        name=name,
        summary=pd.DataFrame(rows),
        timelines={run: timeline() for run in runs},
        requests={},
        blocks={row["run"]: blocks(row["allocator"] == "paged") for row in rows},
        cost_source=SOURCE,
    )


def sweep_rows(values: tuple[object, ...] = (1, 8, 16, 32), seeds: int = 2) -> list[dict]:
    rows = [
        summary_row(f"c-{seed}", "contiguous", seed, **{"allocator.block_size": None})
        for seed in range(seeds)
    ]
    for i, value in enumerate(values):
        for seed in range(seeds):
            row = summary_row(f"p-{i}-{seed}", "paged", seed, **{"allocator.block_size": value})
            row |= {"internal_frac": 0.01 * (i + 1), "num_running_mean": 20.0 - i + seed}
            rows.append(row)
    return rows


def engine_rows(rows: list[dict] | None = None) -> list[dict]:
    """Two engines with one allocator, one that refuses requests, and one that was not run."""
    cells = {"num_requests": 8, "num_finished": 8, "num_preemptions": 3, "reason": None}
    cells |= {"ttft_s_p50": 0.5, "ttft_s_p90": 20.0}
    found = [
        {"run": name, "status": "finished", "allocator": kind, "engine": name}
        | {**summary_row(name, kind), **cells, "num_running_mean": running}
        for name, kind, running in (("a", "paged", 3.0), ("b", "paged", 5.0), ("c", "prefix", 4.0))
    ]
    found[2]["num_finished"] = 6
    skipped = {"run": "d", "status": "skipped", "allocator": "prefix", "engine": "d"}
    return [*found, skipped | {"reason": "needs what the trace has not", "experiment": "example"}]


def sharing_rows(rows: list[dict]) -> list[dict]:
    """Rows of memory that finds prefixes, fewer the larger its blocks are."""
    sizes = [row["allocator.block_size"] for row in rows]
    kept = [(row, size) for row, size in zip(rows, sizes, strict=True) if size is not None]
    return [row | {"hit_rate": 0.8 - 0.01 * size} for row, size in kept]


def policy_rows(rows: list[dict] | None = None) -> list[dict]:
    """Three policies at two capacities on one trace, and a trace that was not there."""
    found = []
    for policy, rates in {"clairvoyant": (0.5, 0.6), "lru": (0.2, 0.6), "none": (0, 0)}.items():
        for tokens, rate in zip((64, 128), rates, strict=True):
            row = {"run": f"chat-{policy}-{tokens}", "status": "finished", "reason": None}
            row |= {"allocator": None, "trace": "chat", "policy": policy, "hit_rate": rate}
            found.append(row | {"capacity_tokens": tokens, "num_requests": 9, "block_size": 16})
    absent = {"run": "far", "status": "skipped", "reason": "not there", "allocator": None}
    return [*found, absent | {"trace": "far"}]


def queued_rows(rows: list[dict]) -> list[dict]:
    """The rows with how many ran while others waited."""
    return [row | {"num_running_mean_queued": 12.5} for row in rows]


def routing_rows(rows: list[dict] | None = None) -> list[dict]:
    """One replica, and four behind each of two routers, in two sizes of memory."""
    found = []
    for count, router in ((1, "round_robin"), (4, "round_robin"), (4, "prefix_aware")):
        for size in (100, 1000):
            cells = {"kv_cache.num_slots": size, "replicas.count": count}
            row = summary_row(f"{count} {router} {size}", "prefix", **cells)
            rate = 0.1 + 0.1 * (size == 1000) + 0.2 * (router == "prefix_aware")
            row |= {"num_slots": count * size, "hit_rate": rate, "ttft_s_mean": 0.1 / rate}
            found.append(row | {"num_replicas": count, "router": router})
    return found


OTHER_ROWS = {
    "engines": engine_rows,
    "block_size_sharing": sharing_rows,
    "prefix_policies": policy_rows,
    "steps": queued_rows,
    "routing": routing_rows,
}


def for_figure(name: str, rows: list[dict]) -> list[dict]:
    """Rows that the figure can draw: some need a swept rate instead of a block size."""
    if name in OTHER_ROWS:
        return OTHER_ROWS[name](rows)
    if name not in LOAD_FIGURES:
        return rows
    renamed = []
    for i, row in enumerate(rows):
        block_size = row["allocator.block_size"]
        rest = {key: cell for key, cell in row.items() if key != "allocator.block_size"}
        rate = float(i) if block_size is None else block_size
        renamed.append({**rest, "workload.arrivals.rate": rate})
    return renamed


def footer(drawing: Drawing) -> str:
    return drawing.figure.get_supxlabel()
