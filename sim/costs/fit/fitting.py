"""From tables to the variants of a profile: which form, which corrections, what is left."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from sim.costs.fit.families import Family, sizes_of
from sim.costs.fit.launches import launched
from sim.costs.fit.solve import Bounds, fit_form, fit_grid
from sim.costs.fit.tables import FITTED, Table
from sim.costs.forms import Floats
from sim.costs.grid import Axis
from sim.costs.variants import Variant

# the sizes whose ranges a variant keeps
_HEADS = ("kv_heads", "group", "head_dim")
_RANGES = {
    "decode": ("batch", "kv_len", "kv_mb", *_HEADS),
    "prefill": ("chunks", "queries", "context", "tokens", *_HEADS),
    "mixed": ("chunks", "queries", "context", "decodes", "kv_len", *_HEADS),
    "linear": ("m", "n", "k"),
    "small": ("tokens", "mb"),
}

MIN_ROWS = 20  # with fewer a kernel is left out
MANY_ROWS = 150  # with fewer the decode form goes without some parameters

TILE_ROWS = 64  # query rows of a decode tile in FA2 and FA3

_DECODE = {
    "a_us": Bounds(8, 4, 30),  # not below what a launch of a graph takes of it
    "us_per_wave": Bounds(3, 0.1, 20),
    "wave_power": Bounds(0.95, 0.5, 1),
    "us_per_mb": Bounds(0.3, 0.1, 2),
    "small_factor": Bounds(0.9, 0.3, 2),
    "small_lo_mb": Bounds(40, 1, 200),
    "small_hi_mb": Bounds(300, 201, 600),
    "split_us": Bounds(2, 0, 20),
    "us_per_mq": Bounds(2, 0, 20),
    "us_per_tile_mb": Bounds(0.3, 0, 100),
    "l2_saved": Bounds(0.3, 0, 0.9),
    "l2_lo_mb": Bounds(25, 1, 35),
    "l2_hi_mb": Bounds(60, 36, 150),
    "p": Bounds(1.4, 0.8, 8),
}
_L2 = frozenset({"l2_saved", "l2_lo_mb", "l2_hi_mb"})
_FOR_MANY = frozenset({"wave_power", "us_per_tile_mb", *_L2})
_FOR_FEW = {"a_us": Bounds(8, 1, 30)}
_PREFILL = {
    "a_us": Bounds(9, 1, 30),
    "us_per_mflop": Bounds(0.002, 0.0005, 0.05),
    "lost_keys": Bounds(150, 0, 1000),
    "us_per_block": Bounds(1.3, 0.01, 10),
    "us_per_wave": Bounds(0.2, 0, 10),
    "us_per_mb": Bounds(0.4, 0, 3),
    "p": Bounds(1.8, 0.9, 12),
}
_MIXED = {
    "a_us": Bounds(9, 1, 30),
    "us_per_mflop": Bounds(0.008, 0.0005, 0.05),
    "lost_keys": Bounds(150, 0, 1000),
    "us_per_mkey": Bounds(120, 1, 1000),
    "us_per_block": Bounds(1.3, 0.01, 10),
    "us_per_wave": Bounds(0.2, 0, 20),
    "p": Bounds(1.8, 0.9, 12),
}
_LINEAR = {
    "a_us": Bounds(4, 0.5, 30),
    "us_per_mflop": Bounds(0.0013, 0.0003, 0.05),
    "us_per_mb": Bounds(0.25, 0.1, 2),
    "p": Bounds(3, 0.9, 12),
}
_SMALL = {"a_us": Bounds(3, 0.1, 100), "us_per_mb": Bounds(0.5, 0.001, 100)}
_BOUNDS = {
    "decode": _DECODE,
    "prefill": _PREFILL,
    "mixed": _MIXED,
    "linear": _LINEAR,
    "small": _SMALL,
}
_STARTS: dict[str, Sequence[Mapping[str, float]]] = {
    "decode": ({}, {"small_lo_mb": 60, "small_factor": 1.3}),
    "linear": ({}, {"p": 1.3, "us_per_mflop": 0.004, "us_per_mb": 0.6}),
}

# nodes on base-2 logarithms: (axis, low, step, count); a second table takes what the first leaves
_GRIDS = {
    "decode": (
        (("tiles", 0, 1, 15), ("kv_len", 4, 1, 14), ("group", 0, 1, 7)),
        (("batch", 0, 1, 12), ("kv_len", 4, 1, 14), ("kv_heads", 0, 1.5, 3), ("group", 0, 2, 4)),
    ),
    "prefill": (
        (("tiles", 0, 1, 15), ("queries", 4, 1, 11), ("group", 0, 1, 7)),
        (("chunks", 0, 1, 9), ("queries", 4, 1, 11), ("kv_heads", 0, 1.5, 3), ("group", 0, 2, 4)),
    ),
    "linear": ((("m", 0, 0.5, 31), ("n", 8, 1, 9), ("k", 8, 1, 9)),),
    "small": ((("mb", -8, 1, 18),),),
}
_FEW_GRIDS = {
    "decode": ((("batch", 0, 1, 9), ("kv_len", 4, 1, 12)),),
    "prefill": ((("queries", 4, 1, 9), ("context", 0, 2, 8)),),
    "linear": ((("m", 0, 0.5, 23), ("n", 8, 1, 10), ("k", 8, 1, 7)),),
}
FEW_HEADS = 8  # configurations of heads, or shapes of linears, below which tables have fewer axes


def bounds_for(variant: Variant, family: str, sms: int, num_rows: int) -> dict[str, Bounds]:
    """Where the parameters of a form lie; what a kernel's code or the GPU fixes is fixed.

    Without those that few rows cannot tell, and what L2 gave if it was cleared.
    """
    bounds = dict(_BOUNDS[family])
    fixed: dict[str, float] = {}
    if family == "decode":
        launch = launched(variant.name)
        fixed["tile_rows"] = float(launch.tile_rows if launch else TILE_ROWS)
        is_few, is_cold = num_rows < MANY_ROWS, variant.facts.get("l2") == "cold"
        left_out = _FOR_MANY if is_few else _L2 if is_cold else frozenset()
        bounds = {key: bound for key, bound in bounds.items() if key not in left_out}
        bounds |= _FOR_FEW if is_few else {}
    if family in {"decode", "prefill", "mixed"}:
        fixed["sms"] = float(sms)
    return bounds | {key: Bounds(value, value, value) for key, value in fixed.items()}


def fit_variants(family: Family, table: Table, sms: int) -> dict[str, Variant]:
    """One variant for every kernel in the table's rows of this family."""
    chosen = table.where(family.chosen(table.rows))
    names = family.names(chosen.rows).to_numpy()
    found = {}
    for name in dict.fromkeys(names.tolist()):
        own = chosen.where(names == name)
        if (own.kept == FITTED).sum() >= MIN_ROWS:
            found[name] = fit_variant(family, name, own, sms)
    return found


def fit_variant(family: Family, name: str, table: Table, sms: int) -> Variant:
    """Fit one kernel to the rows that are not kept out, and find its errors on those that are."""
    train = table.where(table.kept == FITTED)
    us = train.rows[family.time].to_numpy(np.float64)
    shape = Variant(name, {}, facts=family.facts(train.rows), valid=_ranges(family, train))
    form = fit_form(
        lambda parameters: family.predict(replace(shape, form=parameters), train.rows),
        us,
        bounds_for(shape, family.family, sms, len(us)),
        _STARTS.get(family.family, ({},)),
    )
    plain = replace(shape, form=form)
    variant, left_out = add_grids(family, plain, train, us)
    errors: dict[str, Any] = {"rows_fitted": len(us), **errors_of(family, plain, variant, table)}
    if left_out is not None:
        errors["leave_one_out"] = percent(np.expm1(left_out))
    return replace(variant, errors=errors)


def _ranges(family: Family, table: Table) -> dict[str, tuple[float, float]]:
    sizes = sizes_of(family, table.rows)
    names = [name for name in _RANGES[family.family] if name in sizes]
    return {name: (float(sizes[name].min()), float(sizes[name].max())) for name in names}


def add_grids(
    family: Family, variant: Variant, table: Table, us: Floats
) -> tuple[Variant, Floats | None]:
    """The variant with its tables, and the logarithms that each row would be missed by without it.

    Leave-one-out is that of the last table, given the ones before it.
    """
    sizes = sizes_of(family, table.rows)
    launch = launched(variant.name) if family.family == "decode" else None
    left = np.log(us / family.predict(variant, table.rows))
    left_out = None
    for spec in (launch and launch.tables) or _usual_grids(family, sizes):
        axes = [Axis(*axis) for axis in spec]
        fitted = fit_grid(axes, [sizes[axis.name] for axis in axes], left)
        left, left_out = fitted.left, fitted.left_out
        variant = replace(variant, grids=(*variant.grids, fitted.grid))
    return variant, left_out


def _usual_grids(
    family: Family, sizes: Mapping[str, Floats]
) -> Sequence[Sequence[tuple[str, float, float, int]]]:
    """The tables of a family; with fewer axes where few shapes were measured."""
    usual = _GRIDS.get(family.family, ())
    is_few = _num_shapes(family, sizes) < FEW_HEADS
    return _FEW_GRIDS.get(family.family, usual) if is_few else usual


def _num_shapes(family: Family, sizes: Mapping[str, Floats]) -> int:
    names = ("n", "k") if family.family == "linear" else ("kv_heads", "group")
    columns = [sizes[name] for name in names if name in sizes]
    return len(np.unique(np.column_stack(columns), axis=0)) if columns else 1


def errors_of(
    family: Family, plain: Variant, variant: Variant, table: Table
) -> dict[str, dict[str, float]]:
    """Errors on rows kept out, by kind: of the closed form alone, and with its tables."""
    found: dict[str, dict[str, float]] = {}
    for kind in sorted({str(kind) for kind in table.kept} - {FITTED}):
        own = table.where(table.kept == kind)
        us = own.rows[family.time].to_numpy(np.float64)
        cells = {"rows": len(us), "mape": percent(family.predict(variant, own.rows) / us - 1)}
        if variant.grids:
            cells["closed_form_mape"] = percent(family.predict(plain, own.rows) / us - 1)
        found[kind] = cells
    return found


def percent(relative: Floats) -> float:
    """The mean absolute value in percent, to hundredths."""
    return round(float(100 * np.mean(np.abs(relative))), 2)
