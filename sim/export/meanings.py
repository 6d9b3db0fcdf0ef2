"""Units and meanings of the columns of exported tables."""

from __future__ import annotations

import re

# by the end of a column's name; of several the first that fits
UNITS = (
    (r"_req_s$", "requests/s"),
    (r"_tokens_s$", "tokens/s"),
    (r"(^|_)s(_(mean|sd|p\d+|max|min))*$", "s"),
    (r"_bytes(_|$)", "bytes"),
    (r"_(frac|rate)(_|$)", "fraction of 1"),
    (
        r"(^|_)(num_slots|start_slot|from_slot|num_written|num_reserved|num_external|num_cached)$",
        "slots",
    ),
    (r"(^|_)(token_states|reserved|internal|external|cached|free)$", "slots"),
    (r"_tokens$", "tokens"),
    (r"_blocks(_|$)", "blocks"),
    (r"^(num|ref)_|_count$|_capacity$|record_every$", "count"),
)

_TERMS = {
    "token_states": "slots that hold a token of a sequence in service",
    "reserved": "slots held, not written yet, that will be",
    "internal": "slots held that will never be written",
    "external": "slots that nobody holds and nobody can have",
    "cached": "slots that nobody holds, whose content can be found again",
    "free": "all other slots",
}
_IDS = {
    "run": "the run that the row is of",
    "request": "number of the request in its trace, from 0 on",
    "sequence": "which of its sequences, from 0 on: samples and beams are several",
    "replica": "number of the replica, from 0 on; -1: the request never arrived",
    "start_s": "begin, from the trace's time zero",
    "end_s": "end, from the trace's time zero",
    "time_s": "when, from the trace's time zero",
    "index": "place in the block table, from 0 on",
    "place": "device or host",
    "start_slot": "first slot, within the pool of the place",
    "num_slots": "slots from there on",
    "num_running": "requests in service",
    "num_waiting": "requests that wait",
}
_REQUESTS = {
    "arrival_s": "when it arrived",
    "prompt_tokens": "length of the prompt",
    "output_tokens": "tokens generated",
    "wanted_output_tokens": "tokens it would generate if nothing cut it short",
    "first_scheduled_s": "when it was first scheduled; empty if never",
    "first_token_s": "when its first token was there; empty if never",
    "finish_s": "when it ended; empty if it did not",
    "num_preemptions": "how often it lost its memory",
    "status": "finished, rejected, failed or unfinished",
    "reason": "why it was rejected or failed",
}
_TIMELINE = {
    "width_s": "length of the bucket, over which all others are averages",
    "queued_frac": "share of it in which a request waited for memory or max_num_seqs",
    **_TERMS,
}
_ITERATIONS = {
    "prompt_tokens": "prompt tokens computed, recomputed ones included",
    "decode_tokens": "tokens computed by sequences that decode",
    **_TERMS,
}
_BLOCK_EVENTS = {
    "request": "first holder; -1: nobody",
    "sequence": "the holder's sequence; -1: nobody",
    "index": "place in the holder's table; -1: nobody",
    "num_written": "slots that hold a token, the first ones",
    "num_reserved": "slots behind them that will",
    "ref_count": "block tables that name the block",
    "state": "free, held, cached or external",
}
_TABLE_EVENTS = {"start_slot": "first slot; -1: the table ends before this entry"}
_BLOCKS = {
    "moment": "schedule: during the iteration that begins; end: at the end of the one before",
    "num_written": "slots that hold a token",
    "num_reserved": "slots that will",
    "moved": "whether it was filled by a copy or a swap",
    "from_slot": "what it was filled from; -1: nothing",
    "num_external": "external slots of the pool",
    "num_cached": "cached slots of the pool",
}
_PHASES = {"phase": "queued, prefill, decode, preempted or swapped"}
_OF_TABLES = {
    "requests": _REQUESTS,
    "timeline": _TIMELINE,
    "iterations": _ITERATIONS,
    "phases": _PHASES,
    "block_events": _BLOCK_EVENTS,
    "table_events": _TABLE_EVENTS,
    "blocks": _BLOCKS,
}


def unit(column: str) -> str:
    """The unit of a column, by its name; empty for words, ids and what has none."""
    return next((name for pattern, name in UNITS if re.search(pattern, column)), "")


def meaning(table: str, column: str) -> str:
    """What a column is, in a few words; empty where README's table of metrics says it."""
    own = _OF_TABLES.get(table)
    if own is None:
        return ""
    return own.get(column, _IDS.get(column, ""))
