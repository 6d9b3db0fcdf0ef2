"""A workload at another rate: the times between its requests longer or shorter."""

# annotations stay objects here, as in tracefile
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from workloads import checks
from workloads.base import WORKLOADS, Workload
from workloads.generator import MAX_REQUESTS
from workloads.join import rows_of
from workloads.streams import stream
from workloads.trace import MAX_NS, NANOSECONDS, Trace, TraceError


@dataclass(frozen=True)
class Stretch(Workload):
    """A workload at another rate: all times between its requests made longer or shorter.

    workload is the one that is stretched, {kind: …}.
    rate is requests per second: m requests have the rate that gives them their m - 1 gaps. The
    first arrives at 0. How long a user thinks before a follow-up stays as it is.
    num_requests keeps so many requests in a row, from a place that the seed draws; all are kept if
    it is left out, or if there are no more. What is kept has the rate, were it from a busy hour.
    """

    workload: Mapping[str, object]
    rate: float
    num_requests: int | None = None

    kind: ClassVar[str] = "stretch"
    uses_seed: ClassVar[bool] = True
    nested: ClassVar[Mapping[str, Mapping[str, type]]] = {"workload": WORKLOADS}

    def __post_init__(self) -> None:
        checks.build("workload", self.workload, WORKLOADS)
        checks.number("rate", self.rate, above=True)
        if self.num_requests is not None:
            checks.whole("num_requests", self.num_requests, 1, MAX_REQUESTS)

    def load(self, seed: int) -> Trace:
        """The requests. Raises TraceError if all of them arrive at one time."""
        rows = rows_of(checks.build("workload", self.workload, WORKLOADS).load(seed))
        if self.num_requests is not None and self.num_requests < len(rows):
            places = len(rows) - self.num_requests + 1
            rows.limit(self.num_requests, int(stream(seed, "combined").integers(places)))
        times = rows.fields["arrival_ns"]
        span_ns = int(times[-1] - times[0])
        if not span_ns:
            raise TraceError(
                f"{rows.source}: all requests arrive at one time; a rate needs gaps between them"
            )
        factor = (len(rows) - 1) * NANOSECONDS / self.rate / span_ns
        if span_ns * factor > MAX_NS:
            raise TraceError(f"{rows.source}: lasts more than 146 years at {self.rate:g} a second")
        rows.fields["arrival_ns"] = np.rint((times - times[0]) * factor).astype(np.int64)
        return rows.to_trace()
