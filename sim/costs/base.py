"""The cost-model contract: how long an iteration takes, from the composition of its batch alone.

Inside the simulation time is an integer count of nanoseconds; an iteration of s seconds takes
max(1, round(s * 1e9)) of them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar, TypeVar

import numpy as np

from sim.batch import next_decode
from sim.jit import compiled
from sim.sequence import IntArray

Number = TypeVar("Number", int, float)
MAX_S = 1e9  # of an iteration, 31 years; nanoseconds of far more fit in a column


class CostModel(ABC):
    """Base of all cost models.

    To write one, define `kind` and `source`, take the configuration in the constructor (raise
    ValueError with a message that starts with the parameter's name) and implement
    `iteration_s`, which is then called once an iteration. It must not decrease in kv_tokens at
    a fixed batch, nor in the batch at fixed lengths.
    """

    kind: ClassVar[str]
    source: str = "not stated"
    """Where the times come from: measured, fitted (to what) or assumed."""
    from_hardware: ClassVar[Mapping[str, str]] = {}
    """Constructor parameters that default to a fact of the experiment's model, device or allocator.

    The values name it: "model.weights_bytes", "device.memory_gb_s" (see sim.hardware.by_name), or a
    parameter of the allocator, "allocator.block_size", which is None where it has none.
    """
    files: ClassVar[tuple[str, ...]] = ()
    """Parameters that may be the path of a .yaml, which starts at the experiment's folder."""
    counts_extrapolation: ClassVar[bool] = False
    """Whether iterations outside of what the times were measured at are counted: see passed."""
    notes: tuple[str, ...] = ()
    """What is worth knowing of its times before a run, one line each."""
    errors: tuple[str, ...] = ()
    """How far its times are off what was measured, one line each; none if that is not known."""
    warnings: tuple[str, ...] = ()
    """What of the model the times do not fit, in sentences."""

    @abstractmethod
    def iteration_s(self, batch: IntArray) -> float:
        """Seconds of the iteration that batch describes (cells: see sim.batch)."""

    def _known(self, name: str, value: Number | None) -> Number:
        """A parameter of from_hardware that cannot be left open. Raises ValueError."""
        if value is None:
            owner = self.from_hardware[name].partition(".")[0]
            raise ValueError(
                f"{name}: is not known; accepted: a number here, or a {owner} that has it"
            )
        if not 0 < value < 1e18:
            raise ValueError(f"{name}: must be above 0 and below 1e18, got {value}")
        return value

    def passed(self, batch: IntArray, count: int) -> None:  # noqa: B027 - most models do not count
        """Count iterations have passed: batch's own, and count - 1 in which it went on decoding.

        Called only where counts_extrapolation is set.
        """

    def extrapolated(self) -> dict[str, int]:
        """How many iterations were outside of what was measured, by what was outside."""
        return {}

    def plan(
        self, batch: IntArray, boundaries: IntArray, num_iterations: int, until_ns: int
    ) -> int:
        """Time an iteration, and up to num_iterations - 1 more in which its sequences decode.

        boundaries[0] is the start; boundaries[i] receives the end of iteration i - 1. Stops
        after the first iteration that ends at until_ns or later, and where boundaries is full.
        Returns how many were planned; batch stays as it is. Raises ValueError if iteration_s
        gives what is no time.
        """
        batch = batch.copy()
        num_iterations = min(num_iterations, len(boundaries) - 1)
        for i in range(num_iterations):
            if i > 0:
                next_decode(batch)
            boundaries[i + 1] = boundaries[i] + self._checked_ns(self.iteration_s(batch))
            if boundaries[i + 1] >= until_ns:
                return i + 1
        return num_iterations

    def _checked_ns(self, seconds: Any) -> int:
        """Nanoseconds of what iteration_s, which may be anybody's, has given."""
        is_number = isinstance(seconds, int | float | np.number) and not isinstance(seconds, bool)
        if not is_number or not 0 <= seconds < MAX_S:
            accepted = f"accepted: seconds from 0 to {MAX_S:g}"
            raise ValueError(f"{self.kind}: iteration_s gives {seconds!r}; {accepted}")
        return to_ns(float(seconds))


@compiled
def to_ns(seconds: float) -> int:
    """Whole nanoseconds, at least 1; halves go to the even neighbour."""
    return max(1, round(seconds * 1e9))
