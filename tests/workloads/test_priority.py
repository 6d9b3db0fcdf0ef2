"""Priorities of requests: read, kept, and no part of the digest of a trace that has none."""

from __future__ import annotations

import hashlib
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from workloads.canonical import Canonical, write_canonical
from workloads.columns import Columns
from workloads.combine import Filter, Mix, Repeat
from workloads.inline import Inline
from workloads.table import Table
from workloads.trace import COLUMNS, MAX_TOKENS, Trace, TraceError

ROWS = [(0.0, 5, 6, 3), (0.5, 7, 8, -2), (1.0, 9, 1, 0)]
NAMES = ("arrival_s", "prompt_tokens", "output_tokens", "priority")
INLINE = {"kind": "inline", "requests": [dict(zip(NAMES, row, strict=True)) for row in ROWS]}
WITHOUT = {"kind": "inline", "requests": [{"prompt_tokens": 4, "output_tokens": 2}]}


@pytest.mark.parametrize("form", ["csv", "jsonl", "parquet"])
def test_tables_have_a_column_of_priorities_if_they_like(write, tmp_path, form):
    if form == "csv":
        lines = [",".join(NAMES), *(",".join(map(str, row)) for row in ROWS)]
        path = write("t.csv", "\n".join(lines))
    elif form == "jsonl":
        lines = [str(dict(zip(NAMES, row, strict=True))).replace("'", '"') for row in ROWS]
        path = write("t.jsonl", "\n".join(lines))
    else:
        path = str(tmp_path / "t.parquet")
        table = pa.table(dict(zip(NAMES, map(list, zip(*ROWS, strict=True)), strict=True)))
        pq.write_table(table, path)
    trace = Table(path).load(0)
    assert trace.priority is not None
    assert trace.priority.tolist() == [3, -2, 0]
    assert trace.provides == {"arrivals", "priority"}
    assert trace.notes == {}
    assert trace.digest() == Inline(INLINE["requests"]).load(0).digest()


@pytest.mark.parametrize("cell", ["high", "1.5", "", str(MAX_TOKENS + 1)])
def test_a_priority_is_a_whole_number(write, cell):
    path = write("t.csv", f"{','.join(NAMES)}\n0,1,1,{cell}\n")
    sentence = f"line 2: priority is {cell!r}; accepted: a whole number from -{MAX_TOKENS} to"
    with pytest.raises(TraceError, match=sentence):
        Table(path).load(0)


def test_a_column_of_any_name_may_hold_priorities(write):
    path = write("log.csv", "asked,answered,when,urgency\n3,4,0,+7\n5,6,1,-1\n")
    names = {"prompt_column": "asked", "output_column": "answered", "arrival_column": "when"}
    trace = Columns(path, **names, priority_column="urgency").load(0)
    assert trace.priority is not None
    assert trace.priority.tolist() == [7, -1]
    with pytest.raises(ValueError, match="priority_column: must be another column"):
        Columns(path, **names, priority_column="when")


def test_written_requests_have_priorities_all_or_none():
    requests = INLINE["requests"]
    with pytest.raises(ValueError, match="request 1 has no priority"):
        Inline([requests[0], WITHOUT["requests"][0]])
    with pytest.raises(ValueError, match="request 1 has priority, request 0 has none; accepted: "):
        Inline([WITHOUT["requests"][0], requests[0]])


def test_a_trace_without_priorities_has_the_digest_that_it_had_before_there_were_any():
    trace = Inline(WITHOUT["requests"]).load(0)
    state = hashlib.blake2b(digest_size=16)
    for name in COLUMNS:
        if name != "priority":
            column = getattr(trace, name)
            state.update(name.encode() + (b"-" if column is None else column.tobytes()))
    assert trace.digest() == state.hexdigest()
    given = replace(trace, priority=np.zeros(1, np.int64))
    assert given.digest() != trace.digest()


def test_a_canonical_file_keeps_them(tmp_path):
    trace = Inline(INLINE["requests"]).load(0)
    path = tmp_path / "t.parquet"
    assert write_canonical(trace, path) == {}
    again: Trace = Canonical(str(path)).load(0)
    assert again.priority is not None
    assert again.priority.tolist() == [3, -2, 0]
    assert again.digest() == trace.digest()


def test_combined_workloads_keep_them_and_who_says_nothing_has_0():
    kept = Filter(INLINE, min_prompt_tokens=6).load(0)
    assert kept.priority is not None
    assert kept.priority.tolist() == [-2, 0]
    twice = Repeat(INLINE, copies=2, shift_s=0).load(0)
    assert twice.priority is not None
    assert twice.priority.tolist() == [3, 3, -2, -2, 0, 0]
    mixed = Mix([WITHOUT, INLINE]).load(0)
    assert mixed.priority is not None
    assert mixed.priority.tolist() == [0, 3, -2, 0]
    assert Mix([WITHOUT, WITHOUT]).load(0).priority is None
