"""The Azure traces: both years' forms, exactly."""

from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path

import numpy as np
import pytest

from workloads import open_file
from workloads.azure import Azure
from workloads.summary import summarize
from workloads.trace import TraceError

HEADER = "TIMESTAMP,ContextTokens,GeneratedTokens\r\n"
ROWS_2023 = ["2023-11-16 18:15:46.6805900,374,44", "2023-11-16 18:15:50.9951690,396,109"]
ROWS_2024 = [
    "2024-05-10 00:00:00.009930+00:00,2162,5",
    "2024-05-10 00:00:01+00:00,2399,6",
    "2024-05-10 00:00:01.000001+00:00,76,15",
]


def test_the_2023_form_is_read_to_100_ns_and_starts_at_0(write):
    trace = Azure(write("conv.csv", HEADER + "\r\n".join(ROWS_2023))).load(0)
    assert trace.arrival_ns.tolist() == [0, 4_314_579_000]
    assert trace.prompt_tokens.tolist() == [374, 396]
    assert trace.output_tokens.tolist() == [44, 109]
    assert trace.max_tokens is None
    assert trace.provides == {"arrivals"}


def test_the_2024_form_has_an_offset_and_may_leave_the_fraction_out(write):
    trace = Azure(write("week.csv", HEADER + "\n".join(ROWS_2024) + "\n")).load(0)
    assert trace.arrival_ns.tolist() == [0, 990_070_000, 990_071_000]


def test_a_packed_file_is_read_like_a_plain_one(write):
    content = HEADER + "\r\n".join(ROWS_2023)
    plain, packed = (Azure(write(name, content)).load(0) for name in ("a.csv", "a.csv.gz"))
    assert plain.digest() == packed.digest()


def test_both_forms_may_meet_in_one_file(write):
    trace = Azure(write("both.csv", HEADER + "\n".join([ROWS_2023[0], *ROWS_2024]))).load(0)
    assert trace.arrival_ns[1] > 0


@pytest.mark.parametrize(
    ("row", "sentence"),
    [
        (
            "XXX,42,285",
            "TIMESTAMP is 'XXX'; accepted: a time such as 2023-11-16 18:15:46.6805900 or "
            "2024-05-10 00:00:00.009930+00:00, from 1970 to 2261",
        ),
        ("2023-11-16 18:16:00,0,1", "ContextTokens is '0'; accepted: a whole number from 1 to "),
        ("2023-11-16 18:16:00,5,-1", "GeneratedTokens is '-1'; accepted: a whole number from "),
        ("2023-11-16 18:16:00,5", "has 2 cells; accepted: 3, as in the header"),
    ],
)
def test_a_bad_row_is_refused_with_its_line(write, row, sentence):
    path = write("bad.csv", HEADER + "\r\n".join([*ROWS_2023, row, *ROWS_2023]))
    with pytest.raises(TraceError) as error:
        Azure(path).load(0)
    assert str(error.value).startswith(f"{path}: line 4: {sentence}")


def test_rows_out_of_order_are_refused_or_sorted_as_asked(write):
    path = write("back.csv", HEADER + "\n".join(reversed(ROWS_2023)))
    with pytest.raises(TraceError, match=r"line 3 arrives 4\.31458 s before line 2; accepted: "):
        Azure(path).load(0)
    trace = Azure(path, unsorted="sort").load(0)
    assert trace.prompt_tokens.tolist() == [374, 396]
    assert trace.notes == {"moved by sorting": 2}


def test_bad_rows_are_dropped_on_request_and_counted_by_reason(write):
    rows = [ROWS_2023[0], "XXX,42,285", "2023-11-16 18:15:47,0,1", "half", ROWS_2023[1]]
    trace = Azure(write("bad.csv", HEADER + "\r\n".join(rows)), on_bad_row="drop").load(0)
    assert trace.arrival_ns.tolist() == [0, 4_314_579_000]
    assert trace.notes == {
        "dropped: TIMESTAMP not accepted": 1,
        "dropped: ContextTokens not accepted": 1,
        "dropped: wrong number of cells": 1,
    }


@pytest.mark.parametrize(
    ("options", "seconds", "notes"),
    [
        ({"limit": 2}, [0, 1], {"cut: beyond limit": 4}),
        ({"limit": 6}, [0, 1, 2, 3, 4, 5], {}),
        ({"duration_s": 2}, [0, 1], {"cut: outside start_s and duration_s": 4}),
        ({"start_s": 2.5}, [0, 1, 2], {"cut: outside start_s and duration_s": 3}),
        (
            {"start_s": 1, "duration_s": 3, "limit": 1},
            [0],
            {"cut: outside start_s and duration_s": 3, "cut: beyond limit": 2},
        ),
    ],
)
def test_limit_and_slices_are_cut_counted_and_start_at_0(write, options, seconds, notes):
    rows = "".join(f"2023-11-16 18:15:4{second},{second + 1},9\n" for second in range(6))
    trace = Azure(write("six.csv", HEADER + rows), **options).load(0)
    assert trace.arrival_s.tolist() == seconds
    assert trace.notes == notes


def test_a_slice_without_requests_is_refused(write):
    path = write("conv.csv", HEADER + "\r\n".join(ROWS_2023))
    with pytest.raises(TraceError, match=r"no request arrives from 9 s to 10 s; the last one "):
        Azure(path, start_s=9, duration_s=1).load(0)


def test_every_row_of_the_published_trace_is_exact_to_100_ns(traces):
    path = traces / "azure/AzureLLMInferenceTrace_conv.csv"
    rows = [line.split(",") for line in Path(path).read_text().splitlines()[1:]]
    start = datetime.fromisoformat(rows[0][0][:19])
    expected = []
    for stamp, _, _ in rows:
        whole = datetime.fromisoformat(stamp[:19]) - start
        expected.append((whole.days * 86400 + whole.seconds) * 10**7 + int(stamp[20:]))
    trace = Azure(str(path)).load(0)
    assert trace.arrival_ns.tolist() == [(tick - expected[0]) * 100 for tick in expected]
    assert trace.prompt_tokens.tolist() == [int(prompt) for _, prompt, _ in rows]
    assert trace.output_tokens.tolist() == [int(output) for _, _, output in rows]


def test_the_published_trace_is_read_as_its_statistics_say(traces):
    name = "azure/AzureLLMInferenceTrace_conv.csv"
    expected = json.loads((traces / "EXPECTED.json").read_text())[name]
    file = open_file(str(traces / name))
    assert isinstance(file, Azure)
    trace = file.load(0)
    facts = summarize(trace)
    for key in ("rows", "prompt_sum", "output_sum"):
        assert facts[key] == expected[key]
    for column in ("prompt", "output"):
        assert {k: round(facts[column][k], 2) for k in expected[column]} == expected[column]
    for key, digits in {"span_s": 3, "rate_per_s": 4, "iat_cv": 3, "dispersion_1s": 3}.items():
        assert round(facts["arrivals"][key], digits) == expected["arrivals"][key]
    assert facts["arrivals"]["zero_gaps"] == expected["arrivals"]["zero_gaps"]
    assert trace.arrival_ns[-1] == 3_501_721_937_000
    assert trace.notes == {}


def test_a_slice_of_the_published_trace_starts_at_its_first_arrival(traces):
    path = str(traces / "azure/AzureLLMInferenceTrace_conv.csv")
    whole = Azure(path).load(0)
    ten_minutes = Azure(path, start_s=600.0, duration_s=600.0).load(0)
    inside = whole.arrival_ns[(whole.arrival_s >= 600) & (whole.arrival_s < 1200)]
    assert np.array_equal(ten_minutes.arrival_ns, inside - inside[0])
    assert sum(ten_minutes.notes.values()) == len(whole) - len(inside)
