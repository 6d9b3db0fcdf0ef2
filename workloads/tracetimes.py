"""The times of a trace, at its own rate or at another."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import numpy as np

from workloads import checks
from workloads.formats import open_file
from workloads.origin import check_origin, locate
from workloads.process import ArrivalProcess
from workloads.rules import MAX_S
from workloads.trace import MAX_NS, NANOSECONDS, IntColumn, TraceError


@dataclass(frozen=True)
class TraceTimes(ArrivalProcess):
    """When the requests of a trace arrived, at its rate or another, counted from its first one.

    path is the file, or name that of a public trace; its format is recognized. Requests without
    tokens have arrived, too.
    rate is requests per second, the trace's own if it is left out. A trace of m requests has the
    rate that gives it its m - 1 gaps, and lasts one mean gap longer than to its last request.
    how is "resample" or "stretch". To resample leaves the gaps of bursts as they are: at a lower
    rate each request is kept by chance; at a higher one, copies of the trace are laid over it, each
    shifted by a random time and wrapped around the end, the last of them thinned. To stretch
    makes all gaps longer or shorter.
    shift_s is the longest shift in seconds, the whole trace if it is left out; a short one keeps
    slow patterns such as the time of day, but copies then agree about them.
    repeat begins again at the end of the trace when more requests are wanted, with other chances;
    without it that is refused.
    """

    path: str | None = None
    rate: float | None = None
    how: Literal["resample", "stretch"] = "resample"
    shift_s: float | None = None
    repeat: bool = False
    name: str | None = None

    kind: ClassVar[str] = "trace_times"

    def __post_init__(self) -> None:
        check_origin(self.path, self.name)
        if self.rate is not None:
            checks.number("rate", self.rate, above=True)
        checks.one_of("how", self.how, ["resample", "stretch"])
        if self.shift_s is not None:
            checks.number("shift_s", self.shift_s, high=MAX_S)
        if not isinstance(self.repeat, bool):
            raise ValueError(f"repeat: must be true or false, got {self.repeat!r}")

    def times_ns(self, num_requests: int, rng: np.random.Generator) -> IntColumn:
        own, period = self._own_times()
        factor = 1.0 if self.rate is None else self.rate * period / NANOSECONDS / len(own)
        copies = factor
        if self.how == "stretch":
            own, period = np.rint(own / factor).astype(np.int64), max(1, round(period / factor))
            copies = 1.0
        offset_rng, coin_rng = rng.spawn(2)
        longest = period if self.shift_s is None else round(self.shift_s * NANOSECONDS)
        offsets = (offset_rng.random(int(np.ceil(copies))) * longest).astype(np.int64)
        offsets[0] = 0
        passes: list[IntColumn] = []
        count = begin = 0
        while count < num_requests:
            if begin > MAX_NS - period or (passes and not self.repeat):
                raise TraceError(
                    f"{self.path or self.name}: has {count} times at {factor:g} × its rate; "
                    "accepted: at most so many requests, or repeat: true for up to 146 years"
                )
            passes.append(begin + one_pass(own, period, copies, offsets, coin_rng))
            count, begin = count + len(passes[-1]), begin + period
        return np.concatenate([np.empty(0, np.int64), *passes])[:num_requests]

    def _own_times(self) -> tuple[IntColumn, int]:
        """The trace's times from 0 on, and how long it lasts. Raises TraceError without gaps."""
        # only times matter: who came without tokens came, too
        file = replace(open_file(locate(self.path, self.name)), zero_tokens="one")
        times = file.load(seed=0).arrival_ns
        span = int(times[-1] - times[0])
        if not span:
            raise TraceError(
                f"{self.path or self.name}: all requests arrive at one time; a rate needs gaps"
            )
        return times - times[0], span + max(1, round(span / (len(times) - 1)))


def one_pass(
    own: IntColumn, period: int, copies: float, offsets: IntColumn, rng: np.random.Generator
) -> IntColumn:
    """The times of so many copies of a trace laid over each other, the last one thinned."""
    found = []
    for number, offset in enumerate(offsets.tolist()):
        share = min(1.0, copies - number)
        kept = own if share == 1.0 else own[rng.random(len(own)) < share]
        found.append((kept + offset) % period)
    return np.sort(np.concatenate(found))
