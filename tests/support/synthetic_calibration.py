"""A calibration folder as kernels.calibrate writes it, with times from a formula: synthetic."""

from __future__ import annotations

import csv
import json
from itertools import product
from pathlib import Path
from typing import Any

SMS, HBM_TB_S, TFLOPS = 132, 4.2, 700.0
COLUMNS = (
    "section", "kernel", "variant", "page", "kv_stages", "num_warps", "num_stages", "splits",
    "dtype", "heads", "kv_heads", "head_dim", "batch", "len_spec", "total_kv", "max_kv",
    "q_tokens", "ctx", "order", "l2", "n_per_graph", "reps", "us", "us_min",
    "us_p10", "us_p90", "bytes", "flops", "tb_s", "tflop_s", "ok", "note",
)  # fmt: skip
PAGE_FACTOR = {0: 1.0, 1: 1.3, 16: 1.04, 64: 1.02, 128: 1.01, 256: 1.01}
LINEARS = {
    "qkv": (6144, 4096),
    "o": (4096, 4096),
    "gate_up": (28672, 4096),
    "down": (4096, 14336),
    "lm_head": (128256, 4096),
}


def decode_us(heads: int, kv_heads: int, batch: int, length: int, page: int) -> float:
    """Tiles that cost 3 us a wave, beside the bytes: what the synthetic kernel takes."""
    waves = max(1.0, batch * kv_heads * -(-heads // kv_heads // 64) / SMS)
    moved = 4e-6 * batch * length * kv_heads * 128 / HBM_TB_S
    return (5 + ((3 * waves) ** 1.4 + moved**1.4) ** (1 / 1.4)) * PAGE_FACTOR[page]


def _row(**cells: Any) -> dict[str, Any]:
    row = dict.fromkeys(COLUMNS, "")
    fixed = {"dtype": "bf16", "heads": 32, "kv_heads": 8, "head_dim": 128, "kv_stages": 2}
    return {**row, **fixed, "batch": 1, "page": 0, "ok": 1, "l2": "cold", "total_kv": 0, **cells}


def _decode(section: str, page: int, batch: int, length: int, **heads: int) -> dict[str, Any]:
    shape = {"heads": 32, "kv_heads": 8, **heads}
    return _row(
        section=section,
        kernel="decode",
        variant="auto" if page else "contiguous",
        page=page,
        batch=batch,
        total_kv=batch * length,
        max_kv=length,
        q_tokens=batch,
        bytes=4 * batch * length * shape["kv_heads"] * 128,
        us=decode_us(shape["heads"], shape["kv_heads"], batch, length, page),
        **heads,
    )


def points() -> list[dict[str, Any]]:
    """Rows of every kind that profiles are fitted to."""
    rows = []
    batches, lengths = (1, 2, 4, 8, 16, 32, 64, 128, 256), (128, 512, 1024, 4096, 16384)
    for batch, length, page in product(batches, lengths, (0, 16, 64, 128)):
        if batch * length <= 2**20:
            rows.append(_decode("decode", page, batch, length))
    for batch, length, page in product((3, 23, 90), (300, 1500, 5000), (0, 16)):
        rows.append(_decode("off_grid", page, batch, length))
    for (heads, kv_heads), batch in product(((8, 1), (64, 8), (32, 32)), (1, 8, 64)):
        rows.append(_decode("slices", 16, batch, 1024, heads=heads, kv_heads=kv_heads))
    for queries, context, page in product((128, 512, 2048, 8192), (0, 2048, 8192), (0, 16)):
        for batch in (1, 4):
            flops = 4 * 32 * 128 * batch * queries * (context + queries / 2)
            rows.append(
                _row(
                    section="prefill",
                    kernel="prefill",
                    variant="auto" if page else "contiguous",
                    page=page,
                    batch=batch,
                    total_kv=batch * (queries + context),
                    q_tokens=batch * queries,
                    ctx=context,
                    bytes=4096 * batch * (queries + context),
                    us=(9 + flops / TFLOPS / 1e6) * PAGE_FACTOR[page],
                )
            )
    for (name, (n, k)), m in product(LINEARS.items(), (1, 8, 64, 256, 1024, 4096)):
        moved, done = 2e-6 * (n * k + m * (n + k)) / HBM_TB_S, 2e-6 * m * n * k / TFLOPS
        us = 3 + (moved**3 + done**3) ** (1 / 3)
        rows.append(
            _row(
                section="linears",
                kernel="linear",
                variant=name,
                q_tokens=m,
                us=us,
                bytes=2 * (n * k + m * (n + k)),
            )
        )
    for kernel, m in product(
        ("add_rms_norm", "rope", "silu_and_mul", "append"),
        (1, 8, 32, 64, 128, 256, 512, 2048, 8192),
    ):
        size = 16384 * m
        rows += [
            _row(
                section="moves",
                kernel=kernel,
                variant="auto",
                q_tokens=m + repeat,
                bytes=size,
                us=2 + size / 4e6,
            )
            for repeat in range(3)
        ]
    for kib in (4, 32, 1024):
        size = 256 * kib * 1024
        rows.append(
            _row(
                section="host_link",
                kernel="h2d",
                variant="kernel",
                batch=256,
                bytes=size,
                us=size / 50e3,
            )
        )
    rows.append(_row(section="moves", kernel="copy_blocks", batch=4096, bytes=2**28, us=100.0))
    rows.append({**_decode("decode", 16, 32, 2048), "us": 0.01, "ok": 0, "note": "refused"})
    return rows


def write_calibration(folder: Path) -> Path:
    """Write points.csv and calibration.json; return the folder."""
    folder.mkdir()
    with (folder / "points.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(points())
    document = {
        "schema": "kvsim-calibration/1",
        "status": "complete",
        "gpu": {"name": "synthetic GPU", "sm_count": SMS, "driver_version": "none", "cuda": "none"},
        "software": {"torch": "none", "triton": "none"},
        "git": {"commit": "synthetic"},
        "ceilings": {"read_tb_s": 4.4},
    }
    (folder / "calibration.json").write_text(json.dumps(document))
    return folder
