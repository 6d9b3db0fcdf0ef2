"""Requests written out in the experiment."""

from __future__ import annotations

import pytest

from workloads.combine import Filter, Mix, Repeat
from workloads.inline import Inline
from workloads.trace import TraceError

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


def test_samples_and_beams_are_columns_that_are_1_where_they_are_left_out():
    trace = Inline([{**ONE, "num_samples": 3}, ONE, {**ONE, "beam_width": 2}]).load(0)
    assert trace.num_samples is not None
    assert trace.beam_width is not None
    assert trace.num_samples.tolist() == [3, 1, 1]
    assert trace.beam_width.tolist() == [1, 1, 2]
    assert trace.provides == {"arrivals", "samples", "beams"}
    assert trace.beam_parents is None


def test_recorded_beams_follow_their_request_when_requests_are_sorted():
    search = {**ONE, "output_tokens": 3, "beam_width": 2, "beam_parents": [[0, 0], [1, 1]]}
    trace = Inline([{**search, "arrival_s": 1}, ONE], unsorted="sort").load(0)
    assert trace.beam_parents is not None
    assert {i: parents.tolist() for i, parents in trace.beam_parents.items()} == {
        1: [[0, 0], [1, 1]]
    }


def test_recorded_beams_are_part_of_what_a_trace_is():
    search = {**ONE, "output_tokens": 3, "beam_width": 2}
    digests = {
        Inline([{**search, **beams}]).load(0).digest()
        for beams in (
            {},
            {"beam_parents": [[0, 0], [1, 1]]},
            {"beam_parents": [[0, 0], [1, 0]]},
        )
    }
    assert len(digests) == 3


@pytest.mark.parametrize("kind", ["filter", "mix", "repeat"])
def test_recorded_beams_are_not_accepted_in_a_workload_made_of_others(kind):
    search = {**ONE, "output_tokens": 2, "beam_width": 2, "beam_parents": [[0, 0]]}
    inner = {"kind": "inline", "requests": [search]}
    outer = {
        "filter": lambda: Filter(inner),
        "mix": lambda: Mix([inner]),
        "repeat": lambda: Repeat(inner, 2, 0.0),
    }[kind]()
    with pytest.raises(TraceError, match="inline: the beams of request 0 are recorded; accepted "):
        outer.load(0)


BEAMS = {"prompt_tokens": 20, "output_tokens": 3, "beam_width": 2}


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
        ([{**ONE, "beam_width": 0}], "requests: request 0: beam_width is 0; accepted: a whole "),
        ([{**BEAMS, "num_samples": 2}], "requests: request 0 has num_samples and beam_width; "),
        (
            [ONE, {**ONE, "beam_parents": [[0]]}],
            "requests: request 1 has beam_parents, but no beam_width above 1",
        ),
        (
            [{**BEAMS, "beam_parents": 5}],
            "requests: request 0: beam_parents must be a list with one list of beams for each "
            "token, got 5",
        ),
        (
            [{**BEAMS, "beam_parents": [[0, 0]]}],
            "requests: request 0: beam_parents must be 2 lists, one for each output token but "
            "the last, got 1",
        ),
        (
            [ONE, {**BEAMS, "beam_parents": [[0, 1], [0, 1]]}],
            "requests: request 1: beam_parents list 0 must be 2 beams that are 0, the prompt, "
            "got [0, 1]",
        ),
        (
            [{**BEAMS, "beam_parents": [[0, 0], [0, 2]]}],
            "requests: request 0: beam_parents list 1 must be 2 beams from 0 to 1, got [0, 2]",
        ),
        (
            [{**BEAMS, "beam_parents": [[0, 0], [0, 0, 1]]}],
            "requests: request 0: beam_parents list 1 must be 2 beams from 0 to 1, got [0, 0, 1]",
        ),
        (
            [{**BEAMS, "beam_parents": [[0, 0], [0, 0.5]]}],
            "requests: request 0: beam_parents list 1 must be 2 beams from 0 to 1, got [0, 0.5]",
        ),
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
