"""The tables that a run with `record: blocks` leaves beside its others, as Parquet.

Their first column is `run`. Times are seconds from the trace's time zero, as everywhere; slots are
numbered within the pool of a replica. A run without replicas has replica 0 only.

iterations.parquet: one row an iteration, or a stretch of time in which nothing ran (num_running is
0, and it computes no tokens). The rows follow each other without gaps, unless they are sampled.
    replica, start_s, end_s
    num_running, num_waiting        requests in service and waiting, after schedule()
    token_states, reserved, internal, external, cached, free
                                    the terms (sim.allocators.terms) during it, in slots. As in
                                    timeline.parquet, free slots that hold no hole for the request
                                    at the head of the queue are external.
    prompt_tokens, decode_tokens    tokens it computes: of prompts, recomputed ones included, and
                                    of sequences that decode

phases.parquet: what became of each request, one row a stretch of time.
    request, sequence, replica
    phase                           queued, prefill, decode, preempted, or swapped (to the host)
    start_s, end_s
    The rows of sequence 0 follow each other without gaps from the request's arrival to its end, or
    to the end of that sequence. Sequences beyond 0 are samples or beams; they begin where they
    fork. A request that was preempted and comes back begins again with sequence 0. A sequence is in
    prefill until all its tokens are computed, also when they are computed once more. A request that
    ends without having run was queued; one that never arrived has no row.

block_events.parquet: what changed in the pool. A row replaces what was known of its slots.
    time_s, replica
    start_slot, num_slots           the slots [start_slot, start_slot + num_slots)
    request, sequence, index        the first holder, -1 without one, and the place of the block in
                                    its table. Of several holders it is the one of the lowest
                                    request, and of the lowest sequence of that.
    num_written, num_reserved       of the slots, those that hold a token, which come first, and
                                    those that do not yet and will. The rest of what is held or
                                    cached is internal.
    ref_count                       block tables that name it
    state                           free, held, cached (by nobody held, but findable) or external
    Before the first row nothing is known; the rows of the first time cover the pool. Of memory in
    blocks a held row is one block; rows that nobody holds may be several adjacent ones. Of
    contiguous memory a row is a reservation, a hole (free), or what no hole is (external). The pool
    at a time is what the rows up to that time leave: of several rows of one time for the same slots
    the last one counts. Sums over it give the terms, except that holes too small for the head of
    the queue are free here.

table_events.parquet: what changed in block tables, for who else holds a block, and for the host.
    time_s, replica
    request, sequence, index        entry number index of the table of this sequence
    place                           device or host
    start_slot, num_slots           is these slots of that place from now on. start_slot -1 and
                                    num_slots 0: the table ends before this entry; with index 0 the
                                    sequence holds nothing any more.

The state during an iteration is that after its schedule(), so a row's time is the start of an
iteration, or the end of the last one before nothing ran. An allocator that does not say where its
slots are (unbounded) has no block events and no table events.

A row of phases.parquet is in order of request, sequence and time; a file's other rows are in order
of time, replica by replica.

Above `max_events` rows in all but phases, a run is sampled: only every k-th moment is kept, with k
doubled until there are few enough, and earlier moments are thinned alike. A moment is an
iteration, or a time at which nothing ran; the end of the run is always kept. At the moments kept
the tables are exact. The summary's column record_every is k, 1 if all is there; record_block_size
is the slots of a block, 0 of memory without blocks. Replicas share max_events evenly.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from sim.allocators.terms import TERM_NAMES
from sim.sequence import IntArray

NAMES = ("iterations", "phases", "block_events", "table_events")
DEFAULT_MAX_EVENTS = 2_000_000

PHASES = ("queued", "prefill", "decode", "preempted", "swapped")
QUEUED, PREFILL, DECODE, PREEMPTED, SWAPPED = range(5)
STATES = ("free", "held", "cached", "external")
FREE, HELD, CACHED, EXTERNAL = range(4)
PLACES = ("device", "host")

ITERATIONS = (
    "replica",
    "start_s",
    "end_s",
    "num_running",
    "num_waiting",
    *TERM_NAMES,
    "prompt_tokens",
    "decode_tokens",
)
PHASE_ROWS = ("request", "sequence", "replica", "phase", "start_s", "end_s")
BLOCK_EVENTS = (
    "time_s",
    "replica",
    "start_slot",
    "num_slots",
    "request",
    "sequence",
    "index",
    "num_written",
    "num_reserved",
    "ref_count",
    "state",
)
TABLE_EVENTS = (
    "time_s",
    "replica",
    "request",
    "sequence",
    "index",
    "place",
    "start_slot",
    "num_slots",
)
COLUMNS = {
    "iterations": ITERATIONS,
    "phases": PHASE_ROWS,
    "block_events": BLOCK_EVENTS,
    "table_events": TABLE_EVENTS,
}
_NAMES_OF = {"phase": PHASES, "state": STATES, "place": PLACES}


def fault(name: str, table: pd.DataFrame) -> str | None:
    """What is wrong with a recorded table that was read from a file; None if nothing is."""
    for column in COLUMNS[name]:
        if column not in table:
            return f"has no column {column}"
        if column in _NAMES_OF:
            if not table[column].astype(str).isin(_NAMES_OF[column]).all():
                return f"column {column} is not one of {', '.join(_NAMES_OF[column])}"
        elif table[column].dtype.kind not in "if" or not np.isfinite(table[column]).all():
            return f"column {column} is not all numbers"
    return None


def kind_of(column: str) -> str:
    """The type of a column, as pandas calls it."""
    if column.endswith("_s"):
        return "float64"
    return "category" if column in _NAMES_OF else "int64"


def as_table(name: str, columns: Mapping[str, IntArray]) -> pd.DataFrame:
    """A table from whole numbers: nanoseconds for its times, numbers for its names."""
    table: dict[str, object] = {}
    for column in COLUMNS[name]:
        cells = columns[column]
        if column.endswith("_s"):
            table[column] = cells / 1e9
        elif column in _NAMES_OF:
            words = pd.Index(_NAMES_OF[column])
            table[column] = pd.Categorical.from_codes(cells, words)
        else:
            table[column] = cells
    return pd.DataFrame(table)


def together(tables: Sequence[pd.DataFrame]) -> pd.DataFrame:
    """The tables of all replicas as one."""
    return tables[0] if len(tables) == 1 else pd.concat(tables, ignore_index=True)


def columns_of(names: Sequence[str], cells: IntArray) -> dict[str, IntArray]:
    """The columns of an array by name."""
    return dict(zip(names, np.ascontiguousarray(cells.T), strict=True))
