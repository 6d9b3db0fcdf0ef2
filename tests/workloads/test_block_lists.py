"""Lists of block ids: too short, not there, and keys beside them."""

import json

import pytest
from trace_files import SESSION, agent

from workloads.kv_cache_tester import KVCacheTester
from workloads.mooncake import Mooncake
from workloads.trace import TraceError

ROW = {"timestamp": 0, "input_length": 600, "output_length": 5, "hash_ids": [0, 1]}
TOO_SHORT = "block ids that cover less than the prompt"


def mooncake(write, *rows):
    return Mooncake(write("m.jsonl", "".join(json.dumps(row) + "\n" for row in rows)))


def test_lists_that_cover_less_than_the_prompt_are_counted(write):
    short = [ROW | {"hash_ids": ids} for ids in ([0], [], [0, 1])]
    assert mooncake(write, *short).load(0).notes == {TOO_SHORT: 2}


def test_of_whole_blocks_only_a_whole_one_may_be_missing(write):
    requests = [agent(t, 130, 5, ids) for t, ids in enumerate(([1, 2], [1], []))]
    path = write("t.json", json.dumps({**SESSION, "requests": requests}))
    assert KVCacheTester(path).load(0).notes == {TOO_SHORT: 2}


def test_a_row_without_a_list_is_refused_by_its_name(write):
    row = {key: value for key, value in ROW.items() if key != "hash_ids"}
    with pytest.raises(TraceError, match=r"line 2: has no hash_ids$"):
        mooncake(write, ROW, row).load(0)


def test_keys_that_the_format_does_not_know_are_counted_by_name(write):
    rows = [ROW | {"lora": 1}, ROW | {"lora": 1, "user": "x"}, ROW]
    assert mooncake(write, *rows).load(0).notes == {
        "ignored: key 'lora'": 2,
        "ignored: key 'user'": 1,
    }


def test_of_many_unknown_keys_the_first_are_named(write):
    notes = mooncake(write, ROW | {f"k{n:02}": n for n in range(50)}).load(0).notes
    assert notes.pop("ignored: further keys") == 30
    assert notes == {f"ignored: key 'k{n:02}'": 1 for n in range(20)}
