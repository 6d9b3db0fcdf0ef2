"""Rows that cannot be true are refused (ok = 0, with the reason). Pure functions of one row."""

from __future__ import annotations

from typing import Any

Row = dict[str, Any]

MEMORY_TB_S = 4.8  # H200, datasheet
MATMUL_TFLOP_S = 989.0  # H100/H200 SXM, bf16 dense, datasheet
COLD_FACTOR = 4  # times L2: what is larger cannot come from it
WARM_FACTOR = 2  # times L2: what is smaller may still be there when it comes round again
MAX_ERROR = 0.03  # of a checked output in bf16 against float64, relative to the largest value


def is_warm(row: Row, l2_bytes: int, sets: int) -> bool:
    """Whether what a graph goes round, `sets` slices of memory, is too small to leave L2 before it
    is used again."""
    return bool(row["bytes"] * sets < WARM_FACTOR * l2_bytes)


def from_memory(row: Row, l2_bytes: int, sets: int) -> float:
    """At least so many of the row's bytes cannot have come from L2, or from the host."""
    if row["kernel"] in ("h2d", "d2h"):
        return 0.0
    if row["kernel"] in ("decode", "mla") and row["l2"] == "cold":
        return float(row["bytes"])  # measured against the ceiling as it is, its slices rotate
    moved = float(row["bytes"])
    if row["kernel"] == "append":  # all sets have one source, which L2 keeps
        moved *= 1 / 3 if row["dtype"] == "fp8" else 1 / 2
    return max(0.0, moved - l2_bytes / sets)


def impossible(row: Row, ceilings: dict[str, float], l2_bytes: int, sets: int = 1) -> list[str]:
    """Why this row's time is below what the hardware can do; empty if it may be true. sets: slices
    of memory that the launches go round."""
    if row["us"] is None:
        return ["not timed"]
    reasons = []
    rate = from_memory(row, l2_bytes, sets) / row["us"] / 1e6
    verb = "reads" if row["kernel"] in ("decode", "mla", "prefill") else "moves bytes"
    if rate > 1.02 * ceilings.get("read_tb_s", MEMORY_TB_S):
        reasons.append(f"{verb} faster than the read ceiling")
    if rate > MEMORY_TB_S and row["bytes"] > COLD_FACTOR * l2_bytes:
        reasons.append(f"{verb} faster than the memory's peak")
    if row["tflop_s"] > min(MATMUL_TFLOP_S, 1.05 * ceilings.get("matmul_tflop_s", MATMUL_TFLOP_S)):
        reasons.append("multiplies faster than the matmul ceiling")
    if row["us"] < 0.98 * ceilings.get("empty_graph_us", 0.0):
        reasons.append("faster than an empty kernel")
    return reasons


def add_note(row: Row, note: str) -> None:
    """Append to the row's note."""
    row["note"] = "; ".join(part for part in (row["note"], note) if part)
