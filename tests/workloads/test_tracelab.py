"""TraceLab: content derived from what a provider served from its cache."""

import pytest
from trace_files import lines, round_of

from workloads.content import own_prompt
from workloads.sharing import prefix_hits
from workloads.trace import TraceError
from workloads.tracelab import TraceLab


def test_cached_tokens_are_those_of_the_round_before_in_the_session(write):
    rows = [
        round_of("a", 0, 90, 60),  # cached from before: nobody knows with whom it shares
        round_of("a", 1, 120, 80),
        round_of("a", 2, 130, 30),
        round_of("a", 3, 140, 100),
    ]
    trace = TraceLab(write("t.jsonl", lines(*rows))).load(0)
    assert prefix_hits(trace.content).tolist() == [0, 80, 30, 100]
    assert trace.content.runs(3) == [
        (own_prompt(0), 0, 30),
        (own_prompt(2), 30, 70),
        (own_prompt(3), 100, 40),
    ]


def test_sessions_share_nothing_and_are_sorted_by_their_last_input(write):
    rows = [
        round_of("a", 3, 90, 0),
        round_of("a", 4, 120, 80),
        round_of("b", 0, 90, 0),
        round_of("b", 1, 120, 50),
    ]
    trace = TraceLab(write("t.jsonl", lines(*rows))).load(0)
    assert trace.arrival_s.tolist() == [0, 60, 180, 240]
    assert trace.session.tolist() == [1, 1, 0, 0]
    assert prefix_hits(trace.content).tolist() == [0, 50, 0, 80]
    assert trace.notes == {"moved by sorting": 4}


def test_what_is_cached_beyond_the_round_before_is_cut_and_counted(write):
    rows = [round_of("a", 0, 90, 0), round_of("a", 1, 120, 100)]
    trace = TraceLab(write("t.jsonl", lines(*rows))).load(0)
    assert prefix_hits(trace.content).tolist() == [0, 90]
    assert trace.notes == {"altered: prefix_tokens cut to the prompt of the round before": 1}


def test_a_provider_that_does_not_say_what_it_cached_shares_nothing(write):
    rows = [round_of("a", 0, 90, None), round_of("a", 1, 120, None)]
    trace = TraceLab(write("t.jsonl", lines(*rows))).load(0)
    assert prefix_hits(trace.content).tolist() == [0, 0]
    assert trace.notes == {"altered: prefix_tokens null, taken as none": 2}


def test_a_round_arrives_at_the_last_of_its_inputs(write):
    row = round_of("a", 0, 90, 0)
    late = {"event_type": "user_message", "timestamp": "2026-06-01T05:00:25.5Z"}
    trace = TraceLab(
        write("t.jsonl", lines(row, {**round_of("b", 0, 9, 0), "timing_events": [late]}))
    ).load(0)
    assert trace.arrival_s.tolist() == [0, 5.349]


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"session_id": None}, "session_id is None; accepted: text"),
        ({"round_index": "0"}, "round_index is '0'; accepted: a whole number"),
        ({"round_index": 3}, "round_index is 3; accepted: a whole number above .* last one, 3"),
        ({"prefix_tokens": 91}, "prefix_tokens is 91; accepted: null, or 0 up to the prompt"),
        ({"prefix_tokens": "x"}, "prefix_tokens is 'x'; accepted: null, or"),
        ({"input_tokens_total": None}, "input_tokens_total is None; accepted: a whole number"),
        ({"output_tokens": None}, "output_tokens is None; accepted: a whole number"),
        ({"timing_events": []}, "the last input's timestamp is None; accepted: a time"),
        ({"timing_events": None}, "the last input's timestamp is None; accepted: a time"),
    ],
)
def test_a_bad_row_is_one_sentence_and_can_be_dropped(write, change, sentence):
    path = write("t.jsonl", lines(round_of("a", 3, 90, 0), {**round_of("a", 4, 90, 0), **change}))
    with pytest.raises(TraceError, match=f"line 2: {sentence}"):
        TraceLab(path).load(0)
    trace = TraceLab(path, on_bad_row="drop").load(0)
    assert len(trace) == 1
    assert sum(trace.notes.values()) == 1
