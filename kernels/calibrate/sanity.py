"""Rows that cannot be true are refused (ok = 0, with the reason). Pure functions of one row."""

from __future__ import annotations

from typing import Any

Row = dict[str, Any]

MEMORY_TB_S = 4.8  # H200, datasheet
MATMUL_TFLOP_S = 989.0  # H100/H200 SXM, bf16 dense, datasheet
# What links the host to the GPU, one way: PCIe 5.0 x16 signals at 64 GB/s, of which packets leave
# less; NVLink-C2C of a Grace machine, 900 GB/s both ways, datasheet. A copy may be 5 % above.
PCIE_TB_S, C2C_TB_S, LINK_MARGIN = 0.064, 0.45, 1.05
C2C_NAMES = ("GH200", "GB200", "GB300")  # GPUs that are on it, by name
COLD_FACTOR = 4  # times L2: what is larger cannot come from it
WARM_FACTOR = 2  # times L2: what is smaller may still be there when it comes round again
OUT_OF_TIME = "left out, its share of the budget was spent"  # why a step skipped something
MAX_ERROR = 0.03  # of a checked output in bf16 against float64, relative to the largest value


def link_tb_s(gpu_name: str) -> float:
    """What the host link of a GPU of that name can do at best."""
    return C2C_TB_S if any(name in gpu_name for name in C2C_NAMES) else PCIE_TB_S


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
    if row["us"] is None or not 0 < row["us"] < float("inf"):
        return ["not timed"]
    reasons = []
    rate = from_memory(row, l2_bytes, sets) / row["us"] / 1e6
    verb = "reads" if row["kernel"] in ("decode", "mla", "prefill") else "moves bytes"
    if rate > 1.02 * ceilings.get("read_tb_s", MEMORY_TB_S):
        reasons.append(f"{verb} faster than the read ceiling")
    if rate > MEMORY_TB_S and row["bytes"] > COLD_FACTOR * l2_bytes:
        reasons.append(f"{verb} faster than the memory's peak")
    link = LINK_MARGIN * ceilings.get("link_tb_s", PCIE_TB_S)
    if row["kernel"] in ("h2d", "d2h") and row["bytes"] / row["us"] / 1e6 > link:
        reasons.append("moves bytes faster than the host link")
    if row["tflop_s"] > min(MATMUL_TFLOP_S, 1.05 * ceilings.get("matmul_tflop_s", MATMUL_TFLOP_S)):
        reasons.append("multiplies faster than the matmul ceiling")
    if row["us"] < 0.98 * ceilings.get("empty_graph_us", 0.0):
        reasons.append("faster than an empty kernel")
    return reasons


def add_note(row: Row, note: str) -> None:
    """Append to the row's note."""
    row["note"] = "; ".join(part for part in (row["note"], note) if part)
