"""The rule for one cell, and its shortcut for a whole column."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from workloads.rules import SECONDS, TIMESTAMP, TOKENS

numbers = st.one_of(
    st.integers(-5, 5000),
    st.integers(2**31 - 2, 2**31 + 2),
    st.floats(0, 1e10),
    st.sampled_from([2**53 + 1, 2**62, 2**64, 1e400, float("nan"), -0.0, 12.0]),
)
texts = st.one_of(
    numbers.map(str),
    st.sampled_from(["", " 7", "7 ", "+7", "0x1F", "1e3", "12.", "12.0", "1_0", "٣", ".5", "nan"]),
    st.text(max_size=6),
)
stamps = st.one_of(
    st.datetimes().map(str),
    st.datetimes().map(lambda moment: f"{moment.isoformat(sep=' ')}+00:00"),
    st.sampled_from(["XXX", "2023-11-16 18:15:46.6805900", "2023-02-29 00:00:00", "2023-11-16"]),
    st.text(max_size=30),
)


@pytest.mark.parametrize("rule", [TOKENS, SECONDS], ids=["tokens", "seconds"])
@given(cells=st.one_of(st.lists(texts), st.lists(numbers)))
def test_the_shortcut_gives_what_the_rule_gives_or_declines(rule, cells):
    try:
        array = pa.array(cells)
    except (pa.ArrowInvalid, OverflowError):
        return  # no column of one type
    assert_same(rule, array, cells)


@given(cells=st.lists(stamps))
def test_the_shortcut_for_times_gives_what_the_rule_gives_or_declines(cells):
    assert_same(TIMESTAMP, pa.array(cells, pa.string()), cells)


def assert_same(rule, array, cells):
    fast = rule.shortcut(array)
    if fast is not None:
        assert fast.dtype == np.int64
        assert fast.tolist() == [rule.value(cell) for cell in cells]


@pytest.mark.parametrize("cell", [12, 12.0, "12", " 12 ", "12.0", "12.", "+12", "0012"])
def test_a_whole_number_is_a_token_count_however_it_is_written(cell):
    assert TOKENS.value(cell) == 12


@pytest.mark.parametrize(
    "cell",
    [
        *["1e3", "twelve", "1_0", "٣", "1.5", "0x1F"],
        "",
        "9" * 5000,
        0,
        -1,
        1.5,
        float("nan"),
        float("inf"),
        2**31,
        None,
        True,
        [3],
        {},
        b"3",
    ],
)
def test_anything_else_is_no_token_count(cell):
    assert TOKENS.value(cell) is None


@pytest.mark.parametrize(
    ("cell", "ns"),
    [(0, 0), ("1.5", 1_500_000_000), (1e-9, 1), ("2.5e-10", 0), (".25", 250_000_000), ("-0", 0)],
)
def test_seconds_become_whole_nanoseconds(cell, ns):
    assert SECONDS.value(cell) == ns


@pytest.mark.parametrize(
    "cell", [-1, "-1e-9", "nan", "inf", 1e10, True, None, "", "1,5", 10**400, "1e999", "0x1p3"]
)
def test_anything_else_is_no_time_in_seconds(cell):
    assert SECONDS.value(cell) is None


@pytest.mark.parametrize(
    ("cell", "ns"),
    [
        ("1970-01-01 00:00:01.0000001", 1_000_000_100),
        ("1970-01-01T00:00:01.123456789", 1_123_456_789),
        ("1970-01-01 00:00:01", 1_000_000_000),
        ("1970-01-01 01:00:01.5+01:00", 1_500_000_000),
        ("1970-01-01 00:00:01Z", 1_000_000_000),
    ],
)
def test_times_are_read_to_the_last_digit(cell, ns):
    assert TIMESTAMP.value(cell) == ns


@pytest.mark.parametrize(
    "cell", ["XXX", "", None, 5, "1969-12-31 23:59:59", "2023-02-29 00:00:00", "2300-01-01 00:00"]
)
def test_anything_else_is_no_time(cell):
    assert TIMESTAMP.value(cell) is None
