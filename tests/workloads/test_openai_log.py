"""Logs in the words of OpenAI's API, as servers and proxies nest them."""

import pytest
from trace_files import lines

from workloads.openai_log import OpenAILog
from workloads.trace import TraceError

USAGE = {"prompt_tokens": 9, "completion_tokens": 2, "total_tokens": 11}
WAYS = {
    "answer": {"created": 1_700_000_000, "usage": USAGE},
    "batch output": {
        "custom_id": "1",
        "response": {"status_code": 200, "body": {"created": 1_700_000_000, "usage": USAGE}},
        "error": None,
    },
    "request and response": {
        "timestamp": "2023-11-14T22:13:20Z",
        "request": {"body": {"model": "m"}},
        "response": {"created": 1_700_000_009, "usage": USAGE},
    },
    "proxy": {"startTime": 1_700_000_000.0, "prompt_tokens": 9, "completion_tokens": 2},
    "newer names": {
        "timestamp": "2023-11-14T22:13:20+00:00",
        "usage": {"input_tokens": 9, "output_tokens": 2},
    },
}


@pytest.mark.parametrize("way", WAYS)
def test_a_request_is_found_wherever_it_is_nested(write, way):
    rows = OpenAILog(write("log.jsonl", lines(WAYS[way]))).raw()
    assert {name: cells.tolist() for name, cells in rows.fields.items()} == {
        "arrival_ns": [1_700_000_000 * 10**9],
        "prompt_tokens": [9],
        "output_tokens": [2],
    }


@pytest.mark.parametrize(
    "place",
    [
        {"max_tokens": 64},
        {"request": {"max_completion_tokens": 64, "max_tokens": 5}},
        {"request": {"body": {"max_output_tokens": 64}}},
        {"model_parameters": {"max_tokens": 64}},
    ],
)
def test_what_the_client_asked_for_is_kept(write, place):
    trace = OpenAILog(write("log.jsonl", lines({**WAYS["answer"], **place}))).load(0)
    assert trace.max_tokens.tolist() == [64]


def test_max_tokens_of_some_requests_only_are_counted_as_ignored(write):
    rows = [WAYS["answer"], {**WAYS["answer"], "max_tokens": 64}]
    trace = OpenAILog(write("log.jsonl", lines(*rows))).load(0)
    assert trace.max_tokens is None
    assert trace.notes == {"ignored: max_tokens, which not every request has": 1}


def test_cached_tokens_do_not_say_who_shares_a_prompt(write):
    usage = {**USAGE, "prompt_tokens_details": {"cached_tokens": 8}}
    trace = OpenAILog(write("log.jsonl", lines({"created": 5, "usage": usage}))).load(0)
    assert trace.content is None
    assert trace.notes == {"ignored: cached_tokens, of which the source is unknown": 1}


def test_the_first_arrival_is_time_zero(write):
    rows = [{"timestamp": t, "usage": USAGE} for t in (1_700_000_000.5, "2023-11-14T22:13:22Z")]
    assert OpenAILog(write("log.jsonl", lines(*rows))).load(0).arrival_s.tolist() == [0, 1.5]


@pytest.mark.parametrize(
    ("row", "sentence"),
    [
        ({"created": 5, "usage": None}, "has no prompt_tokens"),
        ({"usage": USAGE}, "has no timestamp"),
        ({"created": 1_700_000_000_000, "usage": USAGE}, "timestamp is .*; accepted: unix seconds"),
        ({"created": True, "usage": USAGE}, "timestamp is True; accepted: unix seconds"),
        ({"timestamp": "noon", "usage": USAGE}, "timestamp is 'noon'; accepted: unix seconds"),
        ({"created": 5, "usage": {**USAGE, "prompt_tokens": 0}}, "prompt_tokens is 0; accepted"),
        ({**WAYS["answer"], "max_tokens": 0}, "max_tokens is 0; accepted: null or a whole number"),
        ([], "is not a JSON object"),
    ],
)
def test_a_bad_row_is_one_sentence_and_can_be_dropped(write, row, sentence):
    path = write("log.jsonl", lines(row, WAYS["answer"]))
    with pytest.raises(TraceError, match=f"line 1: {sentence}"):
        OpenAILog(path).load(0)
    trace = OpenAILog(path, on_bad_row="drop").load(0)
    assert len(trace) == 1
    assert sum(trace.notes.values()) == 1
