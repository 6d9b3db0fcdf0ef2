"""What an SLO's text means, and what is refused."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim.slo.objectives import NUM_BEYOND, Objective, num_measured, read_objectives


def test_an_slo_is_read_as_it_is_written() -> None:
    first, second, third = read_objectives("p99 TTFT < 1 s,p99.9 tpot <= 50ms , mean e2e<.5 us")
    assert first == Objective("ttft_s", Fraction(99), 1.0, is_inclusive=False)
    assert second == Objective("tpot_s", Fraction(999, 10), 0.05, is_inclusive=True)
    assert third == Objective("e2e_s", None, 5e-7, is_inclusive=False)
    assert [o.name for o in (first, second, third)] == ["ttft_s_p99", "tpot_s_p99.9", "e2e_s_mean"]
    assert first.text == "p99 ttft < 1 s"
    assert read_objectives("median ttft ≤ 1 s") == read_objectives("p50 ttft <= 1000 ms")


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "'' is no objective; accepted: "),
        ("fast", "'fast' is no objective; accepted: "),
        ("p99 ttft < 1", "is no objective; accepted: "),
        ("ttft < 1 s", "is no objective; accepted: "),
        ("p99 ttft > 1 s", "is no objective; accepted: "),
        ("p99 ttft < 1 s,", "'' is no objective"),
        ("p99 ttft < -1 s", "is no objective"),
        ("p99 tft < 1 s", "unknown metric 'tft', did you mean ttft; accepted: ttft, tpot, e2e"),
        ("p99 itl < 1 s", "unknown metric 'itl'"),
        ("q99 ttft < 1 s", "unknown statistic 'q99'; accepted: "),
        ("p100 ttft < 1 s", "unknown statistic 'p100'"),
        ("p0 ttft < 1 s", "accepted: p0.01 to p99.9998"),
        ("p99.999999 ttft < 1 s", "accepted: p0.01 to p99.9998"),
        ("p99 ttft < 1 min", "unknown unit 'min'; accepted: s, ms, us"),
        ("p99 ttft < 0 s", "must be above 0 and below 1e9 seconds"),
        ("p99 ttft < 1 s, p99 ttft < 2 s", "ttft_s_p99 has a limit already"),
        ("p50 ttft < 1 s, median ttft < 2 s", "ttft_s_p50 has a limit already"),
    ],
)
def test_what_is_no_slo_is_refused_with_a_sentence(text: str, sentence: str) -> None:
    with pytest.raises(ValueError, match=r"accepted|must be|has a limit") as caught:
        read_objectives(text)
    assert sentence in str(caught.value)
    assert len(str(caught.value).splitlines()) == 1


@pytest.mark.parametrize(
    ("text", "count"),
    [("p99", 2000), ("p90", 2000), ("mean", 2000), ("p99.5", 4000), ("p99.9", 20_000)],
)
def test_a_percentile_has_twenty_of_at_least_two_thousand_requests_beyond_it(
    text: str, count: int
) -> None:
    objectives = read_objectives(f"{text} ttft < 1 s, mean e2e < 1 s")
    assert num_measured(objectives) == count


def test_one_percent_of_requests_may_be_late_and_not_one_more() -> None:
    (limit,) = read_objectives("p99 ttft < 1 s")
    latencies = np.full(2000, 0.5)
    latencies[:NUM_BEYOND] = math.inf
    assert limit.holds(limit.value(latencies))
    latencies[NUM_BEYOND] = 1.0
    assert not limit.holds(limit.value(latencies))
    (inclusive,) = read_objectives("p99 ttft <= 1 s")
    assert inclusive.holds(inclusive.value(latencies))


def test_a_statistic_of_nothing_is_within_every_limit() -> None:
    for text in ("p99 tpot < 1 ms", "mean tpot < 1 ms"):
        (limit,) = read_objectives(text)
        assert limit.holds(limit.value(np.empty(0)))


@given(
    st.lists(st.floats(0, 10), min_size=1, max_size=50),
    st.integers(1, 99),
)
def test_a_percentile_is_the_least_latency_that_so_many_do_not_exceed(
    latencies: list[float], percent: int
) -> None:
    (limit,) = read_objectives(f"p{percent} ttft < 1 s")
    value = limit.value(np.array(latencies))
    assert value in latencies
    assert sum(x <= value for x in latencies) * 100 >= percent * len(latencies)
    assert sum(x < value for x in latencies) * 100 < percent * len(latencies)
