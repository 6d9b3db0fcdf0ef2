"""What all generated workloads share: arrivals from a process."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from workloads import checks
from workloads.arrivals import ARRIVALS
from workloads.base import Workload
from workloads.process import ArrivalProcess
from workloads.streams import stream
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
