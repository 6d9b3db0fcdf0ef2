"""The fast and the slow way through CSV take and refuse the same files, in the same words."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from workloads import readers
from workloads.azure import Azure
from workloads.table import Table
from workloads.trace import TraceError

good_rows = st.tuples(st.integers(0, 99), st.integers(1, 10**6), st.integers(1, 10**6)).map(
    lambda numbers: ",".join(map(str, numbers))
)
odd_cells = st.one_of(
    st.sampled_from(["", "0", "-1", "1.0", "1.5", " 7", "+7", "nan", "0x1F", "1e3", "9" * 25]),
    st.text(st.characters(blacklist_characters='"\n', blacklist_categories=["Cs"]), max_size=3),
)
table_rows = st.one_of(good_rows, good_rows, st.lists(odd_cells, max_size=4).map(",".join))
azure_rows = st.tuples(
    st.sampled_from(
        [
            "2023-11-16 18:15:46.6805900",
            "2023-11-16 18:15:47",
            "2024-05-10 00:00:00.009930+00:00",
            " 2024-05-10 00:00:00Z",
            "2023-02-30 00:00:00",
            "XXX",
        ]
    ),
    st.sampled_from(["1", "14050", "0", "2.0"]),
    st.just("7"),
).map(",".join)
ends = st.sampled_from(["\n", "\n", "\r\n", "\n\n", "\r"])
options = st.fixed_dictionaries(
    {"on_bad_row": st.sampled_from(["error", "drop"]), "unsorted": st.just("sort")}
)
compared = settings(
    max_examples=150,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)


def outcome(kind, path, options):
    """Everything a reader gives: columns and notes, or its refusal."""
    try:
        trace = kind(str(path), **options).load(0)
    except TraceError as error:
        return str(error)
    return trace.digest(), trace.notes


def assert_both_ways_agree(path, kind, header, rows, line_ends, options):
    found = []
    for note in ("caf\udce9", '"caf\udce9"'):  # a quoted cell in any row rules out the fast way
        lines = [f"note,{header}\n"]
        lines += [f"{note},{row}{end}" for row, end in zip(rows, line_ends, strict=True)]
        path.write_bytes("".join(lines).encode(errors="surrogateescape"))
        found.append(outcome(kind, path, options))
    assert found[0] == found[1]


@compared
@given(rows=st.lists(st.tuples(table_rows, ends), max_size=5), options=options)
def test_tables_are_the_same_both_ways(tmp_path, rows, options):
    header = "arrival_s,prompt_tokens,output_tokens"
    cells, line_ends = [row for row, _ in rows], [end for _, end in rows]
    assert_both_ways_agree(tmp_path / "t.csv", Table, header, cells, line_ends, options)


@compared
@given(rows=st.lists(st.tuples(azure_rows, ends), max_size=5), options=options)
def test_azure_traces_are_the_same_both_ways(tmp_path, rows, options):
    header = "TIMESTAMP,ContextTokens,GeneratedTokens"
    cells, line_ends = [row for row, _ in rows], [end for _, end in rows]
    assert_both_ways_agree(tmp_path / "t.csv", Azure, header, cells, line_ends, options)


@pytest.mark.parametrize(
    ("row", "num_slow_lines"),
    [("1,2,3\n", 0), ("1,2,3\r\n", 0), ('1,"2",3\n', 3), ("1,2,3\n\n", 3), ("1, 2,3\n", 3)],
)
def test_only_plain_lines_go_the_fast_way(write, monkeypatch, row, num_slow_lines):
    slow_lines = []
    add_line = readers._add_line

    def count(reading, number, *rest):
        slow_lines.append(number)
        add_line(reading, number, *rest)

    monkeypatch.setattr(readers, "_add_line", count)
    path = write("t.csv", "arrival_s,prompt_tokens,output_tokens\n" + row * 3)
    assert Table(path).load(0).prompt_tokens.tolist() == [2, 2, 2]
    assert len(slow_lines) == num_slow_lines
