"""A trace in numbers."""

from __future__ import annotations

import json

import numpy as np
import pytest

from workloads.summary import summarize
from workloads.trace import Trace


def trace(arrival_s, **more):
    lengths = np.arange(1, len(arrival_s) + 1)
    return Trace((np.array(arrival_s) * 1e9).astype(np.int64), lengths, lengths * 2, **more)


def test_a_summary_counts_and_averages():
    facts = summarize(trace([0.5, 0.5, 1.5, 3.5], source="here", notes={"moved by sorting": 2}))
    assert facts["source"] == "here"
    assert facts["provides"] == ["arrivals"]
    assert facts["notes"] == {"moved by sorting": 2}
    assert facts["rows"] == 4
    assert facts["prompt_sum"] == 10
    quantiles = {"p5": 1.15, "median": 2.5, "p95": 3.85, "p99": 3.97}
    assert facts["prompt"] == {"mean": 2.5, "max": 4} | {
        name: pytest.approx(value) for name, value in quantiles.items()
    }
    assert facts["output"]["mean"] == 5
    arrivals = facts["arrivals"]
    assert arrivals["first_s"] == 0.5
    assert arrivals["span_s"] == 3
    assert arrivals["rate_per_s"] == 1
    assert arrivals["iat_cv"] == pytest.approx(np.std([0, 1, 2]))
    assert arrivals["zero_gaps"] == 1


def test_dispersion_counts_the_empty_seconds_too():
    facts = summarize(trace([0, 0.1, 0.2, 3.0]))
    assert facts["arrivals"]["dispersion_1s"] == pytest.approx(np.var([3, 0, 0, 1]))


def test_dispersion_of_a_trace_of_years_needs_no_year_of_memory():
    assert summarize(trace([0, 1e8]))["arrivals"]["dispersion_1s"] == pytest.approx(1, abs=1e-6)


@pytest.mark.parametrize("arrival_s", [[0], [2, 2, 2]])
def test_what_is_not_defined_is_none(arrival_s):
    arrivals = summarize(trace(arrival_s))["arrivals"]
    assert arrivals["rate_per_s"] is None
    assert arrivals["iat_cv"] is None
    assert arrivals["dispersion_1s"] is None


def test_a_summary_is_ready_for_json():
    made = trace([0, 1], max_tokens=[5, 6])
    assert json.loads(json.dumps(summarize(made)))["max_tokens"]["max"] == 6


def test_sessions_are_counted_by_number_or_by_following_parents():
    chain = trace([0, 1, 2, 3], parent=np.array([-1, 0, 1, -1]))
    assert summarize(chain)["sessions"] == {
        "sessions": 2,
        "turns_mean": 2,
        "turns_median": 2,
        "turns_max": 3,
        "follow_ups": 2,
    }
    numbered = trace([0, 1, 2], session=np.array([9, 4, 9]))
    assert summarize(numbered)["sessions"]["turns_max"] == 2
    assert summarize(trace([0, 1]))["sessions"] is None
