"""What executors that use a cluster do; how, the client of each cluster says.

The machine that asks reads traces, finds what is done, sends the rest, and writes what comes back.
A trace is sent when the first of its runs is, and forgotten when its last run has ended. A few runs
a worker are under way at a time: enough that no worker waits, few enough that nothing piles up.
"""

from __future__ import annotations

import logging
import socket
import time
import warnings
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from sim.executors.base import Ended, Executor, ExecutorError, Numbered
from sim.executors.worker import Made, Order
from sim.results import files as results
from sim.runs.runner import Due, Work, failed, look_up, run_folder
from workloads.trace import Trace

PER_SLOT = 3  # runs under way a worker slot: one is made, the next is there, one is on its way
REACH_S = 10.0  # how long to wait for whoever listens at the address
WORKERS_S = 30.0  # and for the first worker


class Lost(NamedTuple):
    """A run that a cluster gave up, and why."""

    reason: str


class Sent(NamedTuple):
    """A run that a cluster has, and the trace that it has for it."""

    order: Order
    shared: Any


class Cluster(Executor):
    """A cluster that is there. A subclass says how its client is used, and closes what it opened.

    scheme is also the name of the extra.
    """

    scheme: str

    def __init__(self, address: str) -> None:
        self.address, self.where = address, f"{self.scheme}://{address}"
        self._place = self._host_and_port()
        self._under_way: dict[int, Sent] = {}
        self._lost: dict[int, Sent] = {}

    def ended(self, groups: Iterable[Sequence[Numbered]], work: Work) -> Ended:
        """Raises ResultsError if files cannot be written, ExecutorError if runs cannot be made."""
        with _quiet():
            self.reach().close()
            try:
                with warnings.catch_warnings(action="ignore"):
                    self.connect()
                self._wait_for_workers()
                for group in groups:
                    yield from self._send(group, work)
                while self._under_way:
                    yield from self._next(work)
                # a run that kills its worker takes down those that wait there: alone, they end
                while self._lost:
                    self._submit(*self._lost.popitem())
                    yield from self._next(work, is_alone=True)
            finally:
                self.close()

    @abstractmethod
    def connect(self) -> None:
        """Connect to the cluster. Raises ExecutorError if it does not answer."""

    @abstractmethod
    def num_slots(self) -> int:
        """How many runs the workers that are there now can make at a time. Raises as next_ended."""

    @abstractmethod
    def share(self, trace: Trace) -> Any:
        """Give the cluster a trace, which it keeps while the result or a run with it is there."""

    @abstractmethod
    def submit(self, number: int, order: Order, shared: Any) -> None:
        """Have a run made with what share() gave."""

    @abstractmethod
    def next_ended(self) -> tuple[int, Made | Lost]:
        """Wait for the next run to end. Raises ExecutorError if none will."""

    @abstractmethod
    def close(self) -> None:
        """Give up what is under way, and disconnect; never fails."""

    def _host_and_port(self) -> tuple[str, int]:
        try:
            parts = urlsplit(self.where)
            host, port = parts.hostname, parts.port
        except ValueError:
            host, port = None, None
        if not host or not port or parts.netloc != self.address or parts.username is not None:
            raise ExecutorError(
                f"--executor: {self.where!r} is no address of a cluster; "
                f"accepted: {self.scheme}://HOST:PORT"
            )
        return host, port

    def reach(self) -> socket.socket:
        """A connection to whoever listens. Raises ExecutorError without any."""
        try:
            return socket.create_connection(self._place, REACH_S)
        except OSError as error:
            reason = error.strerror or str(error)
            raise ExecutorError(f"{self.where}: cannot be reached: {reason}") from None

    def _wait_for_workers(self) -> None:
        until = time.monotonic() + WORKERS_S
        while self.num_slots() == 0:
            if time.monotonic() > until:
                raise ExecutorError(f"{self.where}: no workers within {WORKERS_S:g} s")
            time.sleep(0.1)

    def _send(self, group: Sequence[Numbered], work: Work) -> Ended:
        """Send those runs of one trace that are due; give those that end meanwhile."""
        shared = None
        for number, spec in group:
            due = look_up(spec, work)
            if not isinstance(due, Due):
                yield number, due
                continue
            while len(self._under_way) >= PER_SLOT * max(1, self.num_slots()):
                yield from self._next(work)
            if shared is None:
                shared = self.share(due.trace)
            # relative paths start at a folder of this machine
            there = replace(spec, folder=str(Path(spec.folder).absolute()))
            self._submit(number, Sent(Order(there, due.key, work), shared))

    def _submit(self, number: int, sent: Sent) -> None:
        self._under_way[number] = sent
        self.submit(number, *sent)

    def _next(self, work: Work, is_alone: bool = False) -> Ended:
        """Wait for a run to end; write its files, and give its row. One that is lost has another
        chance, unless it was alone.
        """
        number, made = self.next_ended()
        sent = self._under_way.pop(number)
        spec = sent.order.spec
        if not isinstance(made, Lost):
            if made.files is not None:
                results.write_run(run_folder(spec, work), made.files)
            yield number, made.row
        elif is_alone:
            yield number, failed(spec, made.reason)
        else:
            self._lost[number] = sent

    def gone(self, error: BaseException) -> ExecutorError:
        """What is said when the cluster no longer answers."""
        return ExecutorError(
            f"{self.where}: the cluster is gone; finished runs are kept, the same command goes on"
            f" ({type(error).__name__}: {one_line(error)})"
        )

    def cannot_make(self, error: BaseException) -> ExecutorError:
        """What an error says that is not a run's own."""
        if isinstance(error, ExecutorError | results.ResultsError):
            return ExecutorError(f"{self.where}: {error}")
        while error.__cause__ is not None:
            error = error.__cause__
        return ExecutorError(
            f"{self.where}: cannot make runs: {type(error).__name__}: {one_line(error)}; all of "
            "the cluster needs the same kvsim as this machine"
        )


def one_line(error: BaseException) -> str:
    """The text of an error without the line ends."""
    return " ".join(str(error).split())


@contextmanager
def _quiet() -> Iterator[None]:
    """Clients of clusters log what is told in a sentence anyway."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(before)
