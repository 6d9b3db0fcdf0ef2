"""Units and meanings of the columns of exported tables.

Those of a run's tables stand here, by table; of the summary, and what is made like it, they stand
in sim.metrics.docs. The reference page of metrics shows both.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from sim.metrics.docs import TERM_MEANINGS, describe

LIKE_SUMMARY = ("summary", "points", "replicas")
STATISTICS = {
    "_sd": "standard deviation between seeds",
    "_low": "lower end of the 95 % interval between seeds",
    "_high": "upper end of the 95 % interval between seeds",
}


class Column(NamedTuple):
    """A column's unit, empty for words and numbers of things, and what it is."""

    unit: str
    meaning: str


NOTHING = Column("", "")
_RUN = Column("", "the run that the row is of")
_REPLICA = Column("", "number of the replica, from 0 on")
_REQUEST = Column("", "number of the request in its trace, from 0 on")
_SEQUENCE = Column("", "which of its sequences, from 0 on: samples and beams are several")
_START = Column("s", "begin, from the trace's time zero")
_END = Column("s", "end, from the trace's time zero")
_TIME = Column("s", "when, from the trace's time zero")
_PLACE = Column("", "device or host")
_TERMS = {name: Column("slots", what) for name, what in TERM_MEANINGS.items()}
_COUNTS = {
    "num_running": Column("sequences", "in service"),
    "num_waiting": Column("requests", "that wait"),
}

COLUMNS: dict[str, dict[str, Column]] = {
    "requests": {
        "request": _REQUEST,
        "arrival_s": Column("s", "when it arrived, from the trace's time zero, as all times"),
        "prompt_tokens": Column("tokens", "length of the prompt"),
        "output_tokens": Column("tokens", "generated"),
        "wanted_output_tokens": Column("tokens", "it would generate if nothing cut it short"),
        "first_scheduled_s": Column("s", "when it was first scheduled; empty if never"),
        "first_token_s": Column("s", "when its first token was there; empty if never"),
        "finish_s": Column("s", "when it ended; empty if it did not"),
        "num_preemptions": Column("preemptions", "how often it lost its memory"),
        "status": Column("", "finished, rejected, failed or unfinished"),
        "reason": Column("", "why it was rejected or failed; empty otherwise"),
        "replica": Column("", "replica it was sent to, from 0 on; -1 if it never arrived at any"),
    },
    "timeline": {
        "start_s": Column("s", "begin of the bucket, from the trace's time zero"),
        "width_s": Column("s", "length of the bucket, over which all others are averages"),
        **_TERMS,
        **_COUNTS,
        "queued_frac": Column(
            "share of time, 0 to 1",
            "of the bucket, in which a request waited for memory or max_num_seqs",
        ),
    },
    "iterations": {
        "replica": _REPLICA,
        "start_s": _START,
        "end_s": _END,
        **_COUNTS,
        **_TERMS,
        "prompt_tokens": Column("tokens", "of prompts that it computes, recomputed ones included"),
        "decode_tokens": Column("tokens", "that it computes of sequences that decode"),
    },
    "phases": {
        "request": _REQUEST,
        "sequence": _SEQUENCE,
        "replica": _REPLICA,
        "phase": Column("", "queued, prefill, decode, preempted or swapped"),
        "start_s": _START,
        "end_s": _END,
    },
    "block_events": {
        "time_s": _TIME,
        "replica": _REPLICA,
        "start_slot": Column("slot number", "first slot, in the pool of the replica"),
        "num_slots": Column("slots", "from there on"),
        "request": Column("", "first holder; -1: nobody"),
        "sequence": Column("", "the holder's sequence; -1: nobody"),
        "index": Column("", "place in the holder's table; -1: nobody"),
        "num_written": Column("slots", "that hold a token, the first ones"),
        "num_reserved": Column("slots", "behind them that will"),
        "ref_count": Column("block tables", "that name the block"),
        "state": Column("", "free, held, cached or external"),
    },
    "table_events": {
        "time_s": _TIME,
        "replica": _REPLICA,
        "request": _REQUEST,
        "sequence": _SEQUENCE,
        "index": Column("", "place in the block table, from 0 on"),
        "place": _PLACE,
        "start_slot": Column("slot number", "first slot; -1: the table ends before this entry"),
        "num_slots": Column("slots", "from there on; 0: the table ends before this entry"),
    },
    "blocks": {
        "time_s": _TIME,
        "moment": Column(
            "",
            "schedule: during the iteration that begins; end: at the end of the one before, "
            "where that differs",
        ),
        "request": _REQUEST,
        "sequence": _SEQUENCE,
        "place": _PLACE,
        "index": Column("", "place in the block table, from 0 on"),
        "start_slot": Column("slot number", "first slot, within the pool of the place"),
        "num_slots": Column("slots", "from there on"),
        "num_written": Column("slots", "that hold a token"),
        "num_reserved": Column("slots", "that will"),
        "moved": Column("", "whether it was filled by a copy or a swap: copy, swap, no"),
        "from_slot": Column("slot number", "first slot of what it was filled from; -1: nothing"),
        "num_external": Column("slots", "of the whole pool that are external"),
        "num_cached": Column("slots", "of the whole pool that are cached"),
    },
}
ROWS = {
    "requests": "one row a request",
    "timeline": "one row a bucket of time; buckets are equal, the last one ends with the run",
    "iterations": "one row an iteration, or a stretch in which nothing ran",
    "phases": "one row a stretch of time of a sequence",
    "block_events": "one row a change of the pool: it replaces what was known of its slots",
    "table_events": "one row a change of a block table",
    "blocks": "one row a block or range held in an iteration, for the figures of block tables",
}


def column(table: str, name: str) -> Column:
    """The unit and the meaning of a column; both empty if nobody has described it."""
    if name == "run":
        return _RUN
    if table not in LIKE_SUMMARY:
        return COLUMNS.get(table, {}).get(name, NOTHING)
    if table == "replicas" and name == "replica":
        return _REPLICA
    if table == "points" and name in _OF_POINTS:
        return _OF_POINTS[name]
    return _of_summary(name, STATISTICS if table == "points" else {})


_OF_POINTS = {
    "num_seeds": Column("runs", "of this point that have measurements: the others are means"),
    "num_not_finished": Column("runs", "of this point that failed, stalled or were skipped"),
}


def _of_summary(name: str, statistics: Mapping[str, str]) -> Column:
    """A column of the summary, or a statistic of one between seeds."""
    known = describe(name)
    if known is not None:
        return Column(known.unit, known.formula)
    for suffix, what in statistics.items():
        of = describe(name.removesuffix(suffix)) if name.endswith(suffix) else None
        if of is not None:
            return Column(of.unit, f"{of.formula}; {what}")
    return NOTHING
