"""The fast and the slow way through JSON lines take and refuse the same files."""

from __future__ import annotations

from unittest import mock

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from workloads import readers
from workloads.table import Table
from workloads.trace import TraceError

values = st.one_of(
    st.integers(1, 9).map(str),
    st.integers(1, 9).map(str),
    st.sampled_from(["0", "-1", "-0.0", "1.0", "1.5", "1e1", "01", "NaN", "Infinity", "null"]),
    st.sampled_from(["true", '"7"', '"x"', "[]", "{}", str(2**53 + 1), "9" * 25, "1e999", ""]),
)
keys = st.sampled_from(
    ["arrival_s", "prompt_tokens", "output_tokens", "max_tokens", "model", "\\u0061", "caf\udce9"]
)
ORDER = ["arrival_s", "prompt_tokens", "output_tokens"]
good_lines = st.tuples(*[st.integers(1, 9)] * 3).map(
    lambda row: "{" + ", ".join(f'"{k}": {v}' for k, v in zip(ORDER, row, strict=True)) + "}"
)
near_lines = st.tuples(
    st.tuples(values, values, values), st.lists(st.tuples(keys, values), max_size=2)
).map(
    lambda row: (
        "{" + ", ".join(f'"{k}": {v}' for k, v in [*zip(ORDER, row[0], strict=True), *row[1]]) + "}"
    )
)
lines = st.one_of(good_lines, good_lines, near_lines, st.sampled_from(["", " ", "[1]", "{}", "{"]))
joined = st.tuples(lines, st.sampled_from(["\n", "\n", "\r\n", "\n\n", "", " ", "\r"])).map("".join)


@settings(
    max_examples=400,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(
    content=st.lists(joined, max_size=5).map("".join), on_bad_row=st.sampled_from(["error", "drop"])
)
def test_both_ways_give_the_same_trace_or_the_same_sentence(tmp_path, content, on_bad_row):
    path = tmp_path / "t.jsonl"
    path.write_bytes(content.encode(errors="surrogateescape"))
    fast = outcome(path, on_bad_row)
    with mock.patch.object(readers, "_plain_objects", return_value=None):
        assert outcome(path, on_bad_row) == fast


def outcome(path, on_bad_row):
    """Everything the reader gives: columns and notes, or its refusal."""
    try:
        trace = Table(str(path), on_bad_row=on_bad_row, unsorted="sort").load(0)
    except TraceError as error:
        return str(error)
    return trace.digest(), trace.notes


@pytest.mark.parametrize(("end", "num_slow"), [("\n", 0), ("\r\n", 0), ("\n\n", 3)])
def test_only_plain_lines_go_the_fast_way(write, monkeypatch, end, num_slow):
    slow = []
    add_object = readers._add_object

    def count(reading, number, *rest):
        slow.append(number)
        add_object(reading, number, *rest)

    monkeypatch.setattr(readers, "_add_object", count)
    row = '{"arrival_s": 0.5, "prompt_tokens": 2, "output_tokens": 3, "model": "x"}'
    trace = Table(write("t.jsonl", (row + end) * 3)).load(0)
    assert trace.prompt_tokens.tolist() == [2, 2, 2]
    assert trace.notes == {"ignored: column 'model'": 3}
    assert len(slow) == num_slow
