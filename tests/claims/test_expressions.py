"""From the rows of a summary to the values of a claim."""

from __future__ import annotations

import pandas as pd
import pytest

from sim.claims.expressions import MeasureError, evaluate, frames, queued_time_frac
from sim.claims.statement import Knee

ROWS = pd.DataFrame(
    {
        "run": list("abcdef"),
        "seed": [0, 1, 0, 1, 0, 1],
        "status": ["finished"] * 5 + ["stalled"],
        "reason": [""] * 5 + ["no progress"],
        "allocator": ["paged"] * 2 + ["contiguous"] * 4,
        "allocator.reservation": [None, None, "max", "max", "pow2", "pow2"],
        "running": [8.0, 6.0, 2.0, 3.0, 4.0, 4.0],
        "queued_time_frac": [0.9, 0.7, 0.8, 0.6, None, 0.1],
    }
)
CURVE = pd.DataFrame(
    {
        "run": list("abcdef"),
        "seed": [0, 0, 0, 1, 1, 1],
        "status": "finished",
        "reason": "",
        "rate": [1.0, 2.0, 4.0, 4.0, 2.0, 1.0],
        "latency": [0.1, 0.3, 0.7, 0.5, 0.2, 0.1],
    }
)
PAGED = {"paged": {"allocator": "paged"}, "max": {"allocator.reservation": "max"}}


def test_values_are_expressions_over_named_rows_seed_by_seed() -> None:
    found = frames(ROWS, PAGED, None)
    assert evaluate("paged.running / max.running", found) == [4.0, 2.0]
    assert evaluate("(paged.running > max.running) & (max.running > 2)", found) == [False, True]
    empty = frames(ROWS, {"it": {"allocator.reservation": None}}, None)
    assert evaluate("it.running", empty) == [8.0, 6.0]


@pytest.mark.parametrize(
    ("rows", "sentence"),
    [
        ({"it": {"alocator": "paged"}}, "unknown column 'alocator', did you mean allocator"),
        ({"it": {"allocator": "radix"}}, "no run has allocator = radix"),
        ({"it": {"allocator": ["paged", "contiguous"]}}, "run f is stalled: no progress"),
        ({"it": {"allocator.reservation": [None, "max"]}}, "picks several runs of a seed"),
    ],
)
def test_rows_that_cannot_be_picked_are_one_sentence(rows, sentence) -> None:
    with pytest.raises(MeasureError, match=sentence):
        frames(ROWS, rows, None)


def test_an_expression_without_a_meaning_or_a_value_is_one_sentence() -> None:
    found = frames(ROWS, PAGED, None)
    with pytest.raises(MeasureError, match="walking"):
        evaluate("paged.walking", found)
    with pytest.raises(MeasureError, match="has no value for some seed"):
        evaluate("paged.running / (max.running - max.running) * 0", found)


def test_the_least_queued_time_counts_where_an_expression_is_about_queued_time() -> None:
    found = frames(ROWS, PAGED, None)
    assert queued_time_frac(["paged.running"], found) is None
    assert queued_time_frac(["paged.running_queued"], found) == 0.6


def test_a_knee_lies_between_the_points_around_the_limit() -> None:
    knee = Knee(x="rate", y="latency", limit=0.4)
    found = frames(CURVE, {"it": {"status": "finished"}}, knee)
    assert evaluate("it.knee", found) == pytest.approx([2.5, 10 / 3])


@pytest.mark.parametrize(
    ("limit", "sentence"),
    [(0.05, "above 0.05 at the smallest rate"), (0.6, "within 0.6 up to the largest rate")],
)
def test_a_curve_that_does_not_cross_its_limit_has_no_knee(limit, sentence) -> None:
    with pytest.raises(MeasureError, match=sentence):
        frames(CURVE, {"it": {"status": "finished"}}, Knee(x="rate", y="latency", limit=limit))
