"""The closed forms that the times of GPU kernels follow, in microseconds; vectorised.

Decode attention, one query a sequence, W tiles on each SM, Q million query values, B MB of keys and
values, T MB of them in one tile:

    t = a + ((c W^w)^p + M^p + (g T)^p)^(1/p) + s [W < 0.8 and more than 128 keys] + e Q
    M = B x (rate of large calls, or on the way to it from small_lo_mb to small_hi_mb)

A wave of tiles starts before the one before it has ended: w is at most 1. The keys of a tile are
split among a limited number of SMs, if at all: g is the time of an MB of them, which a call of few
tiles waits for. In a table of calls in a loop, M is less by l2_saved below l2_lo_mb, falling to 0
at l2_hi_mb: what L2 still held of the call before.

Prefill attention: chunks with earlier context, F MFLOP of which `lost_keys` of every query are
tile edges, `blocks` of 128 keys that the longest tile passes one after another:

    t = a + ((F f)^p + (d blocks)^p)^(1/p) + c W + e x MB

Both in one launch (FlashAttention-2 with variable lengths), where the decodes lose the packing of
heads and the splitting of keys; K millions of pairs of a query head and a key:

    t = a + ((F f + k K)^p + (d blocks)^p)^(1/p) + c W

Linear out[m, n] = x[m, k] w[n, k]^T:

    t = a + ((f x MFLOP)^p + (b x MB)^p)^(1/p)

They come from how the kernels cut their work into tiles (FA3: 64 query rows, keys split among SMs
that would be idle) and were compared on the kernel tables of ai-dynamo/aiconfigurator: a line in
bytes alone misses by 20 % or more, because it cannot see what a tile costs. MB is 1e6 bytes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Parameters = Mapping[str, float]

SPLIT_BELOW_WAVES = 0.8
SPLIT_ABOVE_KEYS = 128
TILE_KEYS = 128
TILE_QUERIES = 128


@dataclass(frozen=True)
class Heads:
    """What one GPU computes of a layer's attention; kv_width is the bytes of a cached value."""

    heads: int
    kv_heads: int
    head_dim: int
    kv_width: float = 2

    @property
    def token_bytes(self) -> float:
        """K and V of one token, one layer."""
        return 2 * self.kv_heads * self.head_dim * self.kv_width

    def tiles(self, rows: float) -> int:
        """Tiles of so many query rows for one query of a sequence; the heads of a group share."""
        return int(self.kv_heads * -(-self.heads // (self.kv_heads * int(rows))))


def p_norm(left: Floats, right: Floats, p: float) -> Floats:
    """(left^p + right^p)^(1/p): their sum for p = 1, the larger for a large p."""
    larger = np.maximum(np.maximum(left, right), 1e-12)
    return np.asarray(larger * ((left / larger) ** p + (right / larger) ** p) ** (1 / p))


def move_us(form: Parameters, mega: Floats, as_measured: bool) -> Floats:
    """Microseconds to read so many MB of keys and values.

    Calls below small_hi_mb have a rate of their own. Where that is the better one, and below
    l2_hi_mb, it is what L2 still held of the call before: a step, whose weights pass through L2,
    does not have it, a call in a loop does (as_measured).
    """
    factor = form.get("small_factor", 1.0)
    if factor < 1 and not as_measured:
        factor = 1.0
    inside = _below(mega, form.get("small_lo_mb", 0.0), form.get("small_hi_mb", 1.0))
    saved = form.get("l2_saved", 0.0) if as_measured else 0.0
    inside_l2 = _below(mega, form.get("l2_lo_mb", 0.0), form.get("l2_hi_mb", 1.0))
    us = mega * form["us_per_mb"] * (1 + (factor - 1) * inside)
    return np.asarray(us * (1 - saved * inside_l2))


def _below(mega: Floats, low: float, high: float) -> Floats:
    """1 below low, 0 above high, a straight line between them."""
    return np.asarray(np.clip((high - mega) / (high - low), 0, 1))


def decode_us(
    form: Parameters, heads: Heads, batch: Floats, kv_len: Floats, as_measured: bool = False
) -> Floats:
    """Decode attention of a layer: batch sequences of kv_len keys, the new one included."""
    tiles = batch * heads.tiles(form["tile_rows"]) / form["sms"]
    waves = np.ceil(np.maximum(1.0, tiles)) ** form.get("wave_power", 1.0)
    moved = move_us(form, batch * kv_len * heads.token_bytes / 1e6, as_measured)
    split = form["split_us"] * ((tiles < SPLIT_BELOW_WAVES) & (kv_len > SPLIT_ABOVE_KEYS))
    queries = form["us_per_mq"] * batch * heads.heads * heads.head_dim / 1e6
    tile = form.get("us_per_tile_mb", 0.0) * kv_len * heads.token_bytes / heads.kv_heads / 1e6
    work = p_norm(p_norm(form["us_per_wave"] * waves, moved, form["p"]), tile, form["p"])
    return np.asarray(form["a_us"] + work + split + queries)


def prefill_us(
    form: Parameters, heads: Heads, chunks: Floats, queries: Floats, keys: Floats, pairs: Floats
) -> Floats:
    """Prefill attention of a layer: chunks of so many queries each, the last seeing keys keys.

    pairs: of a query and a key that it attends to, of all chunks.
    """
    flops = 4e-6 * heads.heads * heads.head_dim
    mflop = flops * (pairs + 0.5 * form["lost_keys"] * chunks * queries)
    blocks = np.ceil(keys / TILE_KEYS)
    waves = np.maximum(1.0, chunks * heads.heads * np.ceil(queries / TILE_QUERIES) / form["sms"])
    work = p_norm(form["us_per_mflop"] * mflop, form["us_per_block"] * blocks, form["p"])
    width = 2e-6 * heads.head_dim
    moved = width * chunks * (2 * queries * heads.heads + 2 * keys * heads.kv_heads)
    return np.asarray(form["a_us"] + work + form["us_per_wave"] * waves + form["us_per_mb"] * moved)


def mixed_us(form: Parameters, heads: Heads, prefill: Mixed, decode: Mixed) -> Floats:
    """A launch with chunks of prompts and decodes in it."""
    flops = 4e-6 * heads.heads * heads.head_dim
    mflop = flops * (prefill.pairs + 0.5 * form["lost_keys"] * prefill.sequences * prefill.queries)
    unpacked = 1e-6 * heads.heads * decode.pairs
    blocks = np.ceil(np.maximum(prefill.keys, decode.keys) / TILE_KEYS)
    tiles = prefill.sequences * np.ceil(prefill.queries / TILE_QUERIES) + decode.sequences
    waves = np.maximum(1.0, tiles * heads.heads / form["sms"])
    load = form["us_per_mflop"] * mflop + form["us_per_mkey"] * unpacked
    work = p_norm(load, form["us_per_block"] * blocks, form["p"])
    return np.asarray(form["a_us"] + work + form["us_per_wave"] * waves)


@dataclass(frozen=True)
class Mixed:
    """One kind of sequences in a launch: how many, queries and keys of each, pairs of all."""

    sequences: Floats
    queries: Floats
    keys: Floats
    pairs: Floats


def linear_us(form: Parameters, mflop: Floats, mega: Floats) -> Floats:
    """A dense linear of so many MFLOP that moves so many MB: weights, input and output."""
    compute, move = form["us_per_mflop"] * mflop, form["us_per_mb"] * mega
    return np.asarray(form["a_us"] + p_norm(compute, move, form["p"]))
