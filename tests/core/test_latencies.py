"""Latencies of the summary are what numpy says of all requests at once, to the last bit."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim.metrics.summary import LATENCIES, NS_PER_S, request_latency, spread
from sim.sequence import (
    ARRIVAL_NS,
    FINISH_NS,
    FINISHED,
    FIRST_TOKEN_NS,
    NUM_GENERATED,
    NUM_REQUEST_COLUMNS,
    REJECTED,
    STATUS,
    IntArray,
)

TIMES = st.integers(0, 1 << 50)
ROWS = st.lists(st.tuples(TIMES, TIMES, TIMES, st.integers(1, 5), st.booleans()), max_size=30)


def rows(cells: list[tuple[int, int, int, int, bool]]) -> IntArray:
    requests = np.zeros((len(cells), NUM_REQUEST_COLUMNS), np.int64)
    for row, (arrival, wait, rest, generated, is_done) in zip(requests, cells, strict=True):
        row[ARRIVAL_NS], row[FIRST_TOKEN_NS] = arrival, arrival + wait
        row[FINISH_NS], row[NUM_GENERATED] = arrival + wait + rest, generated
        row[STATUS] = FINISHED if is_done else REJECTED
    return requests


@given(cells=ROWS)
def test_percentiles_and_means_are_exact(cells: list[tuple[int, int, int, int, bool]]) -> None:
    requests = rows(cells)
    is_done = requests[:, STATUS] == FINISHED
    done = requests[is_done].T
    ttft_ns, e2e_ns = (done[column] - done[ARRIVAL_NS] for column in (FIRST_TOKEN_NS, FINISH_NS))
    gaps = done[NUM_GENERATED] - 1
    has_gap = gaps > 0
    expected = {
        "ttft_s": ttft_ns / NS_PER_S,
        "tpot_s": ((e2e_ns - ttft_ns) / NS_PER_S)[has_gap] / gaps[has_gap],
        "e2e_s": e2e_ns / NS_PER_S,
    }
    for name in LATENCIES:
        values = request_latency(name, requests, is_done)
        assert len(values) == is_done.sum()
        row, known = spread("x", values), expected[name]
        if not len(known):
            assert set(row.values()) == {None}
            continue
        assert row["x_mean"] == known.mean()
        for percentile in (50, 90, 99):
            assert row[f"x_p{percentile}"] == float(np.percentile(known, percentile))


@pytest.mark.parametrize("size", [1, 2, 99, 100_001])
def test_all_percentiles_at_once_are_those_one_by_one(size: int) -> None:
    values = np.random.default_rng(size).lognormal(size=size)
    row = spread("x", values.copy())
    assert list(row.values())[1:] == [np.percentile(values, p) for p in (50, 90, 99)]
