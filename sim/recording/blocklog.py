"""A log of who holds which slots, iteration by iteration, for pools small enough to look at.

For the figures pool_map and block_tables, whose panels are moments, the end of an iteration among
them, with what was copied and swapped, and what each sequence has written in a block that it
shares. sim.recording keeps changes of pools of any size, and neither of these.
"""

from __future__ import annotations

from collections.abc import Iterator

import pandas as pd

from sim.allocators.base import Allocator
from sim.allocators.shared_blocks import COPIED
from sim.allocators.terms import CACHED, EXTERNAL, FREE
from sim.schedulers.base import MEMORY, Scheduler
from sim.sequence import FINAL_TOKENS, NUM_COMPUTED, REQUEST

MAX_SLOTS = 4096  # a larger pool cannot be read as a picture
MAX_ROWS = 200_000
MAX_EVENTS = 4 * MAX_SLOTS  # copies and swaps of one schedule()

SCHEDULED, ENDED = "schedule", "end"
DEVICE, HOST = "device", "host"
STAYED, COPY, SWAP = "no", "copy", "swap"


Row = tuple[float, str, int, int, str, int, int, int, int, int, str, int, int, int]

# A row is one block or range that a sequence holds. time_s is the start of an iteration. moment
# says what the row is about: `schedule`, the iteration that begins; or `end`, who holds what at
# the end of the one before, where that differs from what was held during it. sequence counts the
# sequences of a request in their order, index the blocks of its table. start_slot is the first of
# num_slots ids within the pool of that place, `device` or `host`; num_written of them hold a
# token, num_reserved will. moved is `copy` or `swap` if schedule() has filled it with what
# from_slot begins, which after a swap is on the other side, else `no`. num_external and num_cached
# are slots of the whole pool.
COLUMNS = {
    "time_s": "float64",
    "moment": "category",
    "request": "int64",
    "sequence": "int64",
    "place": "category",
    "index": "int64",
    "start_slot": "int64",
    "num_slots": "int64",
    "num_written": "int64",
    "num_reserved": "int64",
    "moved": "category",
    "from_slot": "int64",
    "num_external": "int64",
    "num_cached": "int64",
}
Move = tuple[str, int]  # how a block was filled, and from which one
Moves = dict[int, Move]


class BlockLog:
    """Observes a run: a row for every block or range that is held by a sequence.

    Stops after MAX_ROWS rows; `num_skipped` counts the iterations that are missing then.
    """

    def __init__(self, allocator: Allocator) -> None:
        """Also asks the allocator, which is not bound yet, to note its copies and swaps."""
        allocator.record_events(MAX_EVENTS)
        self._rows: list[Row] = []
        self._tables: list[tuple[object, ...]] = []  # what was held when this last looked
        self.num_skipped = 0

    def __call__(self, now_ns: int, scheduler: Scheduler) -> None:
        """Log an iteration that has been scheduled."""
        if len(self._rows) >= MAX_ROWS:
            self.num_skipped += 1
            return
        held = list(_held(now_ns, SCHEDULED, scheduler))
        self._rows += held
        self._tables = _tables(held)

    def ended(self, now_ns: int, scheduler: Scheduler) -> None:
        """Log the state at the end of an iteration, if sequences have forked or ended."""
        held = list(_held(now_ns, ENDED, scheduler))
        if len(self._rows) < MAX_ROWS and _tables(held) != self._tables:
            self._rows += held

    def table(self) -> pd.DataFrame:
        """The log, with the columns that COLUMNS explains."""
        return pd.DataFrame(self._rows, columns=list(COLUMNS)).astype(COLUMNS)


def _tables(held: list[Row]) -> list[tuple[object, ...]]:
    """Which sequence holds what: the cells from request to num_slots."""
    return [tuple(row[2:8]) for row in held]


def _held(now_ns: int, moment: str, scheduler: Scheduler) -> Iterator[Row]:
    """The rows of one moment."""
    allocator, rows = scheduler.allocator, scheduler.sequences.rows
    moves = _moves(allocator)
    external, cached = _unheld(scheduler)
    away = [row for swapped in scheduler.swapped().values() for row in swapped]
    running = scheduler.running[: scheduler.num_running].tolist()
    num_sequences: dict[int, int] = {}
    for row in [*running, *scheduler.padding, *away]:
        request, written, final = rows[row, [REQUEST, NUM_COMPUTED, FINAL_TOKENS]].tolist()
        sequence = num_sequences.get(request, 0)
        num_sequences[request] = sequence + 1
        for index, (place, start, size) in enumerate(_pieces(allocator, row)):
            filled = min(size, max(0, written))
            reached = max(filled, min(size, final - 1))
            written, final = written - size, final - size
            moved, source = moves.get(_block(allocator, place, start, size), (STAYED, -1))
            place_and_slots = place, index, start, size, filled, reached - filled
            origin = moved, (-1 if moved == STAYED else source * size)
            of_pool = external, cached
            yield (now_ns / 1e9, moment, request, sequence, *place_and_slots, *origin, *of_pool)


def _pieces(allocator: Allocator, row: int) -> Iterator[tuple[str, int, int]]:
    """(place, first slot, slots) of what a row holds, in logical order."""
    for start, size in allocator.held_ranges(row).tolist():
        yield DEVICE, start, size
    for start, size in allocator.host_ranges(row).tolist():
        yield HOST, start, size


def _block(allocator: Allocator, place: str, start: int, size: int) -> int:
    """The id of the block that begins at a slot, as events name it."""
    first = 0 if place == DEVICE else allocator.num_blocks or 0
    return first + start // size


def _moves(allocator: Allocator) -> Moves:
    """What has been copied or swapped since this was last asked, by the block it went to."""
    num_blocks = allocator.num_blocks or 0
    moves: Moves = {}
    for kind, source, target in allocator.events().tolist():
        is_on_host = source >= num_blocks
        how = COPY if kind == COPIED else SWAP
        moves[target] = how, source - is_on_host * num_blocks
    return moves


def _unheld(scheduler: Scheduler) -> tuple[int, int]:
    """External and cached slots; what has no hole for the head of the queue is external."""
    allocator = scheduler.allocator
    external, cached = allocator.terms[EXTERNAL].item(), allocator.terms[CACHED].item()
    head = scheduler.head_row if scheduler.blocked == MEMORY else None
    if head is not None and allocator.fragmented_for(head):
        external += allocator.terms[FREE].item()
    return external, cached
