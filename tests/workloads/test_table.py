"""Tables in CSV, JSON lines and Parquet: what is read, and what each mistake is called."""

from __future__ import annotations

import gzip
import json

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from workloads import files, open_file, table
from workloads.table import Table
from workloads.trace import MAX_TOKENS, TraceError

HEADER = "arrival_s,prompt_tokens,output_tokens\n"
TOKENS = f"accepted: a whole number from 1 to {MAX_TOKENS}"
SECONDS = "accepted: seconds, a number from 0 to 4611686018"


def refusal(path, **options):
    with pytest.raises(TraceError) as error:
        Table(path, **options).load(0)
    message = str(error.value)
    assert "\n" not in message
    assert message.startswith(f"{path}: ")
    return message.removeprefix(f"{path}: ")


def objects(frame):
    return "".join(json.dumps(row) + "\n" for row in frame.to_dict("records"))


@pytest.mark.parametrize("name", ["t.csv", "t.csv.gz", "t.jsonl", "t.jsonl.gz", "t.parquet"])
@pytest.mark.parametrize("max_tokens", [None, [10, 20]])
def test_every_format_gives_the_same_trace(tmp_path, write, name, max_tokens):
    columns = {"arrival_s": [0.5, 1.25], "prompt_tokens": [3, 4], "output_tokens": [5, 6]}
    if max_tokens:
        columns["max_tokens"] = max_tokens
    frame = pd.DataFrame(columns)
    if name == "t.parquet":
        path = str(tmp_path / name)
        frame.to_parquet(path)
    else:
        path = write(name, frame.to_csv(index=False) if "csv" in name else objects(frame))
    trace = Table(path).load(0)
    assert trace.arrival_ns.tolist() == [500_000_000, 1_250_000_000]
    assert trace.prompt_tokens.tolist() == [3, 4]
    assert trace.output_tokens.tolist() == [5, 6]
    assert (None if trace.max_tokens is None else trace.max_tokens.tolist()) == max_tokens
    assert trace.provides == {"arrivals"} | ({"max_tokens"} if max_tokens else set())
    assert trace.notes == {}
    assert trace.source == path


@settings(max_examples=30, deadline=None)
@given(
    rows=st.lists(
        st.tuples(st.integers(0, 2**52), st.integers(1, MAX_TOKENS), st.integers(1, MAX_TOKENS)),
        min_size=1,
        max_size=20,
    ),
    name=st.sampled_from(["t.csv", "t.jsonl", "t.parquet"]),
)
def test_what_is_written_is_read_back_identical(tmp_path_factory, rows, name):
    columns = np.array(sorted(rows)).T
    frame = pd.DataFrame(
        {"arrival_s": columns[0] / 1e9, "prompt_tokens": columns[1], "output_tokens": columns[2]}
    )
    path = tmp_path_factory.mktemp("round") / name
    if name == "t.parquet":
        frame.to_parquet(path)
    else:
        path.write_text(frame.to_csv(index=False) if name == "t.csv" else objects(frame))
    trace = Table(str(path)).load(0)
    assert np.array_equal(columns[0], trace.arrival_ns)
    assert np.array_equal(columns[1], trace.prompt_tokens)
    assert np.array_equal(columns[2], trace.output_tokens)


@pytest.mark.parametrize(
    ("rows", "sentence"),
    [
        ("0,1,2\n1,-3,4\n", f"line 3: prompt_tokens is '-3'; {TOKENS}"),
        ("0,1,2\n1,3,0\n", f"line 3: output_tokens is '0'; {TOKENS}"),
        ("0,1.5,2\n", f"line 2: prompt_tokens is '1.5'; {TOKENS}"),
        ("0,NaN,2\n", f"line 2: prompt_tokens is 'NaN'; {TOKENS}"),
        ("0,,2\n", f"line 2: prompt_tokens is ''; {TOKENS}"),
        ("0,0x1F,2\n", f"line 2: prompt_tokens is '0x1F'; {TOKENS}"),
        ("0,99999999999999999999,2\n", f"prompt_tokens is '99999999999999999999'; {TOKENS}"),
        ("nan,1,2\n", f"line 2: arrival_s is 'nan'; {SECONDS}"),
        ("-0.5,1,2\n", f"line 2: arrival_s is '-0.5'; {SECONDS}"),
        ("soon,1,2\n", f"line 2: arrival_s is 'soon'; {SECONDS}"),
        ("0,1,2\n\n\n1,1,x\n", f"line 5: output_tokens is 'x'; {TOKENS}"),
        ("0,1\n", "line 2: has 2 cells; accepted: 3, as in the header"),
        ("0,1,2\n0,1,2,3\n", "line 3: has 4 cells; accepted: 3, as in the header"),
        ('0,1,"2\n', "line 2: is not CSV text; accepted: one row a line, quotes in pairs"),
        ("0,\udcff,2\n", f"line 2: prompt_tokens is '\ufffd'; {TOKENS}"),
        (
            "0,1,2\r0,3,4\n\n1,5,6\n",
            "line 2: is not CSV text; accepted: one row a line, quotes in pairs",
        ),
        (f"0,{MAX_TOKENS + 1},2\n", f"line 2: prompt_tokens is '{MAX_TOKENS + 1}'; {TOKENS}"),
        ("1e10,1,2\n", f"line 2: arrival_s is '1e10'; {SECONDS}"),
        ("inf,1,2\n", f"line 2: arrival_s is 'inf'; {SECONDS}"),
        (",1,2\n", f"line 2: arrival_s is ''; {SECONDS}"),
        ("0,1," + "9" * 60 + "\n", f"output_tokens is '{'9' * 38}…; {TOKENS}"),
        ("", "there are no rows; at least one request is needed"),
        (
            "2,1,1\n2,1,1\n1.5,1,1\n",
            "line 4 arrives 0.5 s before line 3; accepted: rows in order of arrival, "
            "or any order with 'unsorted: sort'",
        ),
    ],
)
def test_a_bad_csv_row_is_refused_with_its_line(write, rows, sentence):
    path = write("t.csv", (HEADER + rows).encode(errors="surrogateescape"))
    assert refusal(path).endswith(sentence)


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ("", "there are no rows; at least one request is needed"),
        ("\n \n\n", "there are no rows; at least one request is needed"),
        (
            "arrival_s,prompt_token,output_tokens\n0,1,2\n",
            "no column prompt_tokens, did you mean 'prompt_token'; "
            "found: 'arrival_s', 'prompt_token', 'output_tokens'",
        ),
        (
            "prompt_tokens,output_tokens\n1,2\n",
            "no column arrival_s; found: 'prompt_tokens', 'output_tokens'; "
            "for a file without arrival times use 'kind: lengths', which generates them",
        ),
        (
            "arrival_s,prompt_tokens,output_tokens,prompt_tokens\n0,1,2,3\n",
            "column 'prompt_tokens' stands more than once; accepted: each name once",
        ),
        ("version https://git-lfs.github.com/spec/v1\n", "is a Git LFS pointer; fetch the file"),
        (HEADER.encode("utf-16"), "is UTF-16 text; accepted: UTF-8"),
        (bytes(range(256)), "no column arrival_s; found: '\\x00\\x01"),
        (bytes(range(255, 0, -1)), "line 1 is not CSV text"),
        (HEADER, "there are no rows; at least one request is needed"),
    ],
)
def test_a_csv_file_without_a_usable_header_is_refused(write, content, sentence):
    assert refusal(write("t.csv", content)).startswith(sentence)


@pytest.mark.parametrize("end", ["", "\n", "\r\n", "\n\n\n", "\r\n\r\n \r\n"])
@pytest.mark.parametrize("start", [b"", b"\xef\xbb\xbf", b"\n\n", b"\xef\xbb\xbf\r\n"])
def test_line_ends_blank_lines_and_a_byte_order_mark_make_no_difference(write, start, end):
    line_end = "\r\n" if "\r" in end else "\n"
    body = line_end.join([HEADER.strip(), "0,1,2", "1,3,4"]) + end
    trace = Table(write("t.csv", start + body.encode())).load(0)
    assert trace.prompt_tokens.tolist() == [1, 3]
    assert trace.notes == {}


def test_blanks_and_quotes_around_numbers_make_no_difference(write):
    header = '"arrival_s",prompt_tokens , output_tokens\n'
    path = write("t.csv", header + '"0", 1 ,"2"\n1.0,3.0,4\n')
    trace = Table(path).load(0)
    assert trace.prompt_tokens.tolist() == [1, 3]


def test_other_columns_may_hold_text_of_any_encoding(write):
    for row in (b"0,1,2,caf\xe9\n", b'0,1,"2",caf\xe9\n'):
        trace = Table(write("t.csv", HEADER.strip().encode() + b",name\n" + row)).load(0)
        assert trace.output_tokens.tolist() == [2]


def test_other_columns_are_ignored_and_counted(write):
    content = "model," + HEADER + "a,0,1,2\nb,1,3,4\n"
    assert Table(write("t.csv", content)).load(0).notes == {"ignored: column 'model'": 2}


def test_unsorted_rows_are_sorted_stably_on_request_and_counted(write):
    path = write("t.csv", HEADER + "5,1,1\n3,2,1\n3,3,1\n9,4,1\n")
    trace = Table(path, unsorted="sort").load(0)
    assert trace.prompt_tokens.tolist() == [2, 3, 1, 4]
    assert trace.notes == {"moved by sorting": 3}


def test_bad_rows_are_dropped_on_request_and_counted_by_reason(write):
    path = write("t.csv", HEADER + "0,1,2\n1,0,2\n2,1,x\n3,0,2\n4,1\n5,7,8\n")
    trace = Table(path, on_bad_row="drop").load(0)
    assert trace.prompt_tokens.tolist() == [1, 7]
    assert trace.notes == {
        "dropped: prompt_tokens not accepted": 2,
        "dropped: output_tokens not accepted": 1,
        "dropped: wrong number of cells": 1,
    }


def test_a_file_of_bad_rows_only_is_refused_even_when_they_may_be_dropped(write):
    path = write("t.csv", HEADER + "0,0,2\n1,0,2\n")
    sentence = "all 2 rows were dropped; at least one request is needed"
    assert refusal(path, on_bad_row="drop").startswith(f"{sentence}; the first: line 2: ")


def test_a_missing_file_a_directory_and_a_damaged_one_are_refused(tmp_path, write):
    assert refusal(str(tmp_path / "none.csv")) == "no such file"
    (tmp_path / "folder.csv").mkdir()
    assert refusal(str(tmp_path / "folder.csv")) == "is a directory; accepted: a file"
    for name in ("\0.csv", "\ud800.csv"):
        with pytest.raises(TraceError, match="is no file name; accepted: text without zero"):
            Table(str(tmp_path / name)).load(0)
    packed = gzip.compress((HEADER + "0,1,2\n" * 100).encode())
    for damaged in (packed[:-12], packed[:12], packed[:20] + b"\0" * 40):
        assert refusal(write("t.csv", damaged)) == "the gzip data is damaged or cut short"


def test_a_packed_file_that_holds_nothing_is_refused(write):
    sentence = "there are no rows; at least one request is needed"
    assert refusal(write("t.csv.gz", "")) == sentence
    assert refusal(write("t.jsonl.gz", "")) == sentence


def test_a_line_without_an_end_is_refused_before_it_fills_memory(write, monkeypatch):
    monkeypatch.setattr(files, "BLOCK_BYTES", 100)
    monkeypatch.setattr(files, "MAX_LINE_BYTES", 50)
    path = write("t.csv", HEADER + "0,1,2\n" + "0" * 500)
    assert refusal(path).startswith("line 3 is longer than 50 bytes")


def test_rows_and_line_numbers_do_not_depend_on_where_blocks_end(write, monkeypatch):
    good = "".join(f"{i},{i + 1},1\n" for i in range(50))
    whole = Table(write("whole.csv", HEADER + good)).load(0)
    for size in (1, 7, 64, 200):
        monkeypatch.setattr(files, "BLOCK_BYTES", size)
        assert Table(write("cut.csv", HEADER + good)).load(0).digest() == whole.digest()
        assert refusal(write("bad.csv", HEADER + good + "60,0,1\n")).startswith("line 52: ")


def test_limit_and_slices_are_cut_and_counted(write):
    path = write("t.csv", HEADER + "".join(f"{i},{i + 1},1\n" for i in range(10)))
    trace = Table(path, limit=3).load(0)
    assert trace.prompt_tokens.tolist() == [1, 2, 3]
    assert trace.notes == {"cut: beyond limit": 7}
    trace = Table(path, start_s=2, duration_s=3, limit=2).load(0)
    assert trace.prompt_tokens.tolist() == [3, 4]
    assert trace.arrival_ns.tolist() == [0, 1_000_000_000]
    assert trace.notes == {"cut: outside start_s and duration_s": 7, "cut: beyond limit": 1}
    sentence = "no request arrives from 20 s to 25 s; the last one arrives at 9 s"
    assert refusal(path, start_s=20.0, duration_s=5.0) == sentence


def test_times_stay_as_they_are_written(write):
    trace = Table(write("t.csv", HEADER + "100,1,1\n")).load(0)
    assert trace.arrival_ns.tolist() == [100_000_000_000]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"path": ""}, "path: must be the name of a file, got ''"),
        ({"path": "t.csv", "format": "cvs"}, "format: 'cvs' is unknown, did you mean csv; "),
        ({"path": "t.csv", "limit": 0}, "limit: must be a whole number, at least 1, got 0"),
        ({"path": "t.csv", "on_bad_row": "skip"}, "on_bad_row: 'skip' is unknown; accepted: "),
        ({"path": "t.csv", "unsorted": "ok"}, "unsorted: 'ok' is unknown; accepted: error, sort"),
        ({"path": "t.csv", "start_s": -1}, "start_s: must be at least 0 and at most "),
        ({"path": "t.csv", "duration_s": 0}, "duration_s: must be above 0 and at most "),
    ],
)
def test_a_bad_parameter_is_refused_by_its_name(options, message):
    with pytest.raises(ValueError, match="^" + message.replace(".", r"\.")):
        Table(**options)


@pytest.mark.parametrize("name", ["t", "t.txt", "t.csv", "t.jsonl", "t.parquet", "t.log.gz"])
@pytest.mark.parametrize("form", ["csv", "jsonl"])
def test_a_table_is_recognized_by_its_header_whatever_the_suffix(write, name, form):
    names = '{"output_tokens":2,"arrival_s":0,"prompt_tokens":1}\n'
    path = write(name, "output_tokens,arrival_s,prompt_tokens\n2,0,1\n" if form == "csv" else names)
    opened = open_file(path)
    assert opened.kind == "table"
    assert opened.load(0).prompt_tokens.tolist() == [1]


def test_a_format_can_be_named_where_the_suffix_does_not_tell(write):
    path = write("trace.txt", HEADER + "0,1,2\n")
    assert len(Table(path, format="csv").load(0)) == 1
    assert table.suffix_format("A.CSV.GZ") == "csv"
