"""What a folder of kernels/calibrations must be like before a profile is fitted to it."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pandas as pd

from sim.costs.fit.checking import FIRST_LINE, LEAST_US, LIMIT, shown

SCHEMA = "kvsim-calibration/1"
SIZES = ("page", "heads", "kv_heads", "head_dim", "batch")
NUMBERS = (*SIZES, "total_kv", "max_kv", "q_tokens", "ctx", "kv_stages", "bytes", "us")
TEXTS = ("section", "kernel", "variant", "dtype")
LEAST = {"page": 0, "us": LEAST_US}  # of sizes 1, of others 0
MOST = {"bytes": 1e15, "total_kv": 1e15}


def wrong_document(document: object) -> str | None:
    """What is wrong with calibration.json, None if nothing is."""
    if not isinstance(document, dict):
        return f"it is no mapping; accepted: one with schema: {SCHEMA}"
    if document.get("schema") != SCHEMA:
        return f"schema is {document.get('schema')!r}; accepted: {SCHEMA}"
    for name in ("gpu", "software", "git", "ceilings"):
        if not isinstance(document.get(name, {}), dict):
            return f"{name} is {document[name]!r}; accepted: a mapping"
    return _wrong_facts(document)


def _wrong_facts(document: dict[str, Any]) -> str | None:
    """What is wrong with the facts that a profile takes from calibration.json."""
    gpu = document.get("gpu", {})
    count = gpu.get("sm_count")
    if not isinstance(count, int) or isinstance(count, bool) or not 1 <= count <= 10_000:
        return f"gpu.sm_count is {count!r}; accepted: a whole number of 1 to 10,000"
    for where, value in (("gpu.name", gpu.get("name")), ("status", document.get("status"))):
        if not isinstance(value, str) or not value:
            return f"{where} is {value!r}; accepted: a text"
    peak = document.get("ceilings", {}).get("read_tb_s", 0.0) or 0.0
    if not isinstance(peak, int | float) or not math.isfinite(peak) or not 0 <= peak <= 1e6:
        return f"ceilings.read_tb_s is {peak!r}; accepted: a number of 0 to 1e6"
    return None


def wrong_points(points: pd.DataFrame) -> str | None:
    """The first bad cell of points.csv among rows that are used, as ", line 7: …"; None if none is.

    Used are rows whose ok is 1 and that have a time.
    """
    for name in ("ok", *TEXTS, *NUMBERS):
        if name not in points.columns:
            return f": has no column {name}"
    is_ok = points["ok"].isin([0, 1, "0", "1"]) | points["ok"].isna()
    if not is_ok.all():
        return _at(points, "ok", ~is_ok, "0 or 1")
    used = points[points["ok"].isin([1, "1"]) & points["us"].notna()]
    attention = used[used["kernel"].isin(["decode", "prefill"])]
    for name in NUMBERS:  # what is no attention has no heads, and may have no batch
        given = attention if name in SIZES else used[used[name].notna()]
        values = pd.to_numeric(given[name], errors="coerce").to_numpy(np.float64)
        least, most = LEAST.get(name, 1 if name in SIZES else 0), MOST.get(name, LIMIT)
        is_good = np.isfinite(values) & (values >= least) & (values < most)
        if name != "us":
            is_good &= np.floor(values) == values
        if not is_good.all():
            accepted = f"{'a' if name == 'us' else 'a whole'} number of {least} to below {most:g}"
            return _at(given, name, pd.Series(~is_good, given.index), accepted)
    known = attention["dtype"].isin(["bf16", "fp8"])
    return None if known.all() else _at(attention, "dtype", ~known, "bf16, fp8")


def _at(rows: pd.DataFrame, name: str, is_bad: pd.Series, accepted: str) -> str:
    """The first bad cell of a column, by its line."""
    index = rows.index[is_bad][0]
    value = shown(rows[name][index])
    return f", line {int(index) + FIRST_LINE}: {name} is {value}; accepted: {accepted}"
