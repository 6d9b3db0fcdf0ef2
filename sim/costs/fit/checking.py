"""What rows of a table must be like before anything is fitted to them or scored."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from sim.costs.fit.rows import LINEARS, SMALL_OF, WIDTHS

LIMIT = 1e9  # no size and no time in microseconds reaches it
LEAST_US = 1e-3  # no kernel is as short
TIMES = frozenset({"us", "us_skewed", "us_uniform_mean"})
TEXTS = frozenset({"gpu", "engine", "kernel", "version", "kv_dtype", "dtype", "model", "layer"})
MAY_BE_ZERO = frozenset(
    {"prefill_chunk", "kv_prefill", "n_decode", "kv_decode", "n_long", "kv_short", "kv_long"}
)
ACCEPTED = {"kv_dtype": ("bf16", "fp8"), "dtype": ("bf16", "fp8")}
FIRST_LINE = 2  # of the rows in a file: line 1 names the columns


def first_mistake(rows: pd.DataFrame, columns: Sequence[str]) -> str | None:
    """What is wrong with the first bad cell of these columns, as "line 7: …"; None if nothing is.

    Times are numbers above 0, sizes whole numbers; types and models are those that are known.
    """
    for name in columns:
        is_bad, rule = _bad_texts(rows, name) if name in TEXTS else _bad_numbers(rows, name)
        if is_bad.any():
            at = int(np.flatnonzero(is_bad)[0])
            return f"line {_line(rows, at)}: {name} is {shown(rows[name].iloc[at])}; {rule}"
    return _bad_heads(rows) if {"heads", "kv_heads"} <= set(columns) else None


def _bad_numbers(rows: pd.DataFrame, name: str) -> tuple[NDArray[np.bool_], str]:
    values = pd.to_numeric(rows[name], errors="coerce").to_numpy(np.float64)
    is_good = np.isfinite(values) & (values < LIMIT)
    if name in TIMES:
        return ~(is_good & (values >= LEAST_US)), "accepted: microseconds, 0.001 to below 1e9"
    least = 0 if name in MAY_BE_ZERO else 1
    is_good &= (values >= least) & (np.floor(values) == values)
    return ~is_good, f"accepted: a whole number of at least {least}, below 1e9"


def _bad_texts(rows: pd.DataFrame, name: str) -> tuple[NDArray[np.bool_], str]:
    if name in ACCEPTED:
        accepted = ACCEPTED[name]
        return ~rows[name].isin(accepted).to_numpy(), f"accepted: {', '.join(accepted)}"
    if name == "model":
        is_bad = rows["layer"].isin([*SMALL_OF, *LINEARS]) & ~rows[name].isin(list(WIDTHS))
        return is_bad.to_numpy(), f"accepted: {', '.join(WIDTHS)}"
    return rows[name].isna().to_numpy(), "accepted: a name"


def _bad_heads(rows: pd.DataFrame) -> str | None:
    heads, kv_heads = (rows[name].to_numpy(np.float64) for name in ("heads", "kv_heads"))
    is_bad = heads % kv_heads != 0
    if not is_bad.any():
        return None
    at = int(np.flatnonzero(is_bad)[0])
    shown = f"{heads[at]:g} heads and {kv_heads[at]:g} kv_heads"
    return f"line {_line(rows, at)}: {shown}; accepted: the same number of heads for each KV head"


def _line(rows: pd.DataFrame, at: int) -> int:
    """The line of a file that a row is from: rows that were left out keep their places."""
    return int(rows.index[at]) + FIRST_LINE


def shown(value: Any) -> str:
    """A cell as a sentence quotes it."""
    return "empty" if pd.isna(value) else repr(value.item() if hasattr(value, "item") else value)
