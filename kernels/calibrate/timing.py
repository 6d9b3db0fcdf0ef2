"""Timing on a GPU: many launches in one CUDA graph, each on another slice of memory, replayed
between two events."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from kernels.calibrate.works import Step

REPLAYS, WARMUPS = 8, 2
MAX_SPREAD = 0.04  # (p90 - p10) / median; beyond it the point is timed once more


@dataclass(frozen=True)
class Timing:
    """Microseconds a launch: median, minimum and percentiles over replays."""

    us: float
    us_min: float
    us_p10: float
    us_p90: float
    per_graph: int
    replays: int

    @property
    def spread(self) -> float:
        return (self.us_p90 - self.us_p10) / self.us


def summarise(times_us: list[float], per_graph: int) -> Timing:
    """Statistics of replays of `per_graph` launches each."""
    each = np.array(times_us) / per_graph
    low, high = np.percentile(each, [10, 90])
    return Timing(
        float(np.median(each)), float(each.min()), float(low), float(high), per_graph, len(each)
    )


class GraphTimer:
    """Times on the current GPU. Clocks are left as they are."""

    def __init__(self) -> None:
        self.stream = torch.cuda.Stream()

    def warm(self, sets: list[list[Step]]) -> list[Any]:
        """Run one set eagerly, which compiles what is not compiled yet; returns the compiled
        kernels."""
        torch.cuda.synchronize()  # the tensors were filled on another stream
        with torch.cuda.stream(self.stream):
            compiled = [step() for step in sets[0]]
        self.stream.synchronize()
        return compiled

    def graph(self, sets: list[list[Step]], count: int) -> Timing:
        """`count` launches a replay, going round the sets."""
        self.warm(sets)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.stream(self.stream):
            graph.capture_begin()
            try:
                for i in range(count):
                    for step in sets[i % len(sets)]:
                        step()
            finally:  # a capture left open would fail every later point
                graph.capture_end()
            timing = self._replay(graph.replay, count)
            if timing.spread > MAX_SPREAD:
                again = self._replay(graph.replay, count)
                timing = min(timing, again, key=lambda t: t.spread)
        return timing

    def eager(self, sets: list[list[Step]], count: int) -> Timing:
        """The same without a graph: what a launch costs when Python issues it."""
        self.warm(sets)

        def run() -> None:
            for i in range(count):
                for step in sets[i % len(sets)]:
                    step()

        with torch.cuda.stream(self.stream):
            return self._replay(run, count)

    def _replay(self, run: Step, count: int) -> Timing:
        for _ in range(WARMUPS):
            run()
        times = []
        for _ in range(REPLAYS):
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            begin.record(self.stream)
            run()
            end.record(self.stream)
            end.synchronize()
            times.append(begin.elapsed_time(end) * 1000.0)
        return summarise(times, count)
