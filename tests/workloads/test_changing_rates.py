"""Arrivals whose rate changes: states, days, and the times of a trace."""

from __future__ import annotations

import numpy as np
import pytest

from workloads import ARRIVALS
from workloads.modulated import Diurnal, Modulated
from workloads.streams import stream
from workloads.trace import TraceError
from workloads.tracetimes import TraceTimes

MANY = 200_000


def rng(seed=0):
    return stream(seed, "arrivals")


def test_modulated_arrivals_have_the_mean_rate_and_the_burstiness_of_their_states():
    rates, dwell_s = np.array([1.0, 9.0]), np.array([6.0, 2.0])
    times_s = Modulated(rates.tolist(), dwell_s.tolist()).times_ns(MANY, rng()) / 1e9
    mean = (rates * dwell_s).sum() / dwell_s.sum()
    assert MANY / times_s[-1] == pytest.approx(mean, rel=0.02)
    # index of dispersion of two states in the limit of long windows (Fischer and Meier-Hellstern):
    # 1 + 2 q0 q1 (r0 - r1)^2 / ((q0 + q1)^2 (r0 q1 + r1 q0)), q the rates of leaving
    q = 1 / dwell_s
    expected = 1 + 2 * q.prod() * 64 / (q.sum() ** 2 * (rates * q[::-1]).sum())
    counts = np.bincount((times_s // 200).astype(int))[:-1]
    assert counts.var() / counts.mean() == pytest.approx(expected, rel=0.3)


def test_states_of_one_rate_are_a_poisson_process():
    gaps_s = np.diff(Modulated([8.0, 8.0], [1, 5]).times_ns(MANY, rng())) / 1e9
    assert gaps_s.mean() == pytest.approx(1 / 8, rel=0.01)
    assert gaps_s.std() == pytest.approx(1 / 8, rel=0.02)


def test_nothing_arrives_while_the_rate_is_0():
    times_s = Modulated([0.0, 100.0], [1000.0, 1.0]).times_ns(5000, rng()) / 1e9
    gaps = np.diff(times_s)
    pauses = gaps[gaps > 5]
    assert pauses.mean() == pytest.approx(1000, rel=0.5)
    assert gaps[gaps <= 5].mean() == pytest.approx(0.01, rel=0.2)


def test_a_rate_so_low_that_it_never_comes_to_the_last_request_is_refused():
    with pytest.raises(TraceError, match=r"arrivals: after .* changes of the rate there are"):
        Modulated([0.0, 1e-9], [0.001, 0.001]).times_ns(10, rng())


def test_diurnal_arrivals_follow_the_sine_and_have_the_mean_rate():
    process = Diurnal(20.0, 0.8, period_s=100.0, phase=0.25)
    times_s = process.times_ns(MANY, rng()) / 1e9
    assert MANY / times_s[-1] == pytest.approx(20, rel=0.02)
    found = np.bincount((times_s % 100 // 10).astype(int)) / (times_s[-1] / 10)
    everywhere = process.relative_rate(np.arange(0.05, 100, 0.1))
    expected = 20 * everywhere.reshape(10, 100).mean(axis=1)
    assert found == pytest.approx(expected, rel=0.06)
    assert found[0] > found[5]


def test_without_amplitude_diurnal_arrivals_are_poisson():
    gaps_s = np.diff(Diurnal(8.0, 0.0).times_ns(MANY, rng())) / 1e9
    assert gaps_s.mean() == pytest.approx(1 / 8, rel=0.01)
    assert gaps_s.std() == pytest.approx(1 / 8, rel=0.02)


@pytest.fixture
def bursty(write):
    """A trace of 2,000 requests at 10 a second: 40 bursts of 50 at a second, then a pause of 4."""
    times = [burst * 5 + i / 50 for burst in range(40) for i in range(50)]
    lines = [f"{7 + time:.2f},5,5" for time in times]
    return write("t.csv", "arrival_s,prompt_tokens,output_tokens\n" + "\n".join(lines) + "\n")


def test_a_traces_own_times_begin_at_0(bursty):
    times = TraceTimes(bursty).times_ns(2000, rng())
    assert times[:3].tolist() == [0, 20_000_000, 40_000_000]
    assert times[-1] == 195_980_000_000


def test_thinning_leaves_times_of_the_trace_and_the_rate_asked_for(bursty):
    own = set(TraceTimes(bursty).times_ns(2000, rng()).tolist())
    times = TraceTimes(bursty, rate=2.0).times_ns(300, rng())
    assert set(times.tolist()) <= own
    assert 300 / (times[-1] / 1e9) == pytest.approx(2, rel=0.25)


def test_superposition_shifts_copies_and_gives_the_rate_asked_for(bursty):
    times = TraceTimes(bursty, rate=35.0).times_ns(6500, rng())
    assert 6500 / (times[-1] / 1e9) == pytest.approx(35, rel=0.08)
    own = TraceTimes(bursty).times_ns(1000, rng())
    assert set(own[own <= times[-1]].tolist()) <= set(times.tolist())
    # gaps within a burst are those of the trace, which stretching would have shortened
    stretched = np.diff(TraceTimes(bursty, rate=35.0, how="stretch").times_ns(2000, rng()))
    assert np.median(stretched) < 7_000_000


def test_unshifted_copies_arrive_together(bursty):
    times = TraceTimes(bursty, rate=20.0, shift_s=0.0).times_ns(2000, rng())
    _, counts = np.unique(times, return_counts=True)
    assert set(counts.tolist()) <= {1, 2}
    assert counts.mean() == pytest.approx(1.96, abs=0.02)  # the trace's own rate is 10.2


def test_stretching_changes_all_gaps_alike(bursty):
    own = TraceTimes(bursty).times_ns(2000, rng())
    slow = TraceTimes(bursty, rate=1.0, how="stretch").times_ns(2000, rng())
    factor = slow[-1] / own[-1]
    assert slow == pytest.approx(own * factor, abs=1)
    assert 1999 / (slow[-1] / 1e9) == pytest.approx(1, rel=0.01)


def test_more_requests_than_the_trace_has_need_repeat(bursty):
    with pytest.raises(TraceError, match="has 2000 times at 1 × its rate; accepted: at most so ma"):
        TraceTimes(bursty).times_ns(2001, rng())
    times = TraceTimes(bursty, repeat=True).times_ns(4000, rng())
    period = times[2000]
    assert (times[2000:] - period).tolist() == times[:2000].tolist()
    thinned = TraceTimes(bursty, rate=3.0, repeat=True).times_ns(3000, rng())
    assert np.diff(thinned).min() >= 0
    short = TraceTimes(bursty, rate=3.0, repeat=True).times_ns(100, rng())
    assert thinned[:100].tolist() == short.tolist()


def test_a_trace_of_one_time_has_no_rate(write):
    path = write("t.csv", "arrival_s,prompt_tokens,output_tokens\n1,5,5\n1,5,5\n")
    with pytest.raises(TraceError, match="all requests arrive at one time; a rate needs gaps"):
        TraceTimes(path).times_ns(1, rng())


@pytest.mark.parametrize(
    ("kind", "parameters", "message"),
    [
        ("mmpp", {"rates": 5, "dwell_s": [1, 1]}, "rates: must be a list of 2 to 1000 numbers"),
        ("mmpp", {"rates": [1, -1], "dwell_s": [1, 1]}, "rates: must be at least 0, got -1"),
        ("mmpp", {"rates": [0, 0], "dwell_s": [1, 1]}, "rates: must not all be 0, got [0, 0]"),
        ("mmpp", {"rates": [1, 2], "dwell_s": [1, 1, 1]}, "dwell_s: must be as many as rates, 2"),
        ("mmpp", {"rates": [1, 2], "dwell_s": [1, 0]}, "dwell_s: must be at least 0.001"),
        ("diurnal", {"rate": 0, "amplitude": 1}, "rate: must be above 0, got 0"),
        ("diurnal", {"rate": 1, "amplitude": 2}, "amplitude: must be at least 0 and at most 1"),
        ("diurnal", {"rate": 1, "amplitude": 1, "phase": -1}, "phase: must be at least 0 and at"),
        ("trace_times", {"path": "t", "rate": 0}, "rate: must be above 0, got 0"),
        ("trace_times", {"path": "t", "how": "sample"}, "how: 'sample' is unknown"),
        ("trace_times", {"path": ""}, "path: must be the name of a file, got ''"),
        ("trace_times", {"path": "t", "shift_s": -1}, "shift_s: must be at least 0"),
    ],
)
def test_a_mistake_is_refused_by_name(kind, parameters, message):
    with pytest.raises(ValueError, match=": ") as error:
        ARRIVALS[kind](**parameters)
    assert str(error.value).startswith(message)
