"""Tables as JSON lines and Parquet: what each mistake is called."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from workloads.table import Table
from workloads.trace import MAX_TOKENS, TraceError

NAMES = ["arrival_s", "prompt_tokens", "output_tokens"]
TOKENS = f"accepted: a whole number from 1 to {MAX_TOKENS}"
SECONDS = "accepted: seconds, a number from 0 to 4611686018"


def refusal(path, **options):
    with pytest.raises(TraceError) as error:
        Table(path, **options).load(0)
    message = str(error.value)
    assert "\n" not in message
    assert message.startswith(f"{path}: ")
    return message.removeprefix(f"{path}: ")


@pytest.mark.parametrize(
    ("rows", "sentence"),
    [
        ('{"arrival_s": 0, "prompt_tokens": 0, "output_tokens": 1}', "prompt_tokens is 0"),
        ('{"arrival_s": 0, "prompt_tokens": true, "output_tokens": 1}', "prompt_tokens is True"),
        ('{"arrival_s": NaN, "prompt_tokens": 1, "output_tokens": 1}', "arrival_s is nan"),
        ('{"arrival_s": 0, "prompt_tokens": null, "output_tokens": 1}', "prompt_tokens is None"),
        ('{"arrival_s": 0, "prompt_tokens": "abc", "output_tokens": 1}', "prompt_tokens is 'abc'"),
        ('{"arrival_s": 0, "prompt_tokens": 1}', "has no output_tokens; the first object has"),
        (
            '{"arrival_s": 0, "prompt_tokens": 1, "output_tokens": 1, "max_tokens": 5}',
            "has max_tokens; the first object has none",
        ),
        (
            '{"arrival_s": 0, "arrival_s": 1}',
            "is not a JSON object: the key 'arrival_s' stands twice in an object; acc",
        ),
        ("[1, 2]", "is not a JSON object"),
        ('{"arrival_s": 0, "pro', "is not a JSON object"),
        ("[" * 100_000, "is not a JSON object"),
    ],
)
def test_a_bad_json_line_is_refused_with_its_number(write, rows, sentence):
    good = '{"arrival_s": 0, "prompt_tokens": 1, "output_tokens": 1}\n\n'
    assert refusal(write("t.jsonl", good + rows)).startswith(f"line 3: {sentence}")


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ("", "there are no rows; at least one request is needed"),
        ("\n\n", "there are no rows; at least one request is needed"),
        ("{}\n", "no column arrival_s; found: "),
        (
            '{"arrival_s": 0, "prompt_tokens\\n": 1, "output_tokens": 1}',
            r"no column prompt_tokens, did you mean 'prompt_tokens\n'; found: ",
        ),
        (bytes(range(128, 256)), "line 1: is not a JSON object; accepted: one object a line"),
        (
            '{"arrival_s": 5, "prompt_tokens": 1, "output_tokens": 1}\n'
            '{"arrival_s": 4, "prompt_tokens": 1, "output_tokens": 1}\n',
            "line 2 arrives 1 s before line 1; accepted: rows in order of arrival",
        ),
    ],
)
def test_a_json_file_that_is_no_trace_is_refused(write, content, sentence):
    assert refusal(write("t.jsonl", content)).startswith(sentence)


def test_bad_json_lines_are_dropped_on_request_and_counted_by_reason(write):
    good = '{"arrival_s": 0, "prompt_tokens": 1, "output_tokens": 1}\n'
    bad = [good[:30] + "\n", '{"arrival_s": 0}\n', good.replace(": 1}", ": 0}")]
    trace = Table(write("t.jsonl", bad[0] + good + "".join(bad) + good), on_bad_row="drop").load(0)
    assert len(trace) == 2
    assert trace.notes == {
        "dropped: not a JSON object": 2,
        "dropped: no prompt_tokens": 1,
        "dropped: output_tokens not accepted": 1,
    }


def test_keys_that_only_later_objects_have_are_counted(write):
    good = '{"arrival_s": 0, "prompt_tokens": 1, "output_tokens": 1}\n'
    path = write("t.jsonl", good + good.replace("}", ', "model": "x"}'))
    assert Table(path).load(0).notes == {"ignored: keys that the first object has not": 1}


@pytest.mark.parametrize(
    ("column", "sentence"),
    [
        (pa.array([1, None]), f"row 2: prompt_tokens is None; {TOKENS}"),
        (pa.array([1.0, 2.5]), f"row 2: prompt_tokens is 2.5; {TOKENS}"),
        (pa.array([1.0, float("nan")]), f"row 2: prompt_tokens is nan; {TOKENS}"),
        (pa.array([True, False]), f"row 1: prompt_tokens is True; {TOKENS}"),
        (pa.array(["1", "two"]), f"row 2: prompt_tokens is 'two'; {TOKENS}"),
        (pa.array([1, 2**63], pa.uint64()), f"row 2: prompt_tokens is {2**63}; {TOKENS}"),
        (pa.array([[1], [2]]), f"row 1: prompt_tokens is [1]; {TOKENS}"),
        (pa.array([1, 2], pa.timestamp("ns")), "row 1: prompt_tokens is"),
    ],
)
def test_a_bad_parquet_row_is_refused_with_its_number(tmp_path, column, sentence):
    path = str(tmp_path / "t.parquet")
    good = pa.array([1, 2])
    names = ["arrival_s", "prompt_tokens", "output_tokens"]
    pq.write_table(pa.table([good, column, good], names), path)
    assert refusal(path).startswith(sentence)


@pytest.mark.parametrize(
    "kind", [pa.timestamp("us"), pa.timestamp("s", "Nowhere/Atall"), pa.date32(), pa.time64("ns")]
)
@pytest.mark.parametrize("size", [5, 2**30])
def test_a_parquet_column_of_dates_is_refused_whatever_they_are(tmp_path, kind, size):
    path = str(tmp_path / "t.parquet")
    column = pa.array([size], pa.int32() if kind == pa.date32() else pa.int64()).cast(kind)
    pq.write_table(pa.table([column, pa.array([1]), pa.array([1])], NAMES), path)
    refusal(path)


def test_parquet_tables_are_sorted_and_cleaned_on_request(tmp_path):
    path = str(tmp_path / "t.parquet")
    columns = [[3.0, 1.0, None, 2.0], [1, 2, 3, 4], [9, 9, 9, 9]]
    pq.write_table(pa.table([pa.array(column) for column in columns], NAMES), path)
    assert refusal(path) == f"row 3: arrival_s is None; {SECONDS}"
    trace = Table(path, on_bad_row="drop", unsorted="sort").load(0)
    assert trace.prompt_tokens.tolist() == [2, 4, 1]
    assert trace.notes == {"dropped: arrival_s not accepted": 1, "moved by sorting": 3}


def test_a_parquet_table_without_rows_or_columns_is_refused(tmp_path):
    path = str(tmp_path / "t.parquet")
    pq.write_table(pa.table([pa.array([], pa.int64())] * 3, NAMES), path)
    assert refusal(path) == "there are no rows; at least one request is needed"
    pq.write_table(pa.table([pa.array([1])] * 2, NAMES[:2]), path)
    sentence = "no column output_tokens; found: 'arrival_s', 'prompt_tokens'"
    assert refusal(path).startswith(sentence)


@pytest.mark.parametrize("kind", [pa.int8(), pa.uint64(), pa.float32(), pa.string()])
def test_parquet_columns_of_any_number_type_are_read(tmp_path, kind):
    path = str(tmp_path / "t.parquet")
    column = pa.array([1, 2]).cast(kind)
    pq.write_table(pa.table([column] * 3, NAMES), path)
    assert Table(path).load(0).prompt_tokens.tolist() == [1, 2]


def test_a_parquet_column_that_stands_twice_is_refused(tmp_path):
    path = str(tmp_path / "t.parquet")
    pq.write_table(pa.table([pa.array([1])] * 4, [*NAMES, "arrival_s"]), path)
    assert refusal(path) == "column 'arrival_s' stands more than once; accepted: each name once"


@pytest.mark.parametrize("content", [b"", b"PAR1", b"PAR1" * 10, bytes(range(256))])
def test_a_file_that_is_not_parquet_is_refused(write, content):
    assert refusal(write("t.parquet", content)).startswith("is not a readable Parquet file")


def test_a_parquet_file_that_is_cut_short_is_refused(tmp_path):
    path = tmp_path / "t.parquet"
    pq.write_table(pa.table([pa.array(range(1, 1000))] * 3, NAMES), path)
    whole = path.read_bytes()
    for size in (len(whole) - 1, len(whole) // 2, 5):
        path.write_bytes(whole[:size])
        assert refusal(str(path)).startswith("is not a readable Parquet file: ")


def test_a_parquet_file_may_be_packed(write, tmp_path):
    path = tmp_path / "t.parquet"
    pq.write_table(pa.table([pa.array([1, 2])] * 3, NAMES), path)
    plain = Table(str(path)).load(0)
    for suffix in (".gz", ".zst"):
        packed = Table(write(f"packed.parquet{suffix}", path.read_bytes())).load(0)
        assert packed.digest() == plain.digest()
