"""What the kernels must compute, in plain torch and float64: the truth of the tests, written to be
read.

Every function takes the shapes and dtypes of its kernel's host function and returns float64.
"""

from __future__ import annotations

import math

import torch

from kernels.launch import FP8, KVCache


def as_float64(x: torch.Tensor) -> torch.Tensor:
    """Exact; fp8 goes through fp32, since torch has no direct conversion on every device."""
    return x.float().double()


def paged_slots(table_row: torch.Tensor, length: int, block_size: int) -> torch.Tensor:
    """The slots of tokens 0 .. length - 1 of a sequence with this row of the block table."""
    token = torch.arange(length, device=table_row.device)
    return table_row.long()[token // block_size] * block_size + token % block_size


def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, scale: float) -> torch.Tensor:
    """Causal attention of one sequence: the last query sees every key, the one before all but the
    last, …

    q: (num_queries, heads, head_dim); k, v: (num_keys, kv_heads, head_dim); all float64; returns
    q's shape.
    """
    group = q.shape[1] // k.shape[1]
    k, v = k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)
    scores = torch.einsum("qhd,khd->hqk", q, k) * scale
    position = torch.arange(q.shape[0], device=q.device) + (k.shape[0] - q.shape[0])
    hidden = torch.arange(k.shape[0], device=q.device)[None, :] > position[:, None]
    weights = torch.softmax(scores.masked_fill(hidden, -math.inf), -1)
    return torch.einsum("hqk,khd->qhd", weights, v)


def _attend_slots(q: torch.Tensor, cache: KVCache, slots: torch.Tensor) -> torch.Tensor:
    """`attend` over the keys in these slots of a flat cache; zeros where a sequence has no keys."""
    if len(slots) == 0:
        return torch.zeros(q.shape, dtype=torch.float64, device=q.device)
    k = as_float64(cache.k[slots]) * cache.k_scale
    v = as_float64(cache.v[slots]) * cache.v_scale
    return attend(as_float64(q), k, v, q.shape[-1] ** -0.5)


def paged_decode(
    q: torch.Tensor, cache: KVCache, block_table: torch.Tensor, lengths: torch.Tensor
) -> torch.Tensor:
    """See `kernels.decode.paged_decode`."""
    flat = cache.flat()
    rows = [
        _attend_slots(q[i : i + 1], flat, paged_slots(block_table[i], n, cache.block_size))
        for i, n in enumerate(lengths.tolist())
    ]
    return torch.cat(rows)


def contiguous_decode(
    q: torch.Tensor, cache: KVCache, first_slots: torch.Tensor, lengths: torch.Tensor
) -> torch.Tensor:
    """See `kernels.decode.contiguous_decode`."""
    spans = zip(first_slots.tolist(), lengths.tolist(), strict=True)
    rows = [
        _attend_slots(q[i : i + 1], cache, torch.arange(s, s + n, device=q.device))
        for i, (s, n) in enumerate(spans)
    ]
    return torch.cat(rows)


def paged_prefill(
    q: torch.Tensor,
    cache: KVCache,
    block_table: torch.Tensor,
    query_starts: torch.Tensor,
    lengths: torch.Tensor,
) -> torch.Tensor:
    """See `kernels.prefill.paged_prefill`."""
    flat, starts = cache.flat(), query_starts.tolist()
    rows = [
        _attend_slots(
            q[starts[i] : starts[i + 1]], flat, paged_slots(block_table[i], n, cache.block_size)
        )
        for i, n in enumerate(lengths.tolist())
    ]
    return torch.cat(rows)


def store(x: torch.Tensor, scale: float, dtype: torch.dtype) -> torch.Tensor:
    """What a cache of that dtype holds of x: for fp8 x / scale, cut off at the largest value, else
    x.
    """
    if dtype != FP8:
        return x.to(dtype)
    largest = torch.finfo(FP8).max
    return (x.float() / scale).clamp(-largest, largest).to(FP8)


def append(k: torch.Tensor, v: torch.Tensor, cache: KVCache, slots: torch.Tensor) -> None:
    """See `kernels.moves.append`; writes into the cache."""
    flat = cache.flat()
    for token, slot in enumerate(slots.tolist()):
        if slot >= 0:
            flat.k[slot] = store(k[token], cache.k_scale, cache.k.dtype)
            flat.v[slot] = store(v[token], cache.v_scale, cache.v.dtype)


def copy_blocks(source: KVCache, destination: KVCache, pairs: torch.Tensor) -> None:
    """See `kernels.moves.copy_blocks`; writes into the destination."""
    for src, dst in pairs.tolist():
        destination.k[dst] = source.k[src]
        destination.v[dst] = source.v[src]


def add_rms_norm(
    x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor, epsilon: float = 1e-5
) -> tuple[torch.Tensor, torch.Tensor]:
    """The new residual and what is made of it; see `kernels.layer_ops.add_rms_norm_launch`."""
    total = as_float64(x) + as_float64(residual)
    size = (total.pow(2).mean(-1, keepdim=True) + epsilon).sqrt()
    return total, total / size * as_float64(weight)


def rope(x: torch.Tensor, angle: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
    """Every head as complex numbers (first half real, second imaginary), turned by the angles of
    its row's position; angle: (max_position, head_dim / 2)."""
    low, high = as_float64(x).chunk(2, -1)
    turn = torch.polar(torch.ones_like(angle).double(), angle.double())[positions.long()]
    turned = torch.complex(low, high) * turn[:, None]
    return torch.cat([turned.real, turned.imag], -1)


def silu_and_mul(x: torch.Tensor) -> torch.Tensor:
    """The first half of the columns gates the second."""
    gate, up = as_float64(x).chunk(2, -1)
    return torch.nn.functional.silu(gate) * up


def mla_decode(
    q: torch.Tensor,
    cache: torch.Tensor,
    block_table: torch.Tensor,
    lengths: torch.Tensor,
    latent: int,
    scale: float,
) -> torch.Tensor:
    """See `kernels.mla.mla_decode`: a key is a whole entry, a value its first `latent` numbers."""
    flat, rows = cache.flatten(0, 1), []
    for i, n in enumerate(lengths.tolist()):
        query = as_float64(q[i : i + 1])
        k = as_float64(flat[paged_slots(block_table[i], n, cache.shape[1])])[:, None]
        v = torch.nn.functional.pad(k[..., :latent], (0, k.shape[-1] - latent))
        rows.append(attend(query, k, v, scale) if n else torch.zeros_like(query))
    return torch.cat(rows)[..., :latent]
