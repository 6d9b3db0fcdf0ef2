"""What is wrong with a file as a whole, in one sentence."""

import gzip
import json

import pytest

from workloads import open_file
from workloads.mooncake import Mooncake
from workloads.table import Table
from workloads.trace import TraceError

TEXT = "arrival_s,prompt_tokens,output_tokens\n0,1,2\n1,x,2\n"
ROW = '{"timestamp": 0, "input_length": 9, "output_length": 5, "hash_ids": [0]}\n'
CAUSES = {
    "empty": (b"", "is empty; at least one request is needed"),
    "blank": (b"\n \n", "is empty; at least one request is needed"),
    "utf-16": (TEXT.encode("utf-16"), "is UTF-16 text; accepted: UTF-8"),
    "utf-16 without a mark": (TEXT.encode("utf-16-le"), "is UTF-16 text; accepted: UTF-8"),
    "packed twice": (gzip.compress(gzip.compress(TEXT.encode())), "is packed twice; accepted: "),
    "carriage returns": (TEXT.replace("\n", "\r").encode(), "its lines end in a carriage return;"),
}


@pytest.mark.parametrize(("content", "sentence"), CAUSES.values(), ids=CAUSES.keys())
def test_a_file_of_no_format_is_refused_with_the_cause(write, content, sentence):
    path = write("t", content)
    with pytest.raises(TraceError) as error:
        open_file(path)
    assert str(error.value).startswith(f"{path}: {sentence}")


@pytest.mark.parametrize("kind", [Table, Mooncake])
@pytest.mark.parametrize("cause", ["utf-16", "packed twice"])
def test_the_cause_is_the_same_where_the_format_is_named(write, kind, cause):
    content, sentence = CAUSES[cause]
    with pytest.raises(TraceError, match=sentence):
        kind(write("t.csv", content)).load(0)


def test_lines_that_end_in_carriage_returns_are_named_by_every_reader(write):
    ends = "accepted: lines that end in a line feed"
    with pytest.raises(TraceError, match=ends):
        Table(write("t.csv", TEXT.replace("\n", "\r"))).load(0)
    with pytest.raises(TraceError, match=f"line 1: holds a carriage return; {ends}"):
        Mooncake(write("m.jsonl", (ROW * 2).replace("\n", "\r"))).load(0)


def test_a_key_that_stands_twice_is_named(write):
    twice = ROW.replace("}", ', "input_length": 9}')
    with pytest.raises(TraceError, match="line 2: is not a JSON object: the key 'input_length' st"):
        Mooncake(write("m.jsonl", ROW + twice)).load(0)


def test_where_all_rows_are_dropped_the_first_reason_is_said(write):
    bad = json.dumps(json.loads(ROW) | {"input_length": 0}) + "\n"
    with pytest.raises(TraceError) as error:
        Mooncake(write("m.jsonl", bad + "{}\n"), on_bad_row="drop").load(0)
    assert "all 2 rows were dropped; at least one request is needed; the first: line 1: input_" in (
        str(error.value)
    )
