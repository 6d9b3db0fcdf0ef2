"""Runs on a Ray cluster, through Ray's client (ray://).

The cluster makes again what a killed worker process had under way. It keeps a trace once a node;
a worker process opens it once.
"""

from __future__ import annotations

from contextlib import suppress
from functools import lru_cache
from typing import Any

import ray
import ray.util.client  # or what it needs would be missed only when it connects
from ray.exceptions import OutOfMemoryError, RayTaskError, WorkerCrashedError

from sim.executors.base import ExecutorError
from sim.executors.cluster import Cluster, Lost, one_line
from sim.executors.worker import Made, Order, carry_out
from workloads.trace import Trace

MAX_RETRIES = 3  # of a run whose worker process was killed
MAX_OPEN = 2  # traces that a worker process keeps: of two groups, runs may alternate


class RayCluster(Cluster):
    """A Ray cluster whose head listens for clients at HOST:PORT; a run takes one CPU."""

    scheme = "ray"

    def __init__(self, address: str) -> None:
        super().__init__(address)
        self._is_connected = False
        self._carry_out: Any = None
        self._numbers: dict[Any, int] = {}

    def connect(self) -> None:
        try:
            ray.init(self.where, log_to_driver=False)
        except (ConnectionError, RuntimeError, ValueError) as error:
            raise ExecutorError(
                f"{self.where}: no Ray cluster answers: {one_line(error)}"
            ) from None
        self._is_connected = True
        self._carry_out = ray.remote(num_cpus=1, max_retries=MAX_RETRIES)(_carry_out)

    def num_slots(self) -> int:
        try:
            return int(ray.cluster_resources().get("CPU", 0))
        except Exception as error:
            raise self.gone(error) from None

    def share(self, trace: Trace) -> Any:
        return ray.put(trace)

    def submit(self, number: int, order: Order, shared: Any) -> None:
        # in a list, so that the worker fetches the trace, once, instead of Ray for every run
        self._numbers[self._carry_out.remote(order, [shared])] = number

    def next_ended(self) -> tuple[int, Made | Lost]:
        try:
            (reference,), _ = ray.wait(list(self._numbers), num_returns=1)
            number = self._numbers.pop(reference)
            return number, ray.get(reference)
        except (WorkerCrashedError, OutOfMemoryError):
            return number, Lost("the workers that made it were killed, perhaps for want of memory")
        except RayTaskError as error:
            raise self.cannot_make(error.cause) from None
        except Exception as error:
            raise self.gone(error) from None

    def close(self) -> None:
        if not self._is_connected:
            return
        self._numbers.clear()
        with suppress(Exception):  # the cluster may be gone
            ray.shutdown()
        self._is_connected = False


def _carry_out(order: Order, shared: list[Any]) -> Made:
    """Make a run, in a worker process of Ray's."""
    return carry_out(order, _opened(shared[0]))


@lru_cache(maxsize=MAX_OPEN)
def _opened(reference: Any) -> Trace:
    trace: Trace = ray.get(reference)
    return trace
