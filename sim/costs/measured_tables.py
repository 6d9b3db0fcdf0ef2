"""From a profile and a model's shape to tables of seconds, ready for the compiled part."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sim.costs import forms, measured_ops, variants
from sim.costs.forms import Floats, Heads
from sim.costs.grid import Grid
from sim.costs.link import PCIE_5_GB_S, block_copy_bytes, link_gb_s
from sim.costs.measured_ops import NODES_PER_OCTAVE, NUM_LIMITS, NUM_NUMBERS
from sim.costs.measured_shape import Chosen, ModelShape
from sim.costs.paging import OWN_PAGING, PRESETS, paging_factor
from sim.costs.profile import Profile
from sim.costs.variants import Variant

MAX_ROWS = 1024  # sequences with a row of their own in the decode table
MAX_CHUNKS = 64  # prompts with a row of their own in the prefill table
MAX_TOKENS = 16384  # tokens with a cell of their own
OCTAVES, PREFILL_OCTAVES = 20, 17  # lengths of up to 1 Mi tokens, prompts of up to 128 Ki
US = 1e-6
PER_TOKEN = ("norm", "rope", "activation", "append", "embedding")  # small operations of a token
FAR = 1 << 62


class Raised(NamedTuple):
    """What a cumulative maximum did to a table: fractions."""

    share: float
    mean: float
    largest: float


@dataclass(frozen=True)
class Tables:
    """What the compiled part reads (see sim.costs.measured_ops); seconds.

    raised: what the cumulative maximum changed in each table.
    """

    tokens: Floats
    seqs: Floats
    decode: Floats
    prefill: Floats
    numbers: Floats
    limits: NDArray[np.int64]
    raised: dict[str, Raised]


def nodes(octaves: int) -> Floats:
    """The lengths of a table's columns."""
    return np.asarray(2.0 ** (np.arange(octaves * NODES_PER_OCTAVE + 1) / NODES_PER_OCTAVE))


def never_falling(table: Floats) -> tuple[Floats, Raised]:
    """The cumulative maximum along every axis, and what it changed."""
    raised = table
    for axis in range(table.ndim):
        raised = np.maximum.accumulate(raised, axis)
    by = raised / table - 1
    return raised, Raised(float(np.mean(by > 0)), float(np.mean(by)), float(np.max(by)))


def decode_table(chosen: Chosen, heads: Heads, rows: int = MAX_ROWS) -> tuple[Floats, Raised]:
    """Microseconds of a layer's decode attention: a row a count of sequences, a column a length."""
    batch = np.arange(1.0, rows + 1)[:, None]
    length = nodes(OCTAVES)[None, :]
    is_cold = chosen.decode.facts.get("l2") == "cold"
    us = variants.decode_us(chosen.decode, heads, batch, length, as_measured=is_cold)
    us = us - launch_us(chosen, chosen.decode)
    mega = batch * length * heads.token_bytes / 1e6
    peak = chosen.profile.constant("peak_gb_s")
    us = np.maximum(us, np.maximum(0.5, 1e3 * mega / peak if peak else 0.0))
    us = us * relative_paging(chosen, "decode", chosen.decode, mega)
    return never_falling(us)


def launch_us(chosen: Chosen, variant: Variant) -> float:
    """What a graph of one call adds to it, which a step's one graph does not."""
    return min(chosen.profile.constant("graph_launch_us"), variant.form["a_us"])


def relative_paging(chosen: Chosen, phase: str, variant: Variant, kv_mb: Floats) -> Floats:
    """The factor from the layout that a kernel was measured with to the run's.

    Back to contiguous memory by what the profile says of its own kernels, and from there by the
    run's choice.
    """
    profile, page = chosen.profile, int(variant.facts.get("page", 16))
    own = paging_factor(
        paging_grid(profile, profile.defaults["paging"], phase), page or None, kv_mb
    )
    grid = paging_grid(profile, chosen.paging, phase)
    return np.asarray(paging_factor(grid, chosen.block_size, kv_mb) / own)


def paging_grid(profile: Profile, name: str, phase: str) -> Grid:
    """A preset's factors, or the profile's own."""
    return profile.paging[phase] if name == OWN_PAGING else PRESETS[name].grids()[phase]


def prefill_table(chosen: Chosen, heads: Heads) -> tuple[Floats, Raised]:
    """Microseconds of a layer's prefill attention without context, as decode_table."""
    chunks = np.arange(1.0, MAX_CHUNKS + 1)[:, None]
    queries = nodes(PREFILL_OCTAVES)[None, :]
    us = variants.prefill_us(chosen.prefill, heads, chunks, queries, np.zeros_like(queries))
    us = np.maximum(us - launch_us(chosen, chosen.prefill), 0.5)
    return never_falling(us * relative_paging(chosen, "prefill", chosen.prefill, np.asarray(100.0)))


def token_table(chosen: Chosen, shape: ModelShape) -> tuple[Floats, Raised]:
    """Microseconds of everything that sees a token once, all layers, by the number of tokens."""
    m = np.arange(1.0, MAX_TOKENS + 1)
    query, key = shape.heads * shape.head_dim, 2 * shape.kv_heads * shape.head_dim
    layer = _mlp_us(chosen, shape, m)
    for name in ("qkv", "attention output"):
        layer = layer + _linear_us(chosen, shape, m, name)
    norm = small_us(chosen.profile, "norm", 4e-6 * shape.hidden * m)
    rope = small_us(chosen.profile, "rope", 4e-6 * (query + key / 2) * m)
    act = small_us(chosen.profile, "activation", 6e-6 * shape.inner * m)
    once, byte = shape.all_reduce
    reduce_us = 2 * (once + byte * 2.0 * shape.hidden * m) / US
    append = small_us(chosen.profile, "append", 2e-6 * (key + key * shape.kv_width / 2) * m)
    layer = layer + 2 * norm + rope + act + append + reduce_us
    total = shape.layers * layer + small_us(chosen.profile, "embedding", 4e-6 * shape.hidden * m)
    return never_falling(total + norm)


def small_us(profile: Profile, name: str, mega: Floats) -> Floats:
    """A small operation; nothing where the profile has none (it is in others then)."""
    variant = profile.kernels.get("small", {}).get(name)
    return variants.small_us(variant, mega) if variant is not None else np.zeros_like(mega)


def _linear_us(chosen: Chosen, shape: ModelShape, m: Floats, name: str) -> Floats:
    """A linear of the model; weights narrower than the kernel's values are read as they are.

    Nothing if the model has none of the name.
    """
    if name not in shape.linears:
        return np.zeros_like(m)
    n, k = shape.linears[name]
    us = variants.linear_us(chosen.linear, m, np.asarray(n), np.asarray(k))
    own = float(chosen.linear.facts.get("width", 2))
    if abs(shape.weight_width - own) < 0.5:
        return us
    saved = (own - shape.weight_width) * n * k / 1e6 * chosen.linear.form["us_per_mb"]
    return np.asarray(np.maximum(us - saved, chosen.linear.form["a_us"]))


def _mlp_us(chosen: Chosen, shape: ModelShape, m: Floats) -> Floats:
    """The MLP: gate and up in one, and down. Of experts, as many as the tokens can touch."""
    if not shape.num_expert_params:
        up = _linear_us(chosen, shape, m, "gate and up")
        return np.asarray(up + _linear_us(chosen, shape, m, "down"))
    outside = shape.num_params - shape.num_expert_params
    each = (shape.num_active_params - outside) / shape.layers
    touched = np.minimum(shape.num_expert_params / shape.layers, m * each)
    around = (outside - shape.num_embedding_params) / shape.layers
    shared = max(0.0, around - shape.projection_params)
    mflop = 2e-6 * m * (each + shared)
    mega = shape.weight_width * (touched + shared) / 1e6
    return 2 * chosen.linear.form["a_us"] + forms.linear_us(
        {**chosen.linear.form, "a_us": 0.0}, mflop, mega
    )


def seq_table(chosen: Chosen, shape: ModelShape) -> tuple[Floats, Raised]:
    """Microseconds of what sees each sequence once: the output layer and the sampler."""
    m = np.arange(1.0, MAX_ROWS + 1)
    us = np.zeros(MAX_ROWS)
    if shape.vocab:
        us = us + small_us(chosen.profile, "sampler", 4e-6 * shape.vocab * m)
        us = us + _linear_us(chosen, shape, m, "output layer")
    return never_falling(np.maximum(us, 1e-6))


@lru_cache(maxsize=16)
def build_tables(chosen: Chosen, shape: ModelShape) -> Tables:
    """All tables of a run, in seconds."""
    heads = shape.attention
    found = {
        "tokens": token_table(chosen, shape),
        "seqs": seq_table(chosen, shape),
        "decode": decode_table(chosen, heads),
        "prefill": prefill_table(chosen, heads),
    }
    raised = {name: how for name, (_, how) in found.items()}
    scale = shape.layers * US
    return Tables(
        tokens=np.concatenate([[0.0], US * found["tokens"][0]]),
        seqs=np.concatenate([[0.0], US * found["seqs"][0]]),
        decode=np.vstack([nodes(OCTAVES), scale * found["decode"][0]]),
        prefill=np.vstack([nodes(PREFILL_OCTAVES), scale * found["prefill"][0]]),
        numbers=numbers_of(chosen, shape),
        limits=limits_of(chosen, heads),
        raised=raised,
    )


def numbers_of(chosen: Chosen, shape: ModelShape) -> Floats:
    """The numbers beside the tables."""
    ops, heads = measured_ops, shape.attention
    numbers = np.zeros(NUM_NUMBERS)
    numbers[ops.HOST] = chosen.host_us * US
    each = shape.layers * heads.token_bytes / 1e6
    own_rate = chosen.profile.constant("copy_us_per_mb") or chosen.linear.form["us_per_mb"]
    numbers[ops.COPIED_TOKEN] = 2 * each * own_rate * US
    numbers[ops.SWAPPED_TOKEN] = each / 1e3 / link_rate(chosen, shape)
    factor = float(relative_paging(chosen, "prefill", chosen.prefill, np.asarray(100.0)))
    scale, form = shape.layers * US * factor, chosen.prefill.form
    flops = 4e-6 * heads.heads * heads.head_dim
    numbers[ops.PAIR_S] = scale * form["us_per_mflop"] * flops
    numbers[ops.BLOCK_S] = scale * form["us_per_block"]
    numbers[ops.POWER] = form["p"]
    numbers[ops.LOST_KEYS] = 0.5 * form["lost_keys"]
    numbers[ops.CONTEXT_TOKEN_S] = scale * form["us_per_mb"] * heads.token_bytes / 1e6
    if chosen.mixed is not None:
        own, scale = chosen.mixed.form, shape.layers * US
        numbers[ops.IS_UNIFIED] = 1
        numbers[ops.U_BASE] = scale * own["a_us"]
        numbers[ops.U_PAIR_S] = scale * own["us_per_mflop"] * flops
        numbers[ops.U_KEY_S] = scale * own["us_per_mkey"] * heads.heads / 1e6
        numbers[ops.U_BLOCK_S] = scale * own["us_per_block"]
        numbers[ops.U_WAVE_S] = scale * own["us_per_wave"]
        numbers[ops.U_POWER], numbers[ops.U_LOST] = own["p"], 0.5 * own["lost_keys"]
        numbers[ops.U_TILES] = heads.heads / own["sms"]
    return numbers


def link_rate(chosen: Chosen, shape: ModelShape) -> float:
    """GB/s at which the blocks of a swap cross the link: each layer's K and V are copies apart."""
    size = block_copy_bytes(chosen.block_size or 16, shape.kv_heads, shape.head_dim, shape.kv_width)
    own = chosen.profile.constants.get("link_rates")
    if own is not None:
        return link_gb_s(size, PCIE_5_GB_S, [(kib, rate) for kib, rate in own["by_kib"]])
    return link_gb_s(size, chosen.pcie_gb_s or chosen.profile.constant("link_gb_s"))


def limits_of(chosen: Chosen, heads: Heads) -> NDArray[np.int64]:
    """The sizes that the chosen kernels were measured at; far away where a profile does not say."""
    ops, limits = measured_ops, np.full(NUM_LIMITS, FAR, np.int64)
    limits[[ops.MIN_LENGTH, ops.MIN_BATCH, ops.MIN_QUERIES]] = 0
    decode, prefill, linear = chosen.decode.valid, chosen.prefill.valid, chosen.linear.valid
    if "kv_len" in decode:
        limits[ops.MIN_LENGTH], limits[ops.MAX_LENGTH] = decode["kv_len"]
    if "batch" in decode:
        limits[ops.MIN_BATCH], limits[ops.MAX_BATCH] = decode["batch"]
    if "kv_mb" in decode:
        limits[ops.MAX_DECODE_TOKENS] = decode["kv_mb"][1] * 1e6 / heads.token_bytes
    if "queries" in prefill:
        limits[ops.MIN_QUERIES], limits[ops.MAX_QUERIES] = prefill["queries"]
    if "chunks" in prefill:
        limits[ops.MAX_CHUNKS] = prefill["chunks"][1]
    if "context" in prefill:
        limits[ops.MAX_CONTEXT] = prefill["context"][1] - 1  # tables count from 1
    if chosen.mixed is not None and "decodes" in chosen.mixed.valid:
        limits[ops.MAX_MIXED_DECODES] = chosen.mixed.valid["decodes"][1]
    small = chosen.profile.kernels.get("small", {}).items()
    tokens = [v.valid["tokens"][1] for n, v in small if n in PER_TOKEN and "tokens" in v.valid]
    seen = [max(tokens, default=FAR), linear["m"][1] if "m" in linear else FAR]
    limits[ops.MAX_TOKENS] = min(seen)  # of small ones the largest: some of its rows are kept out
    return limits
