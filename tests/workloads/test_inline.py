"""Requests written out in the experiment."""

from __future__ import annotations

import pytest

from workloads.inline import Inline

ONE = {"arrival_s": 0, "prompt_tokens": 20, "output_tokens": 5}


def test_requests_become_a_trace_in_their_order():
    trace = Inline([ONE, {"arrival_s": 0.25, "prompt_tokens": 1, "output_tokens": 2}]).load(0)
    assert trace.arrival_ns.tolist() == [0, 250_000_000]
    assert trace.prompt_tokens.tolist() == [20, 1]
    assert trace.max_tokens is None
    assert trace.source == "inline"


def test_a_request_without_a_time_arrives_at_0():
    assert Inline([{"prompt_tokens": 1, "output_tokens": 1}]).load(0).arrival_ns.tolist() == [0]


def test_what_clients_ask_for_is_kept_and_declared():
    trace = Inline([{**ONE, "max_tokens": 9}]).load(0)
    assert trace.max_tokens is not None
    assert trace.max_tokens.tolist() == [9]
    assert trace.provides == {"arrivals", "max_tokens"}


def test_requests_out_of_order_are_sorted_on_request():
    late_first = [{**ONE, "arrival_s": 1}, {**ONE, "prompt_tokens": 7}]
    trace = Inline(late_first, unsorted="sort").load(0)
    assert trace.prompt_tokens.tolist() == [7, 20]
    assert trace.notes == {"moved by sorting": 2}


@pytest.mark.parametrize(
    ("requests", "sentence"),
    [
        ([], "requests: there are no rows; at least one request is needed"),
        ("many", "requests: must be a list of requests, got 'many'"),
        ([5], "requests: request 0 must be a mapping, got 5"),
        ([ONE, None], "requests: request 1 must be a mapping, got None"),
        ({"a": ONE}, "requests: must be a list of requests, got {'a': "),
        ([ONE, {**ONE, "output_tokens": -1}], "requests: request 1: output_tokens is -1; accepted"),
        ([{**ONE, "prompt_tokens": 1.5}], "requests: request 0: prompt_tokens is 1.5; accepted: "),
        ([{**ONE, "arrival_s": "now"}], "requests: request 0: arrival_s is 'now'; accepted: "),
        ([{"prompt_tokens": 1}], "requests: request 0 has no output_tokens"),
        ([{**ONE, "max_token": 1}], "requests: request 0: 'max_token' is unknown, did you mean "),
        ([ONE, {**ONE, "max_tokens": 1}], "requests: request 1 has max_tokens, request 0 has none"),
        ([{**ONE, "max_tokens": 1}, ONE], "requests: request 1 has no max_tokens"),
        ([{**ONE, "arrival_s": 2}, ONE], "requests: request 1 arrives 2 s before request 0; "),
    ],
)
def test_a_mistake_is_refused_when_the_workload_is_made(requests, sentence):
    with pytest.raises(ValueError, match=r"^requests: ") as error:
        Inline(requests)
    assert str(error.value).startswith(sentence)


def test_every_bad_request_is_named_each_in_a_line():
    with pytest.raises(ValueError, match="requests") as error:
        Inline([{**ONE, "prompt_tokens": 0}, ONE, 7, {**ONE, "max_token": 1}])
    assert [line.partition(";")[0] for line in str(error.value).split("\n")] == [
        "requests: request 0: prompt_tokens is 0",
        "requests: request 2 must be a mapping, got 7",
        "requests: request 3: 'max_token' is unknown, did you mean max_tokens",
    ]


def test_of_many_bad_requests_the_first_twenty_are_named_and_the_others_counted():
    with pytest.raises(ValueError, match="requests") as error:
        Inline([{**ONE, "output_tokens": 0}] * 1500)
    lines = str(error.value).split("\n")
    assert [line[:22] for line in lines[:20]] == [
        f"requests: request {i}: o"[:22] for i in range(20)
    ]
    assert lines[20:] == ["requests: 1,480 more requests are not accepted either"]
