"""Looking at a file shows what is there, and says what a run would make of it."""

from __future__ import annotations

import numpy as np
import pytest
from trace_files import ended, lines

from workloads.inspection import inspect_file, validate_file
from workloads.trace import TraceError

HEADER = "arrival_s,prompt_tokens,output_tokens\n"


def test_a_good_file_shows_the_trace_that_a_run_would_have(write):
    found = inspect_file(write("t.csv", HEADER + "0,3,4\n2,5,6\n"))
    facts = found.facts()
    assert (facts["format"], facts["rows"], facts["refusal"]) == ("table", 2, None)
    assert facts["digest"] is not None
    assert facts["sharing"] is None
    assert facts["arrivals"]["rate_per_s"] == 0.5


def test_rows_without_tokens_are_shown_with_what_reads_them(write):
    facts = inspect_file(write("t.csv", HEADER + "0,3,4\n2,0,0\n3,1,0\n")).facts()
    assert (facts["rows"], facts["zero_prompt"], facts["zero_output"]) == (3, 1, 2)
    assert "line 3: prompt_tokens is '0'" in facts["refusal"]
    assert facts["read_with"] == {"zero_tokens": "one"}
    assert facts["digest"] is not None


def test_all_that_a_run_refuses_is_asked_for_at_once(write):
    path = write("t.csv", HEADER + "0,3,4\n2,0,0\n1,1,x\n1,5,5\n")
    facts = inspect_file(path).facts()
    assert facts["read_with"] == {"on_bad_row": "drop", "zero_tokens": "one", "unsorted": "sort"}
    assert facts["notes"] == {"dropped: output_tokens not accepted": 1, "moved by sorting": 2}
    assert facts["arrivals"]["span_s"] == 2


def test_a_file_that_nothing_helps_says_so(write):
    with pytest.raises(TraceError, match="no column output_tokens"):
        inspect_file(write("t.csv", "arrival_s,prompt_tokens\n0,3\n"))


def test_what_prompts_share_is_a_share_of_all_prompt_tokens(write):
    lines = (
        '{"timestamp": 0, "input_length": 1000, "output_length": 5, "hash_ids": [0, 1]}\n'
        '{"timestamp": 9, "input_length": 600, "output_length": 5, "hash_ids": [0, 2]}\n'
        '{"timestamp": 9, "input_length": 600, "output_length": 5, "hash_ids": [0, 2]}\n'
    )
    sharing = inspect_file(write("t.jsonl", lines)).facts()["sharing"]
    assert sharing["hit_tokens"] == 512 + 600
    assert sharing["hit_frac"] == pytest.approx(1112 / 2200)
    assert sharing["hit_block_frac"] == pytest.approx((512 + 592) / 2200)
    assert sharing["full_hits"] == 1


def test_validation_counts_every_kind_of_problem_and_names_the_first_of_each(write):
    rows = "0,3,4\n2,0,0\n1,1,x\n1,5,5\nx,1,1\n5,1,y\n6,1\n7,2,0\n"
    found = validate_file(write("t.csv", HEADER + rows))
    assert [(p.reason, p.count, p.first) for p in found.problems] == [
        (
            "output_tokens not accepted",
            2,
            "line 4: output_tokens is 'x'; accepted: a whole number from 0 to 2147483647",
        ),
        (
            "arrival_s not accepted",
            1,
            "line 6: arrival_s is 'x'; accepted: seconds, a number from 0 to 4611686018",
        ),
        ("wrong number of cells", 1, "line 8: has 2 cells; accepted: 3, as in the header"),
        ("no prompt", 1, "line 3: prompt of 0 tokens"),
        ("no output", 2, "line 3: output of 0 tokens"),
        ("time goes backwards", 1, "line 5: arrives 1 s before the row ahead of it"),
    ]
    assert found.num_good == 2


def test_validation_of_a_file_without_a_good_row_still_names_its_problems(write):
    found = validate_file(write("t.csv", HEADER + "a,1,1\nb,1,1\n"))
    assert (found.num_good, [p.count for p in found.problems]) == (0, [2])
    assert found.problems[0].first.startswith("line 2: arrival_s is 'a'")


def test_what_a_format_puts_right_by_itself_is_no_problem(write):
    rows = [ended(received_ms, 40, [7, 8, 9], "s") for received_ms in (2000, 1000)]
    found = validate_file(write("t.jsonl", lines(*rows)))
    assert (found.kind, found.num_good, found.problems) == ("dynamo", 2, [])
    empty = ended(1500, 40, [7, 8, 9], "s")
    empty["event"]["request"]["output_tokens"] = 0
    facts = inspect_file(write("u.jsonl", lines(*rows, empty))).facts()
    assert facts["read_with"] == {"zero_tokens": "one"}


def test_a_clean_file_has_no_problems_and_an_empty_one_cannot_be_read(write):
    assert validate_file(write("t.csv", HEADER + "0,3,4\n0,3,4\n")).problems == []
    with pytest.raises(TraceError, match="there are no rows"):
        validate_file(write("t.csv", HEADER))


def test_public_traces_have_the_sharing_that_is_known(traces):
    path = traces / "mooncake" / "mooncake_trace_1000.jsonl"
    facts = inspect_file(str(path)).facts()
    assert round(facts["sharing"]["hit_frac"], 3) == 0.391
    assert np.isclose(facts["arrivals"]["dispersion_1s"], 12.4, atol=0.05)
