"""From a point of the grid to the launches that are timed, for single kernels and whole layers."""

from __future__ import annotations

from collections.abc import Callable

from kernels.calibrate.layer import layer_work
from kernels.calibrate.points import Point
from kernels.calibrate.pool import Pool
from kernels.calibrate.transfers import TRANSFERS
from kernels.calibrate.works import PARTS, Work

BUILDERS: dict[str, Callable[[Point, Pool], Work]] = {
    **PARTS,
    **TRANSFERS,
    "layer": layer_work,
}


def build(point: Point, pool: Pool) -> Work:
    """The launches of a point; nothing is run."""
    return BUILDERS[point.kernel](point, pool)
