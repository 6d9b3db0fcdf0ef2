"""A table of corrections over the logarithms of sizes: what a closed form leaves, interpolated."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

SCALE = 1000  # a stored cell is a whole number of thousandths of a logarithm


@dataclass(frozen=True)
class Axis:
    """Nodes at low, low + step, … of the base-2 logarithm of a size."""

    name: str
    low: float
    step: float
    count: int

    def place(self, sizes: Floats) -> tuple[NDArray[np.intp], Floats]:
        """The node below each size, and how far it is to the next; the ends go on flat."""
        x = (np.log2(np.maximum(sizes, 1e-9)) - self.low) / self.step
        x = np.clip(x, 0, self.count - 1)
        below = np.minimum(np.floor(x), max(self.count - 2, 0)).astype(np.intp)
        return below, x - below


@dataclass(frozen=True)
class Grid:
    """Factors on a form: exp of the multilinear interpolation of values between nodes."""

    axes: tuple[Axis, ...]
    values: Floats

    def factor(self, sizes: Sequence[Floats]) -> Floats:
        """The factor at each point; sizes are one array an axis, of one shape."""
        total = np.zeros(np.broadcast_shapes(*(np.shape(size) for size in sizes)))
        flat = self.values.ravel()
        for index, weight in corners(self.axes, sizes):
            total = total + flat[index] * weight
        return np.asarray(np.exp(total))

    def to_data(self) -> dict[str, Any]:
        """Plain data; values are rounded to thousandths, one line of text a row of the table."""
        rows = np.rint(self.values * SCALE).astype(int).reshape(-1, self.axes[-1].count)
        axes = [[axis.name, axis.low, axis.step, axis.count] for axis in self.axes]
        return {"axes": axes, "thousandths": [" ".join(map(str, row)) for row in rows.tolist()]}

    @classmethod
    def from_data(cls, data: Mapping[str, Any]) -> Grid:
        axes = tuple(Axis(*axis) for axis in data["axes"])
        cells = np.array(" ".join(data["thousandths"]).split(), np.float64) / SCALE
        return cls(axes, cells.reshape([axis.count for axis in axes]))


def corners(axes: Sequence[Axis], sizes: Sequence[Floats]) -> list[tuple[NDArray[np.intp], Floats]]:
    """The nodes around each point, as flat indices, and their weights, which add to 1."""
    found: list[tuple[NDArray[np.intp], Floats]] = [
        (np.intp(0) * np.ones((), np.intp), np.ones(()))
    ]
    for axis, size in zip(axes, sizes, strict=True):
        below, share = axis.place(size)
        above = np.minimum(below + 1, axis.count - 1)
        found = [
            (index * axis.count + node, weight * part)
            for index, weight in found
            for node, part in ((below, 1 - share), (above, share))
        ]
    return found
