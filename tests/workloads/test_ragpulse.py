"""RAGPulse: prompts of parts that have lengths of their own."""

from pathlib import Path

import pytest
from trace_files import COMPANION_FILES, lines, pulse

from workloads.content import own_prompt
from workloads.ragpulse import RAGPulse
from workloads.sharing import prefix_hits
from workloads.trace import TraceError

pytestmark = pytest.mark.usefixtures("companions")
PARTS = [[10], [20, 21], [30], [50], [40]]  # 16, 6 + 10, 11, 4 and 9 tokens


def test_parts_stand_in_the_order_of_a_prompt_and_separators_are_its_own(write):
    trace = RAGPulse(write("0_trace.jsonl", lines(pulse("82", 65, PARTS, "s")))).load(0)
    runs = trace.content.runs(0)
    assert [length for *_, length in runs] == [16, 6, 10, 11, 4, 9, 9]
    assert len({source for source, *_ in runs}) == 7
    assert runs[-1] == (own_prompt(0), 56, 9)
    assert trace.arrival_ns.tolist() == [82 * 10**9]


def test_a_prompt_shares_the_parts_that_it_begins_with(write):
    rows = [
        pulse("0", 60, PARTS, "s"),
        pulse("1", 40, [[10], [20], [], [], [40]], "t"),  # the same until the second passage
        pulse("2", 20, [[], [20], [], [], [40]], "t"),  # a passage that opens no earlier prompt
        pulse("3", 60, PARTS, "s"),
    ]
    trace = RAGPulse(write("0_trace.jsonl", lines(*rows))).load(0)
    assert prefix_hits(trace.content).tolist() == [0, 22, 0, 56]
    assert trace.session.tolist() == [0, 1, 1, 0]


def test_a_file_whose_times_go_back_is_refused_or_sorted(write):
    rows = [pulse("82", 60, PARTS, "s"), pulse("0", 60, PARTS, "t")]
    path = write("0_trace.jsonl", lines(*rows))
    with pytest.raises(TraceError, match="line 2 arrives 82 s before line 1"):
        RAGPulse(path).load(0)
    trace = RAGPulse(path, unsorted="sort").load(0)
    assert trace.arrival_ns.tolist() == [0, 82 * 10**9]
    assert trace.notes == {"moved by sorting": 2}


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"input_length": 55}, "line 1: hash_ids has 56 tokens for a prompt of 55; accepted: no"),
        ({"session_id": 7}, "line 1: session_id is 7; accepted: text"),
        ({"hash_ids": [1]}, r"line 1: hash_ids is \[1\]; accepted: an object with sys_prompt, "),
        ({"hash_ids": {"history": []}}, "line 1: hash_ids is .*; accepted: an object with sys_"),
        ({"timestamp": "noon"}, "line 1: timestamp is 'noon'; accepted: seconds, "),
    ],
)
def test_a_bad_row_is_one_sentence_and_can_be_dropped(write, change, sentence):
    good = pulse("0", 60, PARTS, "s")
    path = write("0_trace.jsonl", lines({**good, **change}, good))
    with pytest.raises(TraceError, match=sentence):
        RAGPulse(path).load(0)
    trace = RAGPulse(path, on_bad_row="drop").load(0)
    assert len(trace) == 1
    assert sum(trace.notes.values()) == 1


@pytest.mark.parametrize("part", [["20"], [True], 20, None])
def test_ids_that_are_no_ids_are_refused(write, part):
    path = write("0_trace.jsonl", lines(pulse("0", 60, [[10], part, [], [], []], "s")))
    with pytest.raises(TraceError, match=r"line 1: passages_ids is .*; accepted: a list of ids"):
        RAGPulse(path).load(0)


def test_an_id_without_a_length_is_refused(write):
    path = write("0_trace.jsonl", lines(pulse("0", 60, [[10], [99], [], [], []], "s")))
    with pytest.raises(
        TraceError, match=r"line 1: passages_ids has 99, which is not in 2_passages\.jsonl"
    ):
        RAGPulse(path).load(0)


def test_tables_may_be_packed_and_must_be_there(write, companions):
    path = write("0_trace.jsonl", lines(pulse("0", 60, PARTS, "s")))
    plain = RAGPulse(path).load(0)
    (companions / "4_user_input.jsonl").unlink()
    with pytest.raises(TraceError, match=r"its table 4_user_input\.jsonl is not there; accepted"):
        RAGPulse(path).load(0)
    write("4_user_input.jsonl.gz", COMPANION_FILES["4_user_input.jsonl"])
    assert RAGPulse(path).load(0).digest() == plain.digest()


def test_a_table_with_an_id_twice_is_refused(write):
    table = Path(write("3_history.jsonl", lines(*[{"history_id": 1, "token_length": 2}] * 2)))
    path = write("0_trace.jsonl", lines(pulse("0", 60, PARTS, "s")))
    with pytest.raises(TraceError, match=f"{table.name}: an id of history_id stands twice"):
        RAGPulse(path).load(0)
