"""What a run leaves, as numbers: those of replicas can be added. summary.py makes rows of them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from sim.engine.fleet import FleetRun
from sim.engine.simulation import Run
from sim.sequence import NUM_GENERATED, IntArray

Integrals = dict[str, int]
Timeline = dict[str, list[int]]
AXES = ("start_ns", "width_ns")  # of a timeline, the same for all replicas
Number = TypeVar("Number", int, float)


@dataclass(frozen=True)
class Facts:
    """Outcomes, counts and time integrals of a run, or of all replicas of one.

    requests are rows of sim.sequence. measured_ns is the time that queued integrals cover,
    swapped_slots and swap_s what moved between device and host, None where nothing can. Histograms
    are those of sim.gaps; reuse_distances is None for memory that finds nothing.
    """

    status: str
    reason: str
    requests: IntArray
    start_ns: int
    end_ns: int
    measured_ns: int
    num_slots: int
    num_blocks: int | None
    num_iterations: int
    num_queued_iterations: int
    num_running_max: int
    num_output_tokens: int
    counters: dict[str, int]
    swapped_slots: int | None
    swap_s: float | None
    gaps: IntArray
    reuse_distances: IntArray | None
    timeline: Timeline
    queued: Integrals


def facts_of(run: Run | FleetRun) -> Facts:
    """The facts of a run; those of its replicas are added."""
    if isinstance(run, FleetRun):
        return _added(run, [facts for _, facts in replica_facts(run)])
    return _of_one(run, slice(None))


def reasons_of(run: Run | FleetRun) -> dict[int, str]:
    """Why requests ended early."""
    runs = run.replicas if isinstance(run, FleetRun) else (run,)
    return {request: why for one in runs for request, why in one.scheduler.reasons.items()}


def timeline_of(run: Run | FleetRun) -> Timeline:
    """Time integrals by bucket: see sim.engine.recorder."""
    runs = run.replicas if isinstance(run, FleetRun) else (run,)
    return _merged([one.recorder.timeline() for one in runs])


def replica_facts(run: FleetRun) -> list[tuple[int, Facts]]:
    """The number and the facts of each replica."""
    return [
        (number, _of_one(replica, np.flatnonzero(run.replica_of == number)))
        for number, replica in enumerate(run.replicas)
    ]


def _of_one(run: Run, own: IntArray | slice) -> Facts:
    """The facts of one replica. own says which requests of the trace are its."""
    recorder, scheduler, allocator = run.recorder, run.scheduler, run.allocator
    moved, num_slots = allocator.num_swapped_blocks()
    # samples and beams of a request are as long as it
    num_output_tokens = int(np.dot(run.requests[:, NUM_GENERATED], scheduler.widths()[own]))
    return Facts(
        status=run.status,
        reason=run.reason,
        requests=run.requests,
        start_ns=run.start_ns,
        end_ns=run.end_ns,
        measured_ns=run.end_ns - recorder.measured_from_ns,
        num_slots=allocator.num_slots,
        num_blocks=allocator.num_blocks,
        num_iterations=recorder.num_iterations,
        num_queued_iterations=recorder.num_queued_iterations,
        num_running_max=recorder.num_running_max,
        num_output_tokens=num_output_tokens,
        counters={**allocator.counters(), **scheduler.counters()},
        swapped_slots=moved * num_slots if allocator.can_swap else None,
        swap_s=recorder.swap_s if allocator.can_swap else None,
        gaps=scheduler.gaps,
        reuse_distances=allocator.reuse_distances(),
        timeline=recorder.timeline(),
        queued=recorder.queued_integrals(),
    )


def _added(run: FleetRun, parts: list[Facts]) -> Facts:
    """Sums over replicas, which are alike: what one of them does not have, none has."""
    distances = [part.reuse_distances for part in parts if part.reuse_distances is not None]
    return Facts(
        status=run.status,
        reason=run.reason,
        requests=run.requests,
        start_ns=run.start_ns,
        end_ns=run.end_ns,
        measured_ns=sum(part.measured_ns for part in parts),
        num_slots=sum(part.num_slots for part in parts),
        num_blocks=_sum(part.num_blocks for part in parts),
        num_iterations=sum(part.num_iterations for part in parts),
        num_queued_iterations=sum(part.num_queued_iterations for part in parts),
        num_running_max=run.num_running_max,
        num_output_tokens=sum(part.num_output_tokens for part in parts),
        counters=_sums([part.counters for part in parts]),
        swapped_slots=_sum(part.swapped_slots for part in parts),
        swap_s=_sum(part.swap_s for part in parts),
        gaps=np.sum([part.gaps for part in parts], axis=0),
        reuse_distances=np.sum(distances, axis=0) if distances else None,
        timeline=_merged([part.timeline for part in parts]),
        queued=_sums([part.queued for part in parts]),
    )


def _sum(values: Iterable[Number | None]) -> Number | None:
    """The sum; None if there is nothing to add."""
    known = [value for value in values if value is not None]
    return sum(known[1:], known[0]) if known else None


def _sums(parts: list[dict[str, int]]) -> dict[str, int]:
    """Sums by name."""
    return {name: sum(part[name] for part in parts) for name in parts[0]}


def _merged(parts: list[Timeline]) -> Timeline:
    """Sums by bucket. All cover the same time, so they have the same buckets."""
    merged = dict(parts[0])
    for name in merged.keys() - set(AXES):
        columns = [part[name] for part in parts]
        merged[name] = [sum(cells) for cells in zip(*columns, strict=True)]
    return merged
