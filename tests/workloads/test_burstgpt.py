"""BurstGPT: both forms of the log, failed calls, sessions, one service of two."""

from __future__ import annotations

import pytest

from workloads import open_file
from workloads.burstgpt import BurstGPT
from workloads.trace import TraceError

FIRST = "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
LATER = (
    "Timestamp,Session ID,Elapsed time,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
)
ROWS = (
    "5,ChatGPT,472,18,490,Conversation log\n"
    "45,GPT-4,1087,230,1317,API log\n"
    "118,ChatGPT,0,0,0,API log\n"
)
LATER_ROWS = (
    "19440110.0,,0.5,GPT-4,30,4,34,API log\n"
    "19440110.25,b1,3.0,ChatGPT,5,6,11,Conversation log\n"
    "19440112.0,a2,3.5,ChatGPT,7,8,15,Conversation log\n"
    "19440115.5,,0.1,GPT-4,30,4,34,API log\n"
    "19440116.0,b1,2.0,ChatGPT,12,9,21,Conversation log\n"
)


def test_both_forms_are_read_by_the_names_of_their_columns(write):
    first = BurstGPT(write("a.csv", FIRST + ROWS), zero_tokens="drop").load(0)
    assert first.arrival_s.tolist() == [0, 40]
    assert first.prompt_tokens.tolist() == [472, 1087]
    assert first.provides == {"arrivals"}
    later = BurstGPT(write("b.csv", LATER + LATER_ROWS)).load(0)
    assert later.arrival_s.tolist() == [0, 0.25, 2, 5.5, 6]
    assert later.prompt_tokens.tolist() == [30, 5, 7, 30, 12]
    assert later.output_tokens.tolist() == [4, 6, 8, 4, 9]
    assert later.notes == {"ignored: column 'Elapsed time'": 5}


def test_a_session_is_named_or_one_request(write):
    for end in ("\n", "\n\n\n", '\n"19440117.0",,1,GPT-4,1,1,2,API log\n'):
        path = write("b.csv", LATER + LATER_ROWS.rstrip("\n") + end)
        trace = BurstGPT(path, limit=5).load(0)
        assert trace.session.tolist() == [0, 1, 2, 3, 1]
        assert "sessions" in trace.provides


@pytest.mark.parametrize(
    ("rule", "prompts", "notes"),
    [
        ("drop", [472, 1087], {"dropped: no prompt": 1}),
        (
            "one",
            [472, 1087, 1],
            {
                "altered: no prompt, taken as one token": 1,
                "altered: no output, taken as one token": 1,
            },
        ),
    ],
)
def test_a_failed_call_is_refused_dropped_or_taken_as_one_token(write, rule, prompts, notes):
    path = write("a.csv", FIRST + ROWS)
    with pytest.raises(TraceError, match=r"line 4: Request tokens is '0'; accepted: a whole "):
        BurstGPT(path).load(0)
    trace = BurstGPT(path, zero_tokens=rule).load(0)
    assert trace.prompt_tokens.tolist() == prompts
    assert trace.notes == notes


def test_calls_of_one_service_or_one_kind_are_kept_and_the_others_counted(write):
    path = write("b.csv", LATER + LATER_ROWS)
    chats = BurstGPT(path, model="ChatGPT").load(0)
    assert chats.prompt_tokens.tolist() == [5, 7, 12]
    assert chats.arrival_s.tolist() == [0, 1.75, 5.75]
    assert chats.notes["left out: Model is not ChatGPT"] == 2
    calls = BurstGPT(path, log_type="API log").load(0)
    assert calls.prompt_tokens.tolist() == [30, 30]
    assert calls.notes["left out: Log Type is not API log"] == 3


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"model": "GPT"}, "no row has Model 'GPT'; Models found: 'GPT-4', 'ChatGPT'"),
        (
            {"model": "GPT-4", "log_type": "Conversation log"},
            "no row has Model 'GPT-4' and Log Type 'Conversation log'; Log Types found: "
            "'API log', 'Conversation log'",
        ),
    ],
)
def test_a_service_that_is_not_there_is_refused(write, options, sentence):
    path = write("b.csv", LATER + LATER_ROWS)
    with pytest.raises(TraceError) as error:
        BurstGPT(path, **options).load(0)
    assert str(error.value) == f"{path}: {sentence}"


def test_a_name_that_is_none_is_refused(write):
    for name in ("", " ", 4):
        with pytest.raises(ValueError, match=r"^model: must be a name as in the file, got "):
            BurstGPT("b.csv", model=name)


def test_totals_that_are_not_the_sum_are_counted(write):
    trace = BurstGPT(write("a.csv", FIRST + "5,GPT-4,2,3,6,API log\n6,GPT-4,2,3,5,API log\n"))
    note = {"kept: Total tokens is not the sum of prompt and output": 1}
    assert trace.load(0).notes == note


def test_the_published_log_has_seventeen_failed_calls(traces):
    file = open_file(str(traces / "burstgpt/BurstGPT_1.csv"))
    assert file.kind == "burstgpt"
    trace = BurstGPT(file.path, zero_tokens="drop").load(0)
    assert len(trace) == 383
    assert trace.notes == {"dropped: no prompt": 17}
    assert round(trace.prompt_tokens.mean(), 1) == 543.6
    assert round(trace.output_tokens.mean(), 1) == 288.8


def test_a_log_of_nothing_but_failed_calls_has_no_requests(write):
    path = write("a.csv", FIRST + "118,ChatGPT,0,0,0,API log\n")
    for options in ({}, {"start_s": 5.0}, {"duration_s": 5.0}):
        with pytest.raises(
            TraceError, match=r"a\.csv: no row is left that has a prompt; at least one "
        ):
            BurstGPT(path, zero_tokens="drop", **options).load(0)
