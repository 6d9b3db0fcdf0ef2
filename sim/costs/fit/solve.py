"""Least squares: parameters of a form, and tables of what it leaves."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from sim.costs.forms import Floats
from sim.costs.grid import Axis, Grid, corners

Predict = Callable[[Mapping[str, float]], Floats]

OUTLIER = 0.05  # of a logarithm: beyond it a row pulls with constant force
SMOOTHING = 0.1  # how much neighbouring nodes of a table hold on to each other, in rows
SHRINKING = 0.02  # how much a node holds on to 0, in rows


@dataclass(frozen=True)
class Bounds:
    """Where a parameter starts, and its limits; fixed if both are the start."""

    start: float
    low: float
    high: float


def fit_form(
    predict: Predict,
    us: Floats,
    bounds: Mapping[str, Bounds],
    starts: Sequence[Mapping[str, float]],
) -> dict[str, float]:
    """Parameters that make predict(parameters) nearest to us, by ratio; the best of all starts."""
    from scipy.optimize import least_squares  # noqa: PLC0415 - scoring works without scipy

    free = [name for name, bound in bounds.items() if bound.low < bound.high]
    fixed = {name: bound.start for name, bound in bounds.items() if name not in free}
    limits = [[bounds[n].low for n in free], [bounds[n].high for n in free]]
    logs = np.log(us)

    def residuals(values: Floats) -> Floats:
        return np.asarray(np.log(predict({**fixed, **dict(zip(free, values, strict=True))})) - logs)

    best = None
    for start in starts:
        first = np.array([start.get(name, bounds[name].start) for name in free])
        found = least_squares(
            residuals, first, bounds=limits, loss="soft_l1", f_scale=OUTLIER, x_scale=first + 1e-9
        )
        if best is None or found.cost < best.cost:
            best = found
    assert best is not None
    found_values = dict(zip(free, (float(value) for value in best.x), strict=True))
    return {name: fixed.get(name, found_values.get(name, 0.0)) for name in bounds}


@dataclass(frozen=True)
class FittedGrid:
    """A table, what it leaves of the logarithms, and what it would leave of each row without it."""

    grid: Grid
    left: Floats
    left_out: Floats


def fit_grid(axes: Sequence[Axis], sizes: Sequence[Floats], logs: Floats) -> FittedGrid:
    """The smooth table over axes nearest to logs: ridge regression on its nodes.

    left_out is exact leave-one-out, from the leverages of the rows.
    """
    from scipy import linalg, sparse  # noqa: PLC0415 - as above

    shape = [axis.count for axis in axes]
    count, nodes = len(logs), int(np.prod(shape))
    found = [
        (np.broadcast_to(index, count), np.broadcast_to(weight, count))
        for index, weight in corners(axes, sizes)
    ]
    rows = np.tile(np.arange(count), len(found))
    columns, weights = (np.concatenate([pair[i] for pair in found]) for i in (0, 1))
    design = sparse.csr_matrix((weights, (rows, columns)), shape=(count, nodes))
    normal = (design.T @ design).toarray() + _penalty(shape)
    inverse = linalg.inv(normal, overwrite_a=True, check_finite=False)
    values = inverse @ (design.T @ logs)
    leverage = np.zeros(count)
    for index, weight in found:  # a row has few nodes, so its leverage has few terms
        for other, share in found:
            leverage += weight * share * inverse[index, other]
    left = logs - design @ values
    grid = Grid(tuple(axes), np.clip(values, -5, 5).reshape(shape))
    return FittedGrid(grid, left, left / np.maximum(1 - leverage, 0.01))


def _penalty(shape: Sequence[int]) -> Floats:
    """What ridge regression adds: neighbours differ little, and nodes are near 0."""
    nodes = int(np.prod(shape))
    penalty = SHRINKING * np.eye(nodes)
    ids = np.arange(nodes).reshape(shape)
    for axis, length in enumerate(shape):
        low = np.take(ids, np.arange(length - 1), axis).ravel()
        high = np.take(ids, np.arange(1, length), axis).ravel()
        np.add.at(penalty, (low, low), SMOOTHING)
        np.add.at(penalty, (high, high), SMOOTHING)
        np.add.at(penalty, (low, high), -SMOOTHING)
        np.add.at(penalty, (high, low), -SMOOTHING)
    return penalty
