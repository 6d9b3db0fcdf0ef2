"""Arrival processes: their statistics, their rounding, their determinism."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from workloads.arrivals import ARRIVALS, AllAtOnce, Constant, Gamma, Poisson
from workloads.modulated import Diurnal, Modulated
from workloads.process import times_from_gaps
from workloads.streams import stream
from workloads.trace import TraceError

MANY = 200_000


def rng(seed=0):
    return stream(seed, "arrivals")


def test_poisson_arrivals_come_at_the_rate_with_exponential_gaps():
    gaps_s = np.diff(Poisson(8.0).times_ns(MANY, rng())) / 1e9
    assert gaps_s.mean() == pytest.approx(1 / 8, rel=0.01)
    assert gaps_s.std() == pytest.approx(gaps_s.mean(), rel=0.02)
    assert (gaps_s > 1 / 8).mean() == pytest.approx(np.exp(-1), rel=0.01)


@pytest.mark.parametrize("cv", [0.1, 0.5, 1.0, 2.0, 4.0])
def test_gamma_arrivals_come_at_the_rate_with_gaps_of_the_asked_spread(cv):
    gaps_s = np.diff(Gamma(8.0, cv).times_ns(MANY, rng())) / 1e9
    assert gaps_s.mean() == pytest.approx(1 / 8, rel=6 * cv / MANY**0.5)
    assert gaps_s.std() / gaps_s.mean() == pytest.approx(cv, rel=0.05)


def test_gamma_arrivals_of_cv_1_are_poisson_arrivals_in_distribution():
    gamma, poisson = (np.diff(p.times_ns(MANY, rng())) for p in (Gamma(8.0, 1.0), Poisson(8.0)))
    levels = np.linspace(0.01, 0.99, 50)
    assert np.quantile(gamma, levels) == pytest.approx(np.quantile(poisson, levels), rel=0.06)


def test_gaps_spread_so_far_that_most_are_zero_still_make_times():
    times = Gamma(8.0, 100.0).times_ns(1000, rng())
    assert np.diff(times).min() >= 0


@given(
    rate=st.floats(1e-3, 1e6),
    factor=st.floats(1e-3, 1e3),
    cv=st.none() | st.floats(0.001, 10),
    seed=st.integers(0, 2**63),
)
def test_another_rate_stretches_the_same_pattern(rate, factor, cv, seed):
    slow, fast = (
        (Poisson(r) if cv is None else Gamma(r, cv)).times_ns(100, rng(seed))
        for r in (rate, rate * factor)
    )
    # half a nanosecond of rounding on either side, and the resolution of the sums
    slack = 2 * (1 + factor) + 1e-12 * slow.max()
    assert np.abs(slow - factor * fast).max() <= slack


@pytest.mark.parametrize("cv", [0, -1, 1e-9, 101, float("nan"), "wide", True, None])
def test_a_spread_that_is_none_is_refused(cv):
    with pytest.raises(ValueError, match=r"^cv: must be at least 0.001 and at most 100, got "):
        Gamma(1.0, cv)


def test_constant_arrivals_stand_where_they_belong_however_many_there_are():
    num_requests = 10_000_000
    times = Constant(3.0).times_ns(num_requests, rng())
    for row in (0, 1, 2, 1000, num_requests - 1):
        assert abs(times[row] - Fraction(row * 10**9, 3)) <= 1
    assert np.unique(np.diff(times)).tolist() == [333_333_333, 333_333_334]


def test_sums_of_many_gaps_do_not_drift():
    gaps = stream(1, "arrivals").random(100_000) * 1e9
    exact, checkpoints = Fraction(0), {}
    for row, gap in enumerate(gaps.tolist()):
        exact += Fraction(gap)
        if row % 9_999 == 0:
            checkpoints[row] = exact
    times = times_from_gaps(gaps)
    for row, expected in checkpoints.items():
        assert abs(times[row] - expected) <= Fraction(501, 1000)


def test_all_at_once_means_time_0():
    assert AllAtOnce().times_ns(3, rng()).tolist() == [0, 0, 0]


@pytest.mark.parametrize(
    "process",
    [
        Poisson(2.0),
        Gamma(2.0, 3.0),
        Modulated([0, 40.0], [9, 1]),
        Diurnal(2.0, 1.0, 60.0),
        Constant(2.0),
        AllAtOnce(),
    ],
    ids=lambda p: p.kind,
)
def test_times_repeat_for_a_seed_never_go_back_and_extend_a_shorter_list(process):
    long, short = process.times_ns(1000, rng(7)), process.times_ns(100, rng(7))
    assert np.array_equal(long[:100], short)
    assert np.diff(long).min() >= 0
    assert long.dtype == np.int64


def test_poisson_times_differ_between_seeds():
    assert Poisson(1.0).times_ns(10, rng(1)).tolist() != Poisson(1.0).times_ns(10, rng(2)).tolist()


@pytest.mark.parametrize("rate", [0, -1, float("nan"), float("inf"), "fast", True, None])
@pytest.mark.parametrize("kind", ["poisson", "constant"])
def test_a_rate_that_is_no_positive_number_is_refused(kind, rate):
    with pytest.raises(ValueError, match=r"^rate: must be above 0, got "):
        ARRIVALS[kind](rate=rate)


@pytest.mark.parametrize("rate", [1e-9, 1e-300, 5e-324])
def test_a_rate_so_low_that_times_overflow_is_refused(rate):
    with pytest.raises(TraceError, match="the last of 100 requests would arrive after 146 years"):
        Poisson(rate).times_ns(100, rng())
