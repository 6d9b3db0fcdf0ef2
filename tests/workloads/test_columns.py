"""Tables whose columns are named by whoever reads them."""

from __future__ import annotations

import re

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from workloads.columns import Columns
from workloads.lengths import Lengths
from workloads.trace import TraceError

NAMES = {"prompt_column": "asked", "output_column": "answered"}
LOG = "id,when,asked,answered\na,{},3,4\nb,{},5,6\n"


@pytest.mark.parametrize(
    ("unit", "times", "arrival_ns"),
    [
        ("s", ("1700000000", "1700000001.5"), 1_500_000_000),
        ("ms", ("1700000000000", "1700000000001"), 1_000_000),
        ("ms", ("1.0", "2.5"), 1_500_000),
        ("us", ("1700000000000000", "1700000000000001"), 1000),
        ("ns", ("1700000000000000001", "1700000000000000002"), 1),
        ("ns", ("1e3", " 3000 "), 2000),
        ("timestamp", ("2023-11-16 18:15:46.68", "2023-11-16 18:15:47"), 320_000_000),
    ],
)
def test_arrivals_are_in_the_unit_that_is_given_and_start_at_0(write, unit, times, arrival_ns):
    path = write("log.csv", LOG.format(*times))
    trace = Columns(path, **NAMES, arrival_column="when", arrival_unit=unit).load(0)
    assert trace.arrival_ns.tolist() == [0, arrival_ns]
    assert trace.prompt_tokens.tolist() == [3, 5]
    assert trace.output_tokens.tolist() == [4, 6]
    assert trace.notes == {"ignored: column 'id'": 2}


def test_json_lines_and_parquet_are_read_alike(write, tmp_path):
    table = pa.table({"when": [1000, 2500], "asked": [3, 5], "answered": [4, 6]})
    pq.write_table(table, tmp_path / "log.parquet")
    rows = '{"when": 1000, "asked": 3, "answered": 4}\n{"when": 2500, "asked": 5, "answered": 6}\n'
    options = {**NAMES, "arrival_column": "when", "arrival_unit": "ms"}
    by_rows = Columns(write("log.jsonl", rows), **options).load(0)
    by_columns = Columns(str(tmp_path / "log.parquet"), **options).load(0)
    assert by_rows.arrival_ns.tolist() == [0, 1_500_000_000]
    assert by_rows.digest() == by_columns.digest()


@pytest.mark.parametrize(
    ("unit", "time", "accepted"),
    [
        ("ms", "-1", "milliseconds, a number from 0 to 4611686018427"),
        ("us", "", "microseconds, a number from 0 to 4611686018427387"),
        ("us", "nan", "microseconds"),
        ("ns", "9" * 400, "nanoseconds, a number from 0 to 4611686018427387904"),
        ("ns", "1e400", "nanoseconds"),
        ("timestamp", "5", "a time such as 2023-11-16 18:15:46.6805900 or "),
    ],
)
def test_a_time_that_is_none_in_this_unit_is_refused(write, unit, time, accepted):
    path = write("log.csv", LOG.format(time, 2))
    with pytest.raises(TraceError, match="line 2: when is '") as error:
        Columns(path, **NAMES, arrival_column="when", arrival_unit=unit).load(0)
    assert f"; accepted: {accepted}" in str(error.value)


def test_without_an_arrival_column_there_are_lengths_only(write):
    path = write("log.csv", LOG.format(1, 2))
    with pytest.raises(TraceError, match=r"has no arrival times; .* use 'kind: lengths'"):
        Columns(path, **NAMES).load(0)
    trace = Lengths(path, arrivals={"kind": "constant", "rate": 2}, **NAMES).load(0)
    assert trace.prompt_tokens.tolist() == [3, 5]
    assert trace.arrival_ns.tolist() == [0, 500_000_000]
    assert trace.notes == {"ignored: column 'id'": 2, "ignored: column 'when'": 2}


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"prompt_column": ""}, "prompt_column: must be the name of a column, got ''"),
        ({"output_column": " b"}, "output_column: must be the name of a column, got ' b'"),
        ({"output_column": "asked"}, "output_column: must be another column than the others"),
        ({"arrival_column": "asked"}, "arrival_column: must be another column than the others"),
        ({"arrival_unit": "sec"}, "arrival_unit: 'sec' is unknown"),
        ({"format": "xml"}, "format: 'xml' is unknown"),
        ({"path": "log.txt"}, "format: log.txt has none of the suffixes .csv, .jsonl"),
    ],
)
def test_a_bad_parameter_is_refused(options, sentence):
    with pytest.raises(ValueError, match=f"^{re.escape(sentence)}"):
        Columns(**{"path": "log.csv", **NAMES, **options})


def test_lengths_need_both_names_or_none():
    for name in NAMES:
        with pytest.raises(ValueError, match=r"_column: is missing; name both columns or none"):
            Lengths("log.csv", arrivals={"kind": "all_at_once"}, **{name: "asked"})


def test_a_column_that_is_not_there_is_refused_with_what_is(write):
    path = write("log.csv", LOG.format(1, 2))
    with pytest.raises(TraceError, match=r"no column aksed, did you mean 'asked'; found: 'id', "):
        Columns(path, prompt_column="aksed", output_column="answered").raw()
