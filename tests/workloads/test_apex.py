"""Apex's traces: nanoseconds, and keys in any order."""

import json

import pytest

from workloads import open_file
from workloads.apex import Apex
from workloads.trace import TraceError

ROW = {
    "ContextTokens": 2457,
    "GeneratedTokens": 79,
    "SynthesizedBody": "",
    "StartTimeOffset": 2098471872,
    "RequestID": "ee7a",
    "TotalTokens": 2536,
}


def lines(*rows: dict[str, object]) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


def test_times_are_whole_nanoseconds_from_the_traces_own_zero(write):
    trace = Apex(write("a.jsonl", lines(ROW, ROW | {"StartTimeOffset": 2098471873}))).load(0)
    assert trace.arrival_ns.tolist() == [2_098_471_872, 2_098_471_873]
    assert trace.prompt_tokens.tolist() == [2457, 2457]
    assert trace.output_tokens.tolist() == [79, 79]
    assert trace.provides == {"arrivals"}


def test_keys_may_stand_in_any_order_even_within_a_file(write):
    turned = dict(reversed(ROW.items()))
    assert open_file(write("a.jsonl", lines(turned))).kind == "apex"
    path = write("b.jsonl", lines(ROW, turned))
    assert Apex(path).load(0).arrival_ns.tolist() == [2_098_471_872] * 2


def test_a_body_with_braces_and_of_any_length_is_ignored(write):
    body = '{"a": [' + "x" * 10_000 + "}\n"
    path = write("a.jsonl", lines(ROW | {"SynthesizedBody": body}))
    trace = open_file(path).load(0)
    assert trace.prompt_tokens.tolist() == [2457]
    assert trace.notes["ignored: column 'SynthesizedBody'"] == 1


def test_a_time_beyond_what_a_double_holds_is_exact(write):
    time_ns = 2**53 + 1
    trace = Apex(write("a.jsonl", lines(ROW | {"StartTimeOffset": time_ns}))).load(0)
    assert trace.arrival_ns.tolist() == [time_ns]


@pytest.mark.parametrize("value", [0.5, -1, True, None, "soon", 2**63])
def test_what_is_no_whole_number_of_nanoseconds_is_refused(write, value):
    path = write("a.jsonl", lines(ROW, ROW | {"StartTimeOffset": value}))
    with pytest.raises(TraceError, match=r"line 2: StartTimeOffset is .*; accepted: nanoseconds, "):
        Apex(path).load(0)


def test_a_trace_without_bodies_is_recognized(write):
    row = {key: value for key, value in ROW.items() if key != "SynthesizedBody"}
    assert open_file(write("a.jsonl", lines(row))).kind == "apex"
