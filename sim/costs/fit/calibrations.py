"""Profiles from kernels/calibrations: our own kernels, timed by python -m kernels.calibrate.

points.csv becomes tables of the shared columns, so that the same forms are fitted the same way.
Paging is fitted first: paged over contiguous at the same sizes and as many tiles in flight, as a
table over block size and MB of KV. Attention rows are divided by it, so that one contiguous kernel
is left. Rows of the section off_grid, made for validation, are kept out; of prompts and linears,
one in six by the rule of sim.costs.fit.tables.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from sim.costs import variants
from sim.costs.fit.calibration_checks import NUMBERS, wrong_document, wrong_points
from sim.costs.fit.families import FAMILIES, Family
from sim.costs.fit.fitting import fit_variants, percent
from sim.costs.fit.recipes import MODERN_HOST, constants_of
from sim.costs.fit.rows import Bools, column, head_groups
from sim.costs.fit.solve import fit_grid
from sim.costs.fit.tables import FITTED, Table, TableError, kept_out
from sim.costs.forms import Floats
from sim.costs.grid import Axis, Grid
from sim.costs.paging import BLOCK_AXIS, PRESETS, paging_factor
from sim.costs.profile import Profile
from sim.costs.variants import Variant

KV_AXIS = Axis("kv_mb", 2, 2, 6)  # 4 MB to 4 GB a call
# columns of x[m, k] w[n, k]^T by the name of the variant: Llama-3.1-8B's
LINEAR_SIZES = {
    "qkv": (6144, 4096),
    "o": (4096, 4096),
    "gate_up": (28672, 4096),
    "down": (4096, 14336),
    "lm_head": (128256, 4096),
}
SMALL = {"add_rms_norm": "norm", "rope": "rope", "silu_and_mul": "activation", "append": "append"}
DECODE_SECTIONS = ("decode", "off_grid", "slices")
MIN_PAIRS = 8


def is_calibration(folder: Path) -> bool:
    """Whether a folder is one that python -m kernels.calibrate has written."""
    return (folder / "points.csv").exists()


def build_calibrated(folder: Path, say: Callable[[str], None]) -> Profile:
    """The profile of a calibration folder: NAME-kvsim. Raises TableError with a sentence."""
    document, points, digest = _read(folder)
    sms = int(document["gpu"]["sm_count"])
    paging = {
        "decode": fit_paging(points, "decode"),
        "prefill": fit_paging(points, "prefill"),
    }
    kernels: dict[str, dict[str, Variant]] = {}
    for family, table in _tables(points, paging, digest):
        for name, variant in fit_variants(family, table, sms).items():
            own = replace(variant, facts={**variant.facts, "page": 0, "l2": "cold"})
            kernels.setdefault(family.family, {})[name] = own
            say(f"{folder.name}: {family.family} {name}: {variant.errors}")
    missing = [name for name in ("decode", "prefill", "linear") if name not in kernels]
    if missing:
        raise TableError(f"{folder / 'points.csv'}: too few usable points of {missing[0]}")
    return Profile(
        name=f"{folder.name}-kvsim",
        gpu=str(document["gpu"]["name"]),
        sms=sms,
        kind="measured",
        source=_source(document),
        data={"points.csv": digest},
        defaults={"kernel": "kvsim", "paging": "profile"},
        kernels=kernels,
        paging=paging,
        constants=_constants(points, document.get("ceilings", {})),
        notes=(f"Calibration status: {document['status']}.",),
    )


def _read(folder: Path) -> tuple[dict[str, Any], pd.DataFrame, str]:
    """calibration.json, the usable rows of points.csv, and the hash of that file."""
    path = folder / "points.csv"
    try:
        document = json.loads((folder / "calibration.json").read_text(encoding="utf-8"))
        content = path.read_bytes()
        points = pd.read_csv(path, keep_default_na=False, na_values=[""])
    except (OSError, ValueError) as error:
        said = " ".join(str(error).split())
        raise TableError(f"{folder}: cannot be read: {said}") from None
    mistake = wrong_document(document)
    if mistake is not None:
        raise TableError(f"{folder / 'calibration.json'}: {mistake}")
    mistake = wrong_points(points)
    if mistake is not None:
        raise TableError(f"{path}{mistake}")
    points = points[points["ok"].isin([1, "1"]) & points["us"].notna()].reset_index(drop=True)
    points = points.assign(**{name: pd.to_numeric(points[name]) for name in NUMBERS})
    points["kv_mb"] = points["bytes"].astype(float) / 1e6
    return document, points, hashlib.sha256(content).hexdigest()


def _source(document: dict[str, Any]) -> str:
    gpu, software, git = document["gpu"], document.get("software", {}), document.get("git", {})
    parts = [
        str(gpu["name"]),
        f"driver {gpu.get('driver_version', 'unknown')}",
        f"CUDA {gpu.get('cuda', 'unknown')}",
        f"torch {software.get('torch', 'unknown')}",
        f"triton {software.get('triton', 'unknown')}",
        f"kernels at commit {git.get('commit', 'unknown')}",
    ]
    how = "Llama-3.1-8B's shapes, cold L2, graphs of many calls"
    return f"measured by python -m kernels.calibrate: {', '.join(parts)}; {how}"


def fit_paging(points: pd.DataFrame, kernel: str) -> Grid:
    """Paged over contiguous, as factors over block size and MB of KV.

    Pairs of rows of equal sizes and kv_stages; without enough of them equal-prefetch is taken.
    """
    attention = points[(points["kernel"] == kernel) & (points["section"] != "off_grid")]
    attention = attention[attention["section"].isin([kernel, "slices"])]
    sizes = ["dtype", "heads", "kv_heads", "head_dim", "batch", "total_kv", "q_tokens", "kv_stages"]
    plain = attention[attention["page"] == 0]
    pairs = attention[attention["page"] > 0].merge(
        plain[[*sizes, "us"]], on=sizes, suffixes=("", "_contiguous")
    )
    if len(pairs) < MIN_PAIRS:
        return PRESETS["equal-prefetch"].grids()[kernel]
    axes = (BLOCK_AXIS, KV_AXIS)
    columns = [pairs["page"].to_numpy(np.float64), pairs["kv_mb"].to_numpy(np.float64)]
    ratios = (pairs["us"] / pairs["us_contiguous"]).to_numpy(np.float64)
    return fit_grid(axes, columns, np.log(ratios)).grid


def _tables(
    points: pd.DataFrame, paging: dict[str, Grid], digest: str
) -> list[tuple[Family, Table]]:
    """The families and their tables in the shared columns."""
    by_family = {family.family: family for family in FAMILIES if family.table in _OURS}
    decode = _attention(points, "decode", paging["decode"])
    decode = decode.rename(columns={"max_kv": "kv_len"})
    is_kept = (decode["section"] == "off_grid").to_numpy()
    decode_family = replace(by_family["decode"], facts=_cold_facts)
    prefill = _attention(points, "prefill", paging["prefill"])
    prefill["prompt_len"] = prefill["q_tokens"] // prefill["batch"].clip(lower=1)
    prefill_family = replace(by_family["prefill"], predict=_predict_prefill)
    linear = _linears(points)
    small = points[points["kernel"].isin(list(SMALL)) & (points["dtype"] == "bf16")].copy()
    small_family = Family(
        "points", "small", _every, lambda rows: rows["kernel"].map(SMALL), _predict_small, _no_facts
    )
    kept = np.where(is_kept, "off grid", FITTED).astype(object)
    return [
        (decode_family, Table("decode_attention", decode, kept, digest)),
        (prefill_family, _kept(prefill, "prefill_attention", digest)),
        (by_family["linear"], _kept(linear, "gemm", digest)),
        (small_family, Table("points", small, np.full(len(small), FITTED, object), digest)),
    ]


_OURS = ("decode_attention", "prefill_attention", "gemm")


def _every(rows: pd.DataFrame) -> Bools:
    return np.ones(len(rows), np.bool_)


def _cold_facts(rows: pd.DataFrame) -> dict[str, object]:
    own = next(family for family in FAMILIES if family.table == "decode_attention").facts(rows)
    return {**own, "page": 0, "l2": "cold"}


def _no_facts(rows: pd.DataFrame) -> dict[str, object]:
    return {}


def _predict_small(variant: Variant, rows: pd.DataFrame) -> Floats:
    return variants.small_us(variant, column(rows, "kv_mb"))


def _predict_prefill(variant: Variant, rows: pd.DataFrame) -> Floats:
    us = np.zeros(len(rows))
    sizes = [column(rows, name) for name in ("batch", "prompt_len", "ctx")]
    for heads, at in head_groups(rows):
        us[at] = variants.prefill_us(variant, heads, *(size[at] for size in sizes))
    return us


def _attention(points: pd.DataFrame, kernel: str, paging: Grid) -> pd.DataFrame:
    """Rows of an attention kernel with equal lengths, as if their memory were contiguous."""
    sections = DECODE_SECTIONS if kernel == "decode" else ("prefill",)
    rows = points[(points["kernel"] == kernel) & points["section"].isin(sections)]
    rows = rows[rows["variant"].isin(["auto", "contiguous"])].reset_index(drop=True)
    mega = rows["kv_mb"].to_numpy(np.float64)
    factor = np.ones(len(rows))
    for page in dict.fromkeys(rows["page"].tolist()):
        at = (rows["page"] == page).to_numpy()
        factor[at] = paging_factor(paging, int(page) or None, mega[at])
    labels = {"gpu": "ours", "engine": "kvsim", "version": "calibration", "kernel": "triton"}
    return rows.assign(us=rows["us"] / factor, kv_dtype=rows["dtype"], page_size=0, **labels)


def _linears(points: pd.DataFrame) -> pd.DataFrame:
    rows = points[points["kernel"] == "linear"].reset_index(drop=True)
    known = rows["variant"].isin(list(LINEAR_SIZES))
    rows = rows[known].reset_index(drop=True)
    shapes = [LINEAR_SIZES[name] for name in rows["variant"]]
    n, k = ([shape[i] for shape in shapes] for i in (0, 1))
    return rows.assign(gpu="ours", engine="kvsim", m=rows["q_tokens"], n=n, k=k)


def _kept(rows: pd.DataFrame, name: str, digest: str) -> Table:
    kinds = kept_out(rows, name)
    kinds[kinds != FITTED] = np.where(kinds[kinds != FITTED] == "random", "random", FITTED)
    return Table(name, rows, kinds, digest)


def _constants(points: pd.DataFrame, ceilings: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The numbers beside the kernels: measured where there are points of them."""
    ceiling = float(ceilings.get("read_tb_s", 0.0) or 0.0) * 1e3
    constants = constants_of(300.0, MODERN_HOST, 0.0, ceiling)
    constants["peak_gb_s"]["source"] = "measured: reading 4 GB"
    copies = points[(points["kernel"] == "copy_blocks") & (points["kv_mb"] > 64)]
    if len(copies):
        rate = float((copies["us"] / copies["kv_mb"]).median())
        constants["copy_us_per_mb"] = {
            "value": round(rate, 5),
            "source": "measured: copies within the pool of over 64 MB, read and written",
        }
    link = points[points["kernel"].isin(["h2d", "d2h"]) & (points["batch"] == 256)]
    link = link[link["variant"] == "kernel"]
    if len(link):
        kib = link["bytes"] / link["batch"] / 1024
        rates = (link["bytes"] / link["us"] / 1e3).groupby(kib).median()
        constants["link_rates"] = {
            "value": float(rates.max()),
            "by_kib": [[float(str(size)), round(float(rate), 2)] for size, rate in rates.items()],
            "source": "measured: one launch that moves 256 blocks, both directions, GB/s",
        }
    return constants


def decode_rows(profile: Profile, folder: Path) -> Table:
    """The decode rows that a calibrated profile was fitted to or is scored on, as contiguous."""
    _, points, digest = _read(folder)
    rows = _attention(points, "decode", profile.paging["decode"]).rename(
        columns={"max_kv": "kv_len"}
    )
    kept = np.where((rows["section"] == "off_grid").to_numpy(), "off grid", FITTED)
    return Table("decode_attention", rows, kept.astype(object), digest)


def score_off_grid(profile: Profile, folder: Path) -> dict[str, Any]:
    """The errors of a calibrated profile on the rows made for validation, paged ones as paged."""
    table = decode_rows(profile, folder)
    rows = table.where(table.kept != FITTED).rows
    family = next(family for family in FAMILIES if family.table == "decode_attention")
    names = family.names(rows).to_numpy()
    errors = np.zeros(len(rows))
    for name, variant in profile.kernels["decode"].items():
        at = names == name
        errors[at] = family.predict(variant, rows[at].reset_index(drop=True)) / rows["us"][at] - 1
    by_page = {
        "contiguous" if page == 0 else f"blocks of {page}": {
            "mape": percent(errors[(rows["page"] == page).to_numpy()]),
            "rows": int((rows["page"] == page).sum()),
        }
        for page in sorted(set(rows["page"].tolist()))
    }
    return {"mape": percent(errors), "rows": len(rows), "by_kind": by_page}
