"""What all generated workloads share: arrivals from a process, and independent random streams."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import numpy as np

from workloads import checks
from workloads.arrivals import ARRIVALS, ArrivalProcess
from workloads.base import Workload
from workloads.trace import IntColumn

MAX_REQUESTS = 100_000_000


class Generator(Workload):
    """A workload with generated arrivals. Subclasses have a parameter arrivals: {kind: …}."""

    uses_seed: ClassVar[bool] = True
    nested: ClassVar[Mapping[str, Mapping[str, type]]] = {"arrivals": ARRIVALS}

    arrivals: Mapping[str, object]

    def process(self) -> ArrivalProcess:
        """The arrival process. Raises ValueError "arrivals.<parameter>: …"."""
        return checks.build("arrivals", self.arrivals, ARRIVALS)

    def arrival_times_ns(self, num_requests: int, seed: int) -> IntColumn:
        """Times of arrival; the lengths of the same seed come from another stream."""
        return self.process().times_ns(num_requests, stream(seed, "arrivals"))


STREAMS = {"arrivals": 0, "lengths": 1, "prompt_tokens": 2, "output_tokens": 3}


def stream(seed: int, purpose: str, *parts: int) -> np.random.Generator:
    """The random numbers of one seed for one purpose, or for one of its numbered parts.

    Purposes do not share a stream, so another arrival process leaves the lengths as they were.
    """
    sequence = np.random.SeedSequence(seed, spawn_key=(STREAMS[purpose], *parts))
    return np.random.Generator(np.random.PCG64(sequence))
