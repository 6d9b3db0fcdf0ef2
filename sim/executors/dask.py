"""Runs on a Dask cluster, through distributed's client.

The cluster makes again what a killed worker had under way, and what it had made that was not
fetched. A trace is itself the result of a task, and so is made again too.
"""

from __future__ import annotations

import pickle
import warnings
from contextlib import suppress
from typing import Any

from distributed import CancelledError, Client, KilledWorker, as_completed

from sim.executors.base import ExecutorError
from sim.executors.cluster import REACH_S, Cluster, Lost, one_line
from sim.executors.worker import Made, Order, carry_out
from workloads.trace import Trace

CLOSE_S = 2.0


class DaskCluster(Cluster):
    """A Dask scheduler at HOST:PORT, and the workers that it has or gets."""

    scheme = "dask"

    def __init__(self, address: str) -> None:
        super().__init__(address)
        self._client: Any = None
        self._ended: Any = None
        self._numbers: dict[str, int] = {}

    def connect(self) -> None:
        try:
            with self.reach() as listener:  # who says nothing would be waited for without end
                listener.recv(1)
            self._client = Client(f"tcp://{self.address}", timeout=REACH_S, set_as_default=False)
        except (OSError, ValueError) as error:
            raise ExecutorError(f"{self.where}: is no Dask scheduler: {one_line(error)}") from None
        self._ended = as_completed(loop=self._client.loop)

    def num_slots(self) -> int:
        try:
            return sum(self._client.nthreads().values())
        except OSError as error:
            raise self.gone(error) from None

    def share(self, trace: Trace) -> Any:
        with warnings.catch_warnings(action="ignore"):  # advice against tasks with much data
            return self._client.submit(pickle.loads, pickle.dumps(trace), pure=False)

    def submit(self, number: int, order: Order, shared: Any) -> None:
        future = self._client.submit(carry_out, order, shared, pure=False)
        self._numbers[future.key] = number
        self._ended.add(future)

    def next_ended(self) -> tuple[int, Made | Lost]:
        future = next(self._ended)
        number = self._numbers.pop(future.key)
        try:
            return number, future.result()
        except KilledWorker:
            return number, Lost("the workers that made it were killed, perhaps for want of memory")
        except (CancelledError, OSError) as error:
            raise self.gone(error) from None
        except Exception as error:
            raise self.cannot_make(error) from None

    def close(self) -> None:
        if self._client is None:
            return
        with suppress(Exception):  # the scheduler may be gone
            self._client.close(CLOSE_S)
        self._client = None
