"""Rows of the tables: whose heads and shapes they are of, and the bytes that they move."""

from __future__ import annotations

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from sim.costs.forms import Floats, Heads

Rows = pd.DataFrame
Bools = NDArray[np.bool_]

LLAMA_3_8B = Heads(32, 8, 128)  # what the mixed and ragged tables were measured with

# (hidden, intermediate, heads, KV heads, vocabulary) of the models in layer_times, from their
# config.json; head_dim is 128 in all
WIDTHS = {
    "Llama-2-7b-hf": (4096, 11008, 32, 32, 32000),
    "Llama-2-70b-hf": (8192, 28672, 64, 8, 32000),
    "Meta-Llama-3-70B": (8192, 28672, 64, 8, 128256),
    "Qwen-72B": (8192, 24576, 64, 64, 151936),
    **dict.fromkeys(("Meta-Llama-3-8B", "Llama-3.1-8B"), (4096, 14336, 32, 8, 128256)),
}
SMALL = {
    "norm": ("input_layernorm", "post_attention_layernorm", "layernorm", "final_layernorm"),
    "rope": ("attn_rope", "rotary_emb"),
    "activation": ("mlp_act", "act_fn"),
    "add": ("add",),
    "embedding": ("emb", "embedding"),
    "sampler": ("sampler",),
}
SMALL_OF = {layer: name for name, layers in SMALL.items() for layer in layers}
LINEARS = ("qkv_proj", "o_proj", "gate_up_proj", "down_proj", "lm_head")

# bytes/s that no cold run can pass: datasheets (sim/hardware/presets/gpus.yaml); rows above it ran
# from L2
PEAK_GB_S = {"H200": 4800, "H100": 3350, "A100": 2039, "RTX 4090": 1008}


def column(rows: Rows, name: str) -> Floats:
    """A column as floats."""
    return rows[name].to_numpy(np.float64)


def head_groups(rows: Rows) -> list[tuple[Heads, NDArray[np.intp]]]:
    """The head configurations of rows, and where their rows are."""
    found = []
    columns = [column(rows, name).astype(int) for name in ("heads", "kv_heads", "head_dim")]
    widths = np.where(rows["kv_dtype"] == "fp8", 1, 2)
    shapes, groups = np.unique(np.column_stack([*columns, widths]), axis=0, return_inverse=True)
    for group, shape in enumerate(shapes.tolist()):
        found.append((Heads(*shape), np.flatnonzero(groups == group)))
    return found


def linear_sizes(rows: Rows) -> tuple[Floats, Floats, Floats]:
    """m, n and k of the linears in layer_times."""
    shapes: dict[tuple[str, str], tuple[int, int]] = {}
    for model, (hidden, inner, heads, kv_heads, vocabulary) in WIDTHS.items():
        own = [
            ((heads + 2 * kv_heads) * 128, hidden),
            (hidden, heads * 128),
            (2 * inner, hidden),
            (hidden, inner),
            (vocabulary, hidden),
        ]
        shapes |= {(model, name): shape for name, shape in zip(LINEARS, own, strict=True)}
    keys = list(zip(rows["model"], rows["layer"], strict=True))
    n = np.array([shapes[key][0] for key in keys], np.float64)
    return column(rows, "tokens"), n, np.array([shapes[key][1] for key in keys], np.float64)


def small_megabytes(rows: Rows) -> Floats:
    """MB that the small operations of layer_times read and write."""
    shares = []
    for model, tp, layer in zip(rows["model"], rows["tp"], rows["layer"], strict=True):
        hidden, inner, heads, kv_heads, vocabulary = WIDTHS[model]
        values = {
            "norm": 2 * hidden,
            "rope": 2 * (heads + kv_heads) * 128 / tp,
            "activation": 3 * inner / tp,
            "add": 3 * hidden,
            "embedding": 2 * hidden,
            "sampler": 2 * vocabulary,  # 4 bytes a logit
        }
        shares.append(2 * values[SMALL_OF[layer]])
    return np.asarray(np.array(shares) * column(rows, "tokens") / 1e6)


def is_below_peak(rows: Rows) -> Bools:
    """Linears that read their operands no faster than the memory's peak."""
    width = np.where(rows["dtype"] == "fp8", 1, 2)
    m, n, k = (column(rows, name) for name in "mnk")
    rate = (width * (n * k + m * k) + 2 * m * n) / column(rows, "us") / 1e3
    peak = rows["gpu"].map(PEAK_GB_S).fillna(np.inf).to_numpy(np.float64)
    return np.asarray(rate <= peak)
