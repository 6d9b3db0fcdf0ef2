"""What rows of a table mean: which kernel they are of, its sizes, and what a variant predicts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd

from sim.costs import variants
from sim.costs.fit.launches import launched, names_of
from sim.costs.fit.rows import (
    LINEARS,
    LLAMA_3_8B,
    SMALL_OF,
    Bools,
    Rows,
    column,
    head_groups,
    is_below_peak,
    linear_sizes,
    small_megabytes,
)
from sim.costs.forms import Floats, Mixed
from sim.costs.variants import Variant


@dataclass(frozen=True)
class Family:
    """A family of kernels in one table: of which rows, under which names, predicted how."""

    table: str
    family: str
    chosen: Callable[[Rows], Bools]
    names: Callable[[Rows], pd.Series]
    predict: Callable[[Variant, Rows], Floats]
    facts: Callable[[Rows], dict[str, object]]
    time: str = "us"


def predict_decode(variant: Variant, rows: Rows) -> Floats:
    """Of decode_attention."""
    us = np.zeros(len(rows))
    batch, kv_len = column(rows, "batch"), column(rows, "kv_len")
    for heads, at in head_groups(rows):
        us[at] = variants.decode_us(variant, heads, batch[at], kv_len[at], as_measured=True)
    return us


def predict_prefill(variant: Variant, rows: Rows) -> Floats:
    """Of prefill_attention."""
    us = np.zeros(len(rows))
    batch, queries = column(rows, "batch"), column(rows, "prompt_len")
    for heads, at in head_groups(rows):
        context = np.zeros(len(at))
        us[at] = variants.prefill_us(variant, heads, batch[at], queries[at], context)
    return us


def predict_linear(variant: Variant, rows: Rows) -> Floats:
    """Of gemm."""
    return variants.linear_us(variant, column(rows, "m"), column(rows, "n"), column(rows, "k"))


def predict_mixed_decode(variant: Variant, rows: Rows) -> Floats:
    """Of mixed_batch_attention, rows without a prompt."""
    sizes = column(rows, "n_decode"), column(rows, "kv_decode")
    return variants.decode_us(variant, LLAMA_3_8B, *sizes, as_measured=True)


def predict_mixed_prefill(variant: Variant, rows: Rows) -> Floats:
    """Of mixed_batch_attention, rows without decodes."""
    queries, context = column(rows, "prefill_chunk"), column(rows, "kv_prefill")
    return variants.prefill_us(variant, LLAMA_3_8B, np.ones(len(rows)), queries, context)


def predict_mixed(variant: Variant, rows: Rows) -> Floats:
    """Of mixed_batch_attention, rows with both."""
    queries, context = column(rows, "prefill_chunk"), column(rows, "kv_prefill")
    count, keys = column(rows, "n_decode"), column(rows, "kv_decode")
    one = np.ones(len(rows))
    prefill = Mixed(one, queries, context + queries, queries * (context + (queries + 1) / 2))
    return variants.mixed_us(variant, LLAMA_3_8B, prefill, Mixed(count, one, keys, count * keys))


def predict_ragged(variant: Variant, rows: Rows) -> Floats:
    """Of ragged_decode: as a batch of the same sums, whose lengths are all the mean.

    This scores what the cost model assumes of every batch, with the table's own times of the batch
    of equal lengths: they hold more than the kernel, so the kernel's form has no say in it.
    """
    return column(rows, "us_uniform_mean")


def predict_layer_linear(variant: Variant, rows: Rows) -> Floats:
    """Of layer_times, the linears."""
    return variants.linear_us(variant, *linear_sizes(rows))


def predict_small(variant: Variant, rows: Rows) -> Floats:
    """Of layer_times, what is no linear."""
    return variants.small_us(variant, small_megabytes(rows))


def _kernel_names(rows: Rows) -> pd.Series:
    name = rows["engine"] + " " + rows["kernel"] + " " + rows["kv_dtype"]
    return name + " hd" + rows["head_dim"].astype(str)


def _attention_facts(rows: Rows) -> dict[str, object]:
    first = rows.iloc[0]
    page = first.get("page_size")
    facts: dict[str, object] = {
        "kv_dtype": str(first["kv_dtype"]),
        "head_dim": int(first["head_dim"]),
        "version": str(first["version"]),
    }
    return facts if page is None or pd.isna(page) else {**facts, "page": int(page)}


def _decode_names(rows: Rows) -> pd.Series:
    return names_of(_kernel_names(rows), rows)


def _decode_facts(rows: Rows) -> dict[str, object]:
    """Also which numbers of query heads a KV head the kernel is launched for, if not for all."""
    own = launched(_decode_names(rows.iloc[:1]).iloc[0])
    return _attention_facts(rows) | (own.facts() if own else {})


def _dtype_facts(rows: Rows) -> dict[str, object]:
    dtype = str(rows["dtype"].iloc[0])
    return {"dtype": dtype, "width": 1 if dtype == "fp8" else 2}


def _all(rows: Rows) -> Bools:
    return np.ones(len(rows), np.bool_)


def _named(name: str) -> Callable[[Rows], pd.Series]:
    return lambda rows: pd.Series([name] * len(rows), rows.index)


def _llama(rows: Rows) -> dict[str, object]:
    return {"kv_dtype": "bf16", "head_dim": 128, "page": 16}


FAMILIES = (
    Family("decode_attention", "decode", _all, _decode_names, predict_decode, _decode_facts),
    Family("prefill_attention", "prefill", _all, _kernel_names, predict_prefill, _attention_facts),
    Family(
        "gemm",
        "linear",
        is_below_peak,
        lambda rows: rows["engine"] + " " + rows["dtype"],
        predict_linear,
        _dtype_facts,
    ),
    Family(
        "mixed_batch_attention",
        "decode",
        lambda rows: (rows["prefill_chunk"] == 0).to_numpy(),
        _named("vllm fa2 bf16 hd128"),
        predict_mixed_decode,
        _llama,
    ),
    Family(
        "mixed_batch_attention",
        "prefill",
        lambda rows: (rows["n_decode"] == 0).to_numpy(),
        _named("vllm fa2 bf16 hd128"),
        predict_mixed_prefill,
        _llama,
    ),
    Family(
        "mixed_batch_attention",
        "mixed",
        lambda rows: ((rows["n_decode"] > 0) & (rows["prefill_chunk"] > 0)).to_numpy(),
        _named("vllm fa2 bf16 hd128"),
        predict_mixed,
        _llama,
    ),
    Family(
        "layer_times",
        "linear",
        lambda rows: rows["layer"].isin(LINEARS).to_numpy(),
        _named("vllm bf16"),
        predict_layer_linear,
        lambda rows: {"dtype": "bf16", "width": 2},
    ),
    Family(
        "layer_times",
        "small",
        lambda rows: rows["layer"].isin(list(SMALL_OF)).to_numpy(),
        lambda rows: rows["layer"].map(SMALL_OF),
        predict_small,
        lambda rows: {},
    ),
    Family(
        "ragged_decode",
        "ragged",
        _all,
        _named("vllm fa2 bf16 hd128"),
        predict_ragged,
        _llama,
        time="us_skewed",
    ),
)


def sizes_of(family: Family, rows: Rows) -> Mapping[str, Floats]:
    """The sizes of rows that tables of corrections and ranges are over, by axis name."""
    if family.family == "linear":
        own = tuple(column(rows, name) for name in "mnk") if "m" in rows else linear_sizes(rows)
        return dict(zip("mnk", own, strict=True))
    if family.family == "small":
        if family.table == "points":  # our own: bytes are measured
            return {"tokens": column(rows, "q_tokens"), "mb": column(rows, "kv_mb")}
        return {"tokens": column(rows, "tokens"), "mb": small_megabytes(rows)}
    if family.table == "mixed_batch_attention":
        return _mixed_sizes(rows)
    batch = column(rows, "batch")
    heads, kv_heads = column(rows, "heads"), column(rows, "kv_heads")
    sizes = {"kv_heads": kv_heads, "group": heads / kv_heads, "head_dim": column(rows, "head_dim")}
    if family.family == "decode":
        kv_len = column(rows, "kv_len")
        width = np.where(rows["kv_dtype"] == "fp8", 1, 2)
        mega = 2e-6 * batch * kv_len * kv_heads * sizes["head_dim"] * width
        in_flight = {"tiles": batch * kv_heads, "query_heads": batch * heads}
        return {**sizes, **in_flight, "batch": batch, "kv_len": kv_len, "kv_mb": mega}
    queries = column(rows, "prompt_len")
    return {
        **sizes,
        "chunks": batch,
        "queries": queries,
        "context": column(rows, "ctx") + 1 if "ctx" in rows else np.ones(len(rows)),
        "tiles": batch * heads,
        "tokens": batch * queries,
    }


def _mixed_sizes(rows: Rows) -> dict[str, Floats]:
    count, keys = column(rows, "n_decode"), column(rows, "kv_decode")
    queries, context = column(rows, "prefill_chunk"), column(rows, "kv_prefill")
    one = np.ones(len(rows))
    return {
        "batch": count,
        "decodes": count,
        "kv_len": keys,
        "kv_mb": count * keys * LLAMA_3_8B.token_bytes / 1e6,
        "chunks": one,
        "queries": queries,
        "tokens": queries,
        "context": context + 1.0,
        "tiles": count * LLAMA_3_8B.kv_heads,
        "kv_heads": one * LLAMA_3_8B.kv_heads,
        "group": one * LLAMA_3_8B.heads / LLAMA_3_8B.kv_heads,
        "head_dim": one * LLAMA_3_8B.head_dim,
    }
