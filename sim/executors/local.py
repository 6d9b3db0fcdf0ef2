"""Runs on the cores of this machine, through joblib. Its workers find finished runs themselves."""

from __future__ import annotations

import os
import signal
import warnings
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager

import joblib

from sim.executors.base import Ended, Executor, Numbered
from sim.results import files as results
from sim.runs.runner import Row, Spec, Work, execute


class Local(Executor):
    """options.jobs processes, no more than runs. Workers write files, and give back rows alone."""

    def __init__(self, address: str = "") -> None:
        pass

    def ended(self, groups: Iterable[Sequence[Numbered]], work: Work) -> Ended:
        """Raises ResultsError if files cannot be written, or a process is killed."""
        asked_by = os.getpid()
        tasks = [
            joblib.delayed(_numbered)(number, spec, work, asked_by)
            for group in groups
            for number, spec in group
        ]
        jobs = min(work.options.jobs, max(1, len(tasks)))  # each is a process from the start
        parallel = joblib.Parallel(n_jobs=jobs, return_as="generator_unordered")
        with _deaf_to_interrupts():
            ended = parallel(tasks)
        try:
            for numbered in ended:  # noqa: UP028 - would close it outside of what follows
                yield numbered
        except BrokenProcessPool:
            raise results.ResultsError(
                f"{work.folder}: a worker process was killed, perhaps for want of memory; finished "
                "runs are kept, the same command goes on"
            ) from None
        finally:
            with warnings.catch_warnings(action="ignore"):  # advice for those who stop early
                ended.close()


@contextmanager
def _deaf_to_interrupts() -> Iterator[None]:
    """Processes that are started meanwhile never see a Ctrl-C.

    A terminal sends it to all of them, and one that is just starting would say so with a traceback.
    Who asked is told afterwards, and ends them.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _numbered(number: int, spec: Spec, work: Work, asked_by: int) -> tuple[int, Row]:
    """Execute a run, unless whoever asked for it is gone; its number and its row."""
    if asked_by not in {os.getpid(), os.getppid()}:
        os._exit(1)  # or it would write where the next command may write already
    return number, execute(spec, work)
