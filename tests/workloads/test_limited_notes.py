"""Notes of a trace that is a part of its file."""

import pytest

from workloads.bailian import Bailian
from workloads.burstgpt import BurstGPT
from workloads.combine import Filter
from workloads.lmcache_agent import LMCacheAgent
from workloads.table import Table

HEADER = "arrival_s,prompt_tokens,output_tokens\n"


def notes(file):
    return file.load(0).notes


def test_rows_that_were_altered_but_cut_are_not_counted(write):
    path = write("t.csv", HEADER + "0,1,0\n1,1,1\n2,0,1\n3,1,0\n4,0,0\n")
    output, prompt = (f"altered: no {part}, taken as one token" for part in ("output", "prompt"))
    assert notes(Table(path, zero_tokens="one")) == {output: 3, prompt: 2}
    limited = notes(Table(path, zero_tokens="one", limit=2))
    assert limited == {output: 1, "cut: beyond limit": 3}
    late = notes(Table(path, zero_tokens="one", start_s=2.0, duration_s=1.0))
    assert late == {prompt: 1, "cut: outside start_s and duration_s": 4}
    lengths = Table(path, zero_tokens="one", limit=2).lengths()
    assert lengths.notes == {**limited, "ignored: column 'arrival_s', in the whole file": 5}


def test_rows_that_were_moved_but_cut_are_not_counted(write):
    path = write("t.csv", HEADER + "0,1,1\n3,1,2\n2,1,3\n9,1,4\n8,1,5\n7,1,6\n")
    assert notes(Table(path, unsorted="sort")) == {"moved by sorting": 4}
    limited = notes(Table(path, unsorted="sort", limit=2))
    assert limited == {"moved by sorting": 1, "cut: beyond limit": 4}
    assert notes(Table(path, unsorted="sort", limit=1)) == {"cut: beyond limit": 5}


def test_what_was_counted_while_reading_says_that_it_is_of_the_whole_file(write):
    rows = "0,0,1,1\n0,0,1,1\n0,0,1,1\n0,0,-1,1\n"
    path = write("t.csv", "x,arrival_s,prompt_tokens,output_tokens\n" + rows)
    ignored, dropped = "ignored: column 'x'", "dropped: prompt_tokens not accepted"
    assert notes(Table(path, on_bad_row="drop")) == {ignored: 3, dropped: 1}
    assert notes(Table(path, on_bad_row="drop", limit=3)) == {ignored: 3, dropped: 1}
    limited = notes(Table(path, on_bad_row="drop", limit=2))
    whole = {f"{ignored}, in the whole file": 3, f"{dropped}, in the whole file": 1}
    assert limited == {**whole, "cut: beyond limit": 1}
    table = {"kind": "table", "path": path, "on_bad_row": "drop"}
    filtered = notes(Filter({**table, "limit": 2}, limit=1))
    assert filtered == {**whole, "cut: beyond limit": 2}
    of_workload = notes(Filter(table, limit=1))
    assert of_workload[f"{dropped}, in the whole workload"] == 1


def test_follow_ups_that_a_cut_leaves_without_their_turn_are_counted_as_kept(write):
    rows = [(0, 9, 0), (1, 0, 1), (2, 1, 2), (3, 1, 3)]
    text = "".join(
        f'{{"chat_id": {chat}, "parent_chat_id": {parent}, "timestamp": {time}, "type": "text", '
        f'"turn": 1, "input_length": 16, "output_length": 1, "hash_ids": [{chat}]}}\n'
        for chat, parent, time in rows
    )
    path = write("b.jsonl", text)
    orphans = "follow-ups whose turn before is not there"
    for options, count in (({}, 1), ({"start_s": 2.0}, 2), ({"start_s": 2.0, "limit": 1}, 1)):
        assert notes(Bailian(path, **options))[orphans] == count
    again = Filter({"kind": "bailian", "path": path, "start_s": 2.0}, start_s=0.5)
    assert notes(again)[f"{orphans}, in the whole workload"] == 2


@pytest.mark.parametrize("limit", [1, 50, 200])
def test_no_more_rows_are_altered_than_a_limited_public_trace_has(traces, limit):
    for kind, name in (
        (LMCacheAgent, "lmcache-agent/taubench_blksz_16.jsonl.gz"),
        (BurstGPT, "burstgpt/BurstGPT_1.csv"),
    ):
        trace = kind(str(traces / name), zero_tokens="one", limit=limit).load(0)
        altered = [count for note, count in trace.notes.items() if note.startswith("altered")]
        assert sum(altered) <= 2 * limit
