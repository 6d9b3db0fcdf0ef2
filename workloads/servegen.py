"""Requests drawn from ServeGen's client models: bursty, shifting over the day, each client its own.

What is drawn, for every client and every window of 600 s apart:
- as many requests as the window's rate says: rate x 600 x rate_scale, and a fraction of a request
  counts as one with that probability. With rate_scale 1 these are the requests that were counted.
- their gaps, from the window's Gamma or Weibull distribution of that shape, one more than there
  are requests, stretched together so that they fill the window. The file's scale, like any other,
  drops out: the published fits miss the window's own rate by up to a factor of a thousand where
  the shape is extreme.
- the lengths of prompt and output, independently, by the probabilities of the window of 6 h.
Each client and window has its own random numbers, so a slice has the requests of the whole, and
another client more changes none of the others'.
"""

# annotations stay objects here, as in workloads.tracefile
import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from workloads import checks, publictraces
from workloads.base import Workload
from workloads.generator import MAX_REQUESTS
from workloads.rules import MAX_S
from workloads.servegen_clients import LENGTHS, Client, read_clients
from workloads.servegen_clients import RATE_WINDOW_S as WINDOW_S
from workloads.streams import stream
from workloads.trace import NANOSECONDS, IntColumn, Trace, TraceError
from workloads.tracefile import check_path

WINDOW_NS = WINDOW_S * NANOSECONDS
PURPOSES = dict(zip(LENGTHS, ("prompt_tokens", "output_tokens"), strict=True))


@dataclass(frozen=True)
class ServeGen(Workload):
    """Requests of ServeGen's client models: path of a folder of chunks, or name of a public trace.

    duration_s and start_s choose the part of the published time; the trace's zero is start_s.
    rate_scale multiplies the rate of every client.
    """

    duration_s: float
    path: str | None = None
    name: str | None = None
    start_s: float = 0.0
    rate_scale: float = 1.0

    kind: ClassVar[str] = "servegen"
    uses_seed: ClassVar[bool] = True

    def __post_init__(self) -> None:
        checks.number("duration_s", self.duration_s, above=True, high=MAX_S)
        checks.number("start_s", self.start_s, high=MAX_S)
        checks.number("rate_scale", self.rate_scale, above=True, high=1e6)
        if (self.path is None) == (self.name is None):
            raise ValueError("path: one of path and name is needed, and only one")
        if self.path is not None:
            check_path(self.path)
        else:
            publictraces.check_name(self.name, self.kind)

    def load(self, seed: int) -> Trace:
        """Draw the requests. Raises TraceError if there are none, or more than 100 million."""
        path = self.path or str(publictraces.find(str(self.name)))
        clients = read_clients(path)
        start_ns, end_ns = self._span_ns()
        self._check(path, clients)
        arrivals: list[IntColumn] = []
        lengths: dict[str, list[IntColumn]] = {name: [] for name in LENGTHS}
        for client, index in self._busy_windows(clients):
            times = window_times(client, index, self.rate_scale, seed)
            inside = (times >= start_ns) & (times < end_ns)
            arrivals.append(times[inside] - start_ns)
            for name in LENGTHS if len(times) else ():
                drawn = window_lengths(client, index, name, len(times), seed)
                lengths[name].append(drawn[inside])
        arrival_ns = np.concatenate([np.empty(0, np.int64), *arrivals])
        if not len(arrival_ns):
            raise TraceError(
                f"{path}: nobody asks in {self.duration_s:g} s from {self.start_s:g} s"
            )
        order = np.argsort(arrival_ns, kind="stable")
        prompt, output = (np.concatenate(lengths[name])[order] for name in LENGTHS)
        notes: Counter[str] = Counter()
        for what, tokens in (("prompt", prompt), ("output", output)):
            notes[f"altered: no {what}, taken as one token"] = int(np.count_nonzero(tokens == 0))
        columns = (arrival_ns[order], np.maximum(prompt, 1), np.maximum(output, 1))
        return Trace(*columns, source=path, notes=+notes)

    def _span_ns(self) -> tuple[int, int]:
        start_ns = round(self.start_s * NANOSECONDS)
        return start_ns, start_ns + round(self.duration_s * NANOSECONDS)

    def _indices(self) -> range:
        """The windows that the span touches."""
        start_ns, end_ns = self._span_ns()
        return range(start_ns // WINDOW_NS, -(-end_ns // WINDOW_NS))

    def _busy_windows(self, clients: Sequence[Client]) -> Iterator[tuple[Client, int]]:
        """The clients with their windows in the span that have a rate."""
        for client in clients:
            for index in self._indices():
                window = client.windows.get(index)
                if window is not None and window.rate > 0:
                    yield client, index

    def _check(self, path: str, clients: Sequence[Client]) -> None:
        """Refuse a span that goes on after the last window, or has too many requests."""
        last = 1 + max(max(client.windows) for client in clients)
        if self._indices().stop > last:
            raise TraceError(
                f"{path}: the windows end at {last * WINDOW_S} s; accepted: start_s and duration_s "
                "that end no later"
            )
        rates = (client.windows[index].rate for client, index in self._busy_windows(clients))
        expected = sum(rates) * WINDOW_S * self.rate_scale
        if expected > MAX_REQUESTS:
            raise TraceError(
                f"{path}: {expected:,.0f} requests; accepted: at most {MAX_REQUESTS:,}, with a "
                "shorter duration_s or a lower rate_scale"
            )


def window_times(client: Client, index: int, rate_scale: float, seed: int) -> IntColumn:
    """When a client asks in a window, in nanoseconds of the published time, in order."""
    rng = stream(seed, "arrivals", client.number, index)
    window = client.windows[index]
    # rates are counts over 600 s, so nearly whole; the rest of the doubles is no request
    expected = round(window.rate * WINDOW_S * rate_scale, 6)
    count = math.floor(expected + rng.random())
    draw = rng.standard_gamma if window.distribution == "Gamma" else rng.weibull
    # tiny, so that gaps which are all 0 as doubles still fill the window
    gaps = draw(window.shape, count + 1) + np.finfo(np.float64).tiny
    reached = np.cumsum(gaps / gaps.max())
    parts = reached[:-1] / reached[-1]
    offsets: IntColumn = np.minimum(np.rint(parts * WINDOW_NS), WINDOW_NS - 1).astype(np.int64)
    return offsets + index * WINDOW_NS


def window_lengths(client: Client, index: int, name: str, count: int, seed: int) -> IntColumn:
    """The lengths of a client's requests in a window, in their order."""
    table = client.lengths(index, name)
    draws = stream(seed, PURPOSES[name], client.number, index).random(count)
    found = np.searchsorted(table.cumulative, draws, side="right")
    return table.tokens[np.minimum(found, len(table.tokens) - 1)]
