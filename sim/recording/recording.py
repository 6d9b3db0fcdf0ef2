"""The observer of one replica that keeps what `record: blocks` asks for."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pandas as pd

from sim.allocators.terms import EXTERNAL, FREE, NUM_TERMS
from sim.batch import NUM_DECODE_SEQS, PREFILL_TOKENS
from sim.recording import pool
from sim.recording.history import NUM_FIRST, History
from sim.recording.phases import Numbering, Phases
from sim.recording.tables import (
    BLOCK_EVENTS,
    ITERATIONS,
    TABLE_EVENTS,
    as_table,
    columns_of,
)
from sim.schedulers.base import MEMORY, Scheduler
from sim.sequence import REQUEST, IntArray

_END_NS = 0  # the first of an iteration's cells
_FIRST_TERM = 3  # behind num_running and num_waiting
NUM_ITERATION_CELLS = _FIRST_TERM + NUM_TERMS + 2
_NO_TOKENS: IntArray = np.zeros(2, np.int64)

# what the columns of the arrays are in the tables
_ITERATION_NAMES = ("number", *ITERATIONS[1:])
_PHASE_NAMES = ("request", "sequence", "phase", "start_s", "end_s")
_PIECE_NAMES = ("number", "time_s", *BLOCK_EVENTS[2:])
_ENTRY_NAMES = ("number", "time_s", "owner", "index", *TABLE_EVENTS[5:])


class Recording:
    """Looks at the iterations of a replica; `tables` are the rows that sim.recording.tables names.

    max_rows limits all of them but phases. It changes nothing that it looks at.
    """

    def __init__(self, replica: int, max_rows: int) -> None:
        self.replica = replica
        self.history = History(max_rows, NUM_ITERATION_CELLS)
        self._numbering = Numbering()
        self._phases: Phases | None = None
        self._num_moments = 0
        self._is_open = False  # whether an iteration that is kept has not ended

    @property
    def every(self) -> int:
        """Every which moment is kept."""
        return self.history.every

    def scheduled(self, now_ns: int, scheduler: Scheduler) -> None:
        """An iteration begins: schedule() has been called."""
        number = self._see(now_ns, scheduler)
        if number % self.history.every == 0:
            num_tokens = scheduler.batch[[PREFILL_TOKENS, NUM_DECODE_SEQS]]
            self._note(number, now_ns, scheduler, num_tokens)
            self._is_open = True

    def ended(self, end_ns: int) -> None:
        """The iteration has ended."""
        if self._is_open:
            self.history.iterations.cells[-1, NUM_FIRST + _END_NS] = end_ns
            self._is_open = False
        self.history.thin()

    def idle(self, since_ns: int, end_ns: int, scheduler: Scheduler) -> None:
        """Nothing has run in this time."""
        number = self._see(since_ns, scheduler)
        if number % self.history.every == 0:
            self._note(number, since_ns, scheduler, _NO_TOKENS)
            self._is_open = True
        self.ended(end_ns)

    def _note(self, number: int, now_ns: int, scheduler: Scheduler, num_tokens: IntArray) -> None:
        """Begin a row of iterations."""
        cells: IntArray = np.zeros((1, NUM_ITERATION_CELLS), np.int64)
        cells[0, 1:_FIRST_TERM] = scheduler.num_in_service, scheduler.num_waiting
        cells[0, _FIRST_TERM : _FIRST_TERM + NUM_TERMS] = _terms(scheduler)
        cells[0, -2:] = num_tokens
        self.history.iterations.add(number, now_ns, cells)

    def close(self, end_ns: int, scheduler: Scheduler, own: Iterable[int]) -> None:
        """The run has ended; own are the requests that have arrived here."""
        self._see(end_ns, scheduler, is_last=True)
        assert self._phases is not None
        self._phases.finish(end_ns, own)

    def _see(self, now_ns: int, scheduler: Scheduler, is_last: bool = False) -> int:
        """Note who does what and, if the moment is kept, what is where; return its number."""
        if self._phases is None:
            self._phases = Phases(scheduler.requests)
            self._pool = pool.Pool(scheduler.allocator)
            self.history.block_size = self._pool.block_size
        number = self._num_moments
        self._num_moments += 1
        swapped = [row for rows in scheduler.swapped().values() for row in rows]
        running = scheduler.running[: scheduler.num_running]
        rows = np.concatenate([running, np.array(scheduler.padding + swapped, np.int64)])
        requests = scheduler.sequences.rows[rows, REQUEST]
        owners = pool.Owners(rows, requests, self._numbering.number(rows, requests))
        is_away = np.arange(len(rows)) >= len(rows) - len(swapped)
        self._phases.see(now_ns, scheduler.sequences, owners, is_away)
        if is_last or number % self.history.every == 0:
            self.history.add(number, now_ns, self._pool.look(owners.sorted()))
        return number

    def tables(self) -> dict[str, pd.DataFrame]:
        """The four tables of this replica, by name."""
        assert self._phases is not None
        history, stretches = self.history, self._phases.stretches
        entries = columns_of(_ENTRY_NAMES, history.entries.cells)
        owners = np.divmod(entries["owner"], pool.MAX_SEQUENCES)
        entries["request"], entries["sequence"] = owners
        found = {
            "iterations": columns_of(_ITERATION_NAMES, history.iterations.cells),
            "phases": columns_of(_PHASE_NAMES, np.array(stretches, np.int64).reshape(-1, 5)),
            "block_events": columns_of(_PIECE_NAMES, history.pieces.cells),
            "table_events": entries,
        }
        for columns in found.values():
            columns["replica"] = np.full(len(next(iter(columns.values()))), self.replica)
        return {name: as_table(name, columns) for name, columns in found.items()}


def _terms(scheduler: Scheduler) -> IntArray:
    """The terms; free slots that have no hole for the head of the queue are external."""
    allocator = scheduler.allocator
    terms = allocator.terms.copy()
    is_short = scheduler.num_waiting > 0 and scheduler.blocked == MEMORY
    head = scheduler.head_row if is_short else None
    if head is not None and allocator.fragmented_for(head):
        terms[EXTERNAL] += terms[FREE]
        terms[FREE] = 0
    return terms
