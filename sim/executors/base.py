"""What all executors have in common."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Generator, Iterable, Sequence

from sim.config.runspec import TraceSource
from sim.runs.runner import Row, Spec, Work

Numbered = tuple[int, Spec]  # a run, and its place among the runs of its experiment
Ended = Generator[tuple[int, Row], None, None]


class ExecutorError(Exception):
    """An executor that cannot make the runs: one sentence."""


class Executor(ABC):
    """Makes runs somewhere. A subclass is an entry of sim.executors.EXECUTORS.

    address is what follows "://"; the constructor raises ExecutorError if it cannot be used.
    """

    @abstractmethod
    def __init__(self, address: str) -> None: ...

    @abstractmethod
    def ended(self, groups: Iterable[Sequence[Numbered]], work: Work) -> Ended:
        """Make the runs that are not done; give number and summary row of each as soon as it ends.

        Runs of one group have one trace. Files are written before the row is given. Closing the
        generator gives up what is not made yet. Raises ResultsError, ExecutorError.
        """


def by_trace(specs: Sequence[Spec]) -> list[list[Numbered]]:
    """The runs, numbered, in groups of one trace, so that each trace is needed once and not again.

    Runs that are skipped have none, and are a group.
    """
    groups: dict[TraceSource | None, list[Numbered]] = {}
    for number, spec in enumerate(specs):
        source = None if spec.skip else spec.trace_source
        groups.setdefault(source, []).append((number, spec))
    return list(groups.values())
