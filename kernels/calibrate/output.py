"""calibration.json and points.csv, written at every sentinel so that a run cut short has kept what
it did."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

from kernels.calibrate import points
from kernels.calibrate.points import Point
from kernels.calibrate.sanity import Row
from kernels.calibrate.timing import Timing
from kernels.launch import FP8

SCHEMA = "kvsim-calibration/1"
COLUMNS = (
    "section", "kernel", "variant", "page", "kv_stages", "num_warps", "num_stages", "splits",
    "dtype", "heads", "kv_heads", "head_dim", "batch", "len_spec", "total_kv", "max_kv",
    "q_tokens", "ctx", "order", "l2", "n_per_graph", "reps", "us", "us_min",
    "us_p10", "us_p90", "bytes", "flops", "tb_s", "tflop_s", "ok", "note",
)  # fmt: skip


def empty_row(point: Point) -> Row:
    """The row of a point before it is timed; every column is there."""
    model, batch = point.model, len(point.lengths)
    row: Row = dict.fromkeys(COLUMNS)
    row.update(
        section=point.section,
        kernel=point.kernel,
        variant=point.variant,
        page=point.block_size,
        dtype="fp8" if model.stored == FP8 else "bf16",
        heads=model.num_heads,
        kv_heads=model.num_kv_heads,
        head_dim=model.head_dim,
        batch=batch,
        len_spec=point.len_spec,
        total_kv=point.total_kv,
        max_kv=max(point.lengths, default=0),
        q_tokens=point.queries * max(1, batch),
        ctx=max(point.lengths, default=0) - point.queries if point.kernel == "prefill" else 0,
        order=point.order,
        l2=point.l2,
        bytes=points.moved_bytes(point),
        flops=points.flops(point),
        ok=0,
        note="eager" if point.eager else "",
    )
    if point.kernel in ("copy_blocks", "h2d", "d2h"):
        row.update(batch=point.size[0], len_spec=f"{point.size[1] // 1024} KiB")
    return row


def fill_times(row: Row, timing: Timing) -> None:
    """Put a timing and its rates into the row."""
    row.update(
        us=round(timing.us, 3),
        us_min=round(timing.us_min, 3),
        us_p10=round(timing.us_p10, 3),
        us_p90=round(timing.us_p90, 3),
        n_per_graph=timing.per_graph,
        reps=timing.replays,
        tb_s=round(row["bytes"] / timing.us / 1e6, 4),
        tflop_s=round(row["flops"] / timing.us / 1e6, 2),
    )


def write_points(folder: Path, rows: list[Row]) -> None:
    """points.csv, whole and then moved into place."""
    temporary = folder / "points.csv.part"
    with temporary.open("w", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows({k: "" if v is None else v for k, v in row.items()} for row in rows)
    temporary.replace(folder / "points.csv")


def write_json(path: Path, value: dict[str, Any]) -> None:
    """JSON, whole and then moved into place."""
    temporary = path.with_suffix(".part")
    temporary.write_text(json.dumps(value, indent=1, default=str) + "\n")
    temporary.replace(path)
