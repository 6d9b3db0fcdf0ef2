"""Rows that cannot be true are refused (ok = 0, with the reason); what is only odd is noted. Pure
functions of rows."""

from __future__ import annotations

from collections import defaultdict
from itertools import pairwise
from typing import Any

Row = dict[str, Any]

MEMORY_TB_S = 4.8  # H200, datasheet
MATMUL_TFLOP_S = 989.0  # H100/H200 SXM, bf16 dense, datasheet
COLD_FACTOR = 4  # times L2: what is larger cannot come from it
WARM_FACTOR = 2  # times L2: what is smaller may still be there when it comes round again
NOISE = 0.03
MAX_ERROR = 0.03  # of a checked output in bf16 against float64, relative to the largest value


def is_warm(row: Row, l2_bytes: int, sets: int) -> bool:
    """Whether what a graph goes round, `sets` slices of memory, is too small to leave L2 before it
    is used again."""
    return bool(row["bytes"] * sets < WARM_FACTOR * l2_bytes)


def from_memory(row: Row, l2_bytes: int, sets: int) -> float:
    """At least so many of the row's bytes cannot have come from L2, or from the host."""
    if row["kernel"] in ("h2d", "d2h"):
        return 0.0
    if row["kernel"] == "decode" and row["l2"] == "cold":
        return float(row["bytes"])  # measured against the ceiling as it is, its slices rotate
    moved = row["bytes"] / 2 if row["kernel"] == "append" else row["bytes"]  # one source for all
    return max(0.0, float(moved) - l2_bytes / sets)


def impossible(row: Row, ceilings: dict[str, float], l2_bytes: int, sets: int = 1) -> list[str]:
    """Why this row's time is below what the hardware can do; empty if it may be true. sets: slices
    of memory that the launches go round."""
    if row["us"] is None:
        return ["not timed"]
    reasons = []
    rate = from_memory(row, l2_bytes, sets) / row["us"] / 1e6
    verb = "reads" if row["kernel"] in ("decode", "prefill") else "moves bytes"
    if rate > 1.02 * ceilings.get("read_tb_s", MEMORY_TB_S):
        reasons.append(f"{verb} faster than the read ceiling")
    if rate > MEMORY_TB_S and row["bytes"] > COLD_FACTOR * l2_bytes:
        reasons.append(f"{verb} faster than the memory's peak")
    if row["tflop_s"] > min(MATMUL_TFLOP_S, 1.05 * ceilings.get("matmul_tflop_s", MATMUL_TFLOP_S)):
        reasons.append("multiplies faster than the matmul ceiling")
    if row["us"] < 0.98 * ceilings.get("empty_graph_us", 0.0):
        reasons.append("faster than an empty kernel")
    return reasons


def note_trends(rows: list[Row]) -> None:
    """Note where the decode grid falls with batch or length beyond noise, and where paged is
    faster than contiguous."""
    grid = [r for r in rows if r["section"] == "decode" and r["us"] is not None]
    time = {(r["page"], r["batch"], r["max_kv"]): r for r in grid}
    for axis in (1, 2):
        lines = defaultdict(list)
        for key, row in time.items():
            lines[key[:axis] + key[axis + 1 :]].append((key[axis], row))
        for line in lines.values():
            ordered = [row for _, row in sorted(line, key=lambda pair: pair[0])]
            for smaller, larger in pairwise(ordered):
                if larger["us"] < (1 - NOISE) * smaller["us"]:
                    add_note(larger, f"faster than {'batch' if axis == 1 else 'length'} below it")
    for (page, batch, length), row in time.items():
        flat = time.get((0, batch, length))
        if page and flat and row["us"] < (1 - NOISE) * flat["us"]:
            add_note(row, "faster than contiguous")


def add_note(row: Row, note: str) -> None:
    """Append to the row's note."""
    row["note"] = "; ".join(part for part in (row["note"], note) if part)


def drift(sentinels: list[Row]) -> float:
    """Largest deviation of a sentinel from their median, as a fraction; 0 with fewer than two."""
    times = sorted(s["us"] for s in sentinels)
    if len(times) < 2:
        return 0.0
    median = times[len(times) // 2]
    return max(abs(t - median) for t in times) / median
