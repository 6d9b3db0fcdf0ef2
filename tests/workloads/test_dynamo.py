"""Dynamo's request trace: events at the end of requests, with 64-bit hashes."""

import pytest
from trace_files import ended, lines

from workloads.dynamo import Dynamo
from workloads.sharing import prefix_hits
from workloads.trace import TraceError

TOOL = {"event": {"schema": "dynamo.request.trace.v1", "event_type": "tool_start"}}
TOP = 2**64 - 1


def test_hashes_that_one_double_stands_for_are_different(write):
    rows = [ended(0, 16, [TOP], "a"), ended(1, 16, [TOP - 1], "a"), ended(2, 16, [TOP], "a")]
    trace = Dynamo(write("t.jsonl", lines(*rows))).load(0)
    assert float(TOP) == float(TOP - 1)
    assert prefix_hits(trace.content).tolist() == [0, 0, 16]


def test_requests_are_sorted_by_when_they_were_received(write):
    rows = [ended(9000, 40, [1, 2, 3], "a"), TOOL, ended(7500, 16, [1], "b"), TOOL]
    trace = Dynamo(write("t.jsonl", lines(*rows))).load(0)
    assert trace.arrival_s.tolist() == [0, 1.5]
    assert trace.prompt_tokens.tolist() == [16, 40]
    assert trace.session.tolist() == [1, 0]
    assert trace.notes == {"ignored: events of type 'tool_start'": 2, "moved by sorting": 2}
    with pytest.raises(TraceError, match=r"line 3 arrives 1\.5 s before line 1"):
        Dynamo(write("t.jsonl", lines(*rows)), unsorted="error").load(0)


def test_the_last_block_may_be_partial_and_what_has_no_hash_is_the_requests_own(write):
    rows = [ended(0, 40, [1, 2, 3], "a"), ended(1, 40, [1, 2], "a"), ended(2, 44, [1, 2, 3], "a")]
    trace = Dynamo(write("t.jsonl", lines(*rows))).load(0)
    assert prefix_hits(trace.content).tolist() == [0, 32, 40]


def test_requests_without_a_session_are_sessions_of_their_own(write):
    rows = [ended(0, 16, [1], "a"), ended(1, 16, [1], "a"), ended(2, 16, [1], "a")]
    del rows[0]["event"]["agent_context"]
    del rows[1]["event"]["agent_context"]["session_id"]
    trace = Dynamo(write("t.jsonl", lines(*rows))).load(0)
    assert trace.session.tolist() == [0, 1, 2]


@pytest.mark.parametrize(
    ("path", "value", "sentence"),
    [
        (["event"], None, "line 1: is no event; accepted: schema dynamo"),
        (["event", "schema"], "v2", "line 1: is no event; accepted: schema dynamo"),
        (["event", "request"], None, "line 1: has no request with replay"),
        (["event", "request", "replay"], None, "line 1: has no request with replay"),
        (["event", "agent_context", "session_id"], 3, "session_id is 3; accepted: text"),
        (["event", "request", "request_received_ms"], "x", "request_received_ms is 'x'; accepted"),
        (["event", "request", "output_tokens"], 0, "output_tokens is 0; accepted"),
        (["event", "request", "replay", "input_length"], None, "input_length is None; accepted"),
        (["event", "request", "replay", "trace_block_size"], 0, "trace_block_size is 0; accepted"),
        (["event", "request", "replay", "input_sequence_hashes"], [1.0], "whole numbers below"),
        (["event", "request", "replay", "input_sequence_hashes"], [2**64], "whole numbers below"),
        (
            ["event", "request", "replay", "input_sequence_hashes"],
            [1, 2],
            "has 2 blocks of 16 tokens for a prompt of 16; accepted: at most 1",
        ),
    ],
)
def test_a_bad_row_is_one_sentence_and_can_be_dropped(write, path, value, sentence):
    bad = place = ended(0, 16, [1], "a")
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    file = write("t.jsonl", lines(bad, ended(5, 16, [1], "a")))
    with pytest.raises(TraceError, match=sentence):
        Dynamo(file).load(0)
    trace = Dynamo(file, on_bad_row="drop").load(0)
    assert len(trace) == 1
    assert sum(trace.notes.values()) == 1
