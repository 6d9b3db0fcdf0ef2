"""Time integrals of where the slots are: of the whole run, of its queued part, and in buckets.

Everything is an exact integer sum of value x nanoseconds, so that it does not matter in how many
pieces a stretch of time is recorded. Slots x nanoseconds overflow 64 bits within hours of a large
pool, so a sum is kept in two cells: value x whole seconds, and value x the nanoseconds beyond.
"""

from __future__ import annotations

import numpy as np

from sim.allocators.terms import EXTERNAL, FREE, NUM_RECORDED, TERM_NAMES
from sim.jit import compiled, direct
from sim.sequence import IntArray

NUM_BUCKETS = 2048
FIRST_WIDTH_NS = 1_000_000  # doubles until the run fits

# what is integrated over time, beside what the allocator keeps recorded
RUNNING, WAITING, QUEUED, QUEUED_RUNNING = range(NUM_RECORDED, NUM_RECORDED + 4)
NUM_COLUMNS = NUM_RECORDED + 4
COLUMN_NAMES = (
    *TERM_NAMES,
    "table_blocks",
    "held_blocks",
    "num_running",
    "num_waiting",
    "queued",
    "num_running_queued",
)

# the buckets are followed by the sums over measured queued iterations, and by the state
MEASURED, STATE = NUM_BUCKETS, NUM_BUCKETS + 1
ORIGIN_NS, WIDTH_NS, USED = range(3)

_SECOND = 1_000_000_000
_MAX_SECONDS = 9_000_000_000  # so many of them still are an int64 of nanoseconds

# flags of a record
IS_QUEUED, IS_MEASURED, IS_FRAGMENTED = 1, 2, 4

MAX_STRETCH = 1024  # iterations recorded at once


class Recorder:
    """Integrates a run in bounded memory: buckets of time double in width as the run grows.

    The caller fills boundaries and log, then calls `iterations` or `idle`: iteration i lasts
    from boundaries[i] to boundaries[i + 1], and log[i] holds what the allocator keeps
    recorded during it: the six terms, and blocks in tables.
    """

    def __init__(self, origin_ns: int) -> None:
        self.boundaries: IntArray = np.zeros(MAX_STRETCH + 1, np.int64)
        self.swap_s = 0.0  # of the iterations, what moving blocks to the host and back took
        self.log: IntArray = np.zeros((MAX_STRETCH, NUM_RECORDED), np.int64)
        self.joined: IntArray = np.zeros(MAX_STRETCH, np.int64)
        self.num_iterations = 0
        self.num_queued_iterations = 0
        self.num_running_max = 0
        self.measured_from_ns = origin_ns
        self._origin_ns = origin_ns
        self._sums: IntArray = np.zeros((NUM_BUCKETS + 2, NUM_COLUMNS, 2), np.int64)
        self._sums[STATE, :3, 0] = (origin_ns, FIRST_WIDTH_NS, 0)
        arrays = self._sums, self.boundaries, self.log, self.joined
        self._record = direct(record, *arrays, 1, 0, 0, 0)
        self.is_measuring = True
        self._was_full = False
        self._finishes_to_warm_up = 0

    def memory_full(self, num_running: int, num_finished: int, now_ns: int) -> None:
        """A request was refused for lack of memory: the first time starts the warm-up.

        Queued averages leave out all before as many requests have finished as are running now.
        """
        if not self._was_full:
            self._was_full = True
            self.is_measuring = False
            self._finishes_to_warm_up = num_running
            self._sums[MEASURED] = 0
            self.num_queued_iterations = 0
            self.finished(num_finished, now_ns)

    def finished(self, num_finished: int, now_ns: int) -> None:
        """num_finished requests have finished by now: the warm-up may be over."""
        if num_finished >= self._finishes_to_warm_up:
            self.is_measuring = True
            self.measured_from_ns = now_ns

    def iterations(
        self, count: int, num_running: int, num_waiting: int, queued: bool, fragmented: bool
    ) -> None:
        """Record iterations that are alike but for time and slots.

        num_waiting is the queue's length in the first of them, and joined[i] how many more
        wait in iteration i. fragmented: the free slots are of no use to the refused head and
        count as external.
        """
        self.num_iterations += count
        if num_running > self.num_running_max:  # noqa: PLR1730 - a call costs more
            self.num_running_max = num_running
        flags = IS_FRAGMENTED if fragmented else 0
        if queued:
            flags |= IS_QUEUED
            if self.is_measuring:
                flags |= IS_MEASURED
                self.num_queued_iterations += count
        self._record(
            self._sums,
            self.boundaries,
            self.log,
            self.joined,
            count,
            num_running,
            num_waiting,
            flags,
        )

    def unqueued(self, count: int, num_running: int) -> None:
        """Record iterations during which nobody waits: the short way for the common case."""
        self.num_iterations += count
        if num_running > self.num_running_max:  # noqa: PLR1730 - a call costs more
            self.num_running_max = num_running
        self._record(self._sums, self.boundaries, self.log, self.joined, count, num_running, 0, 0)

    def idle(self, num_waiting: int) -> None:
        """Record one stretch of time in which nothing runs; it is no iteration."""
        record(self._sums, self.boundaries, self.log, self.joined, 1, 0, num_waiting, 0)

    def timeline(self) -> dict[str, list[int]]:
        """Exact integrals by bucket: start_ns, width_ns, and value x ns of every column."""
        used, width = self._sums.item(STATE, USED, 0), self._sums.item(STATE, WIDTH_NS, 0)
        table: dict[str, list[int]] = {
            "start_ns": [self._origin_ns + i * width for i in range(used)],
            "width_ns": [width] * used,
        }
        for column, name in enumerate(COLUMN_NAMES):
            table[name] = exact_sums(self._sums[:used, column])
        return table

    def queued_integrals(self) -> dict[str, int]:
        """Value x ns of every column over the measured queued iterations."""
        cells = self._sums[MEASURED].tolist()
        return {
            name: high * _SECOND + low
            for name, (high, low) in zip(COLUMN_NAMES, cells, strict=True)
        }


def exact_sums(cells: IntArray) -> list[int]:
    """Sums that are kept as seconds and nanoseconds, as whole numbers however large."""
    if cells[:, 0].max(initial=0) < _MAX_SECONDS:
        sums: list[int] = (cells[:, 0] * _SECOND + cells[:, 1]).tolist()
        return sums
    return [high * _SECOND + low for high, low in cells.tolist()]


@compiled
def carry(cells: IntArray) -> None:
    """Move whole seconds from the low cell to the high one."""
    cells[0] += cells[1] // _SECOND
    cells[1] %= _SECOND


@compiled
def halve(sums: IntArray) -> None:
    """Double the width of the buckets: the first half holds what all held."""
    half = NUM_BUCKETS // 2
    for i in range(half):
        for c in range(NUM_COLUMNS):
            for k in range(2):
                sums[i, c, k] = sums[2 * i, c, k] + sums[2 * i + 1, c, k]
            carry(sums[i, c])
    sums[half:NUM_BUCKETS] = 0
    sums[STATE, WIDTH_NS, 0] *= 2
    sums[STATE, USED, 0] = (sums[STATE, USED, 0] + 1) // 2


@compiled
def add(cells: IntArray, recorded: IntArray, others: tuple[int, int, int], time_ns: int) -> None:
    """Add what is recorded, num_running, num_waiting and queued, each x time, to a row of sums."""
    seconds = time_ns // _SECOND
    nanoseconds = time_ns % _SECOND
    for c in range(NUM_RECORDED):
        cells[c, 0] += recorded[c] * seconds
        cells[c, 1] += recorded[c] * nanoseconds
    for c in range(3):
        cells[RUNNING + c, 0] += others[c] * seconds
        cells[RUNNING + c, 1] += others[c] * nanoseconds
    cells[QUEUED_RUNNING, 0] += others[0] * others[2] * seconds
    cells[QUEUED_RUNNING, 1] += others[0] * others[2] * nanoseconds
    for c in range(NUM_COLUMNS):
        if cells[c, 1] >= 1 << 61:
            carry(cells[c])


@compiled
def record(
    sums: IntArray,
    boundaries: IntArray,
    log: IntArray,
    joined: IntArray,
    count: int,
    num_running: int,
    num_waiting: int,
    flags: int,
) -> None:
    """Integrate `count` iterations into the buckets they overlap, and into the measured sums."""
    origin = sums[STATE, ORIGIN_NS, 0]
    for i in range(count):
        recorded = log[i]
        if flags & IS_FRAGMENTED:
            recorded[EXTERNAL] += recorded[FREE]
            recorded[FREE] = 0
        here = (num_running, num_waiting + joined[i], 1 if flags & IS_QUEUED else 0)
        start = boundaries[i] - origin
        end = boundaries[i + 1] - origin
        if flags & IS_MEASURED:
            add(sums[MEASURED], recorded, here, end - start)
        while start < end:
            width = sums[STATE, WIDTH_NS, 0]
            bucket = start // width
            if bucket >= NUM_BUCKETS:
                halve(sums)
                continue
            stop = min(end, (bucket + 1) * width)
            add(sums[bucket], recorded, here, stop - start)
            sums[STATE, USED, 0] = max(sums[STATE, USED, 0], bucket + 1)
            start = stop
