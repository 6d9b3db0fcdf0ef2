"""One kernel of a profile: a closed form times tables of corrections, and where that holds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from sim.costs import forms
from sim.costs.forms import Floats, Heads, Mixed
from sim.costs.grid import Grid

Ranges = Mapping[str, tuple[float, float]]


@dataclass(frozen=True, eq=False)  # equal only to itself, so that tables built from it are kept
class Variant:
    """A kernel as fitted: parameters of its form, corrections, what it was measured with.

    valid: the sizes that were seen. errors: the mean absolute percentage error by kind of row.
    facts: kv_dtype, head_dim and page (block size in tokens, 0 for contiguous), where known;
    groups, the query heads a KV head (first, last) that the engine launches this kernel for;
    packs_heads, False where each query head reads keys and values for itself.
    """

    name: str
    form: Mapping[str, float]
    grids: tuple[Grid, ...] = ()
    valid: Ranges = field(default_factory=dict)
    errors: Mapping[str, Any] = field(default_factory=dict)
    facts: Mapping[str, Any] = field(default_factory=dict)

    def correction(self, sizes: Mapping[str, Floats]) -> Floats:
        """The product of the tables at these sizes, by the names of their axes."""
        factor = np.ones(())
        for grid in self.grids:
            factor = factor * grid.factor([sizes[axis.name] for axis in grid.axes])
        return np.asarray(factor)

    def misses_group(self, group: float) -> float:
        """How far so many query heads a KV head are from those that the kernel is launched for."""
        first, last = self.facts.get("groups", (group, group))
        return float(max(first - group, group - last, 0.0))

    def to_data(self) -> dict[str, Any]:
        """Plain data, as a profile keeps it."""
        data: dict[str, Any] = {"form": {k: _short(v) for k, v in self.form.items()}}
        for name in ("facts", "errors"):
            if getattr(self, name):
                data[name] = dict(getattr(self, name))
        data["valid"] = {
            name: [_short(low), _short(high)] for name, (low, high) in self.valid.items()
        }
        if self.grids:
            data["grids"] = [grid.to_data() for grid in self.grids]
        return data

    @classmethod
    def from_data(cls, name: str, data: Mapping[str, Any]) -> Variant:
        return cls(
            name=name,
            form={key: float(value) for key, value in data["form"].items()},
            grids=tuple(Grid.from_data(grid) for grid in data.get("grids", ())),
            valid={key: (float(a), float(b)) for key, (a, b) in data.get("valid", {}).items()},
            errors=data.get("errors", {}),
            facts=data.get("facts", {}),
        )


def _short(value: float) -> float:
    """Six significant digits: more than any of these numbers has."""
    return float(f"{value:.6g}")


def decode_us(
    variant: Variant, heads: Heads, batch: Floats, kv_len: Floats, as_measured: bool = False
) -> Floats:
    """Decode attention of a layer; as_measured: as in the table it was fitted to."""
    packs = variant.facts.get("packs_heads", True)
    own = heads if packs else replace(heads, kv_heads=heads.heads)
    form = forms.decode_us(variant.form, own, batch, kv_len, as_measured)
    sizes = {
        "batch": batch,
        "kv_len": kv_len,
        "kv_heads": np.asarray(float(heads.kv_heads)),
        "group": np.asarray(heads.heads / heads.kv_heads),
        "tiles": batch * heads.kv_heads,
        "query_heads": batch * heads.heads,
    }
    return np.asarray(form * variant.correction(sizes))


def prefill_us(
    variant: Variant, heads: Heads, chunks: Floats, queries: Floats, context: Floats
) -> Floats:
    """Prefill attention of a layer: chunks of so many queries after so much context each."""
    pairs = chunks * queries * (context + (queries + 1) / 2)
    form = forms.prefill_us(variant.form, heads, chunks, queries, context + queries, pairs)
    sizes = {
        "chunks": chunks,
        "queries": queries,
        "context": context + 1.0,
        "kv_heads": np.asarray(float(heads.kv_heads)),
        "group": np.asarray(heads.heads / heads.kv_heads),
        "tiles": chunks * heads.heads,
    }
    return np.asarray(form * variant.correction(sizes))


def mixed_us(variant: Variant, heads: Heads, prefill: Mixed, decode: Mixed) -> Floats:
    """Attention of a layer in one launch for chunks and decodes."""
    return forms.mixed_us(variant.form, heads, prefill, decode)


def linear_us(variant: Variant, m: Floats, n: Floats, k: Floats) -> Floats:
    """out[m, n] = x[m, k] w[n, k]^T; width of a value: facts.width bytes, 2 if not said."""
    width = float(variant.facts.get("width", 2))
    mega = (width * (n * k + m * k) + 2 * m * n) / 1e6
    form = forms.linear_us(variant.form, 2e-6 * m * n * k, mega)
    return np.asarray(form * variant.correction({"m": m, "n": n, "k": k}))


def small_us(variant: Variant, mega: Floats) -> Floats:
    """A norm, a rope, an activation, …: a launch and bytes."""
    form = variant.form["a_us"] + variant.form["us_per_mb"] * mega
    return np.asarray(form * variant.correction({"mb": mega}))
