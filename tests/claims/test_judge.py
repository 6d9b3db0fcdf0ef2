"""Verdicts: what is within a tolerance, and what is said of what is not."""

from __future__ import annotations

from typing import Any

import pytest

from sim.claims.judge import judge
from sim.claims.measure import Measured
from sim.claims.statement import Statement
from sim.claims.verdicts import (
    CONFIRMED,
    DIRECTION,
    FITTED,
    NOT_REPRODUCED,
    REFUTED,
    VACUOUS,
)


def claim(expected: Any, comparator: str = "approx", **more: Any) -> Statement:
    given = {
        "id": "x",
        "source": "paper",
        "where": "§1",
        "statement": "…",
        "kind": "calibrated_sim",
        "priority": 1,
        "evidence": "primary",
        "expected": expected,
        "comparator": comparator,
        "measured_by": {"probe": "kv_bytes_per_token"},
    }
    return Statement.model_validate({**given, **more})


def verdict(stated: Statement, measured: Any, **more: Any) -> str:
    values = measured if isinstance(measured, dict) else {"": [measured]}
    return judge(stated, Measured(values, **more))[0]


@pytest.mark.parametrize(
    ("expected", "comparator", "tolerance", "unit", "holds", "fails"),
    [
        (15700, "approx", 0.02, "slots", 15400, 15300),
        (96.3, "approx", 2.0, "percentage points", 94.3, 94.2),
        (7.0, "eq", 0, "requests", 7, 7.01),
        ([1.7, 2.7], "range", 0.3, "x", 1.4, 1.39),
        ([1.7, 2.7], "range", 0.3, "x", 3.0, 3.01),
        (4, "le", 1, "percent", 5.0, 5.1),
        (4, "ge", 1, "percent", 3.0, 2.9),
        (22, "order_and_upper", 0, "x", 21.0, 22.1),
        ([0.2, 0.26], "input_parameter", 0, "", 0.2, 0.19),
        (False, "eq", 0, "admitted", False, True),
        ("more < less", "order", 0, "", True, False),
        ("first", "eq", 0, "", "first", "last"),
    ],
)
def test_each_comparator_has_its_edge(expected, comparator, tolerance, unit, holds, fails) -> None:
    stated = claim(expected, comparator, tolerance=tolerance, unit=unit)
    assert verdict(stated, holds) == CONFIRMED
    assert verdict(stated, fails) == NOT_REPRODUCED


def test_a_mean_over_seeds_is_judged_and_truths_must_hold_for_every_seed() -> None:
    assert verdict(claim(10, tolerance=0.1), {"": [8, 12, 10]}) == CONFIRMED
    assert verdict(claim("a > b", "order"), {"": [True, True, False]}) == NOT_REPRODUCED


def test_every_part_of_an_expected_value_must_be_measured() -> None:
    stated = claim({"a": 1, "b": {"c": 2}}, tolerance={"a": 0.5, "c": 0})
    assert verdict(stated, {"a": [1.4], "b.c": [2]}) == CONFIRMED
    assert judge(stated, Measured({"a": [1.4]}))[1] == ["b.c is not measured"]
    assert verdict(stated, {"a": [1.4], "b.c": [2.001]}) == NOT_REPRODUCED


def test_several_measured_values_may_answer_one_expected_range() -> None:
    stated = claim({"existing": [60, 80], "paged": 4}, "range", tolerance=2, unit="percent")
    good = {"existing.max": [79.0], "existing.oracle": [61.0], "paged": [5.9]}
    assert verdict(stated, good) == CONFIRMED
    assert verdict(stated, {**good, "existing.oracle": [57.0]}) == NOT_REPRODUCED
    assert verdict(stated, {**good, "paged": [6.1]}) == NOT_REPRODUCED


def test_a_value_that_is_about_nothing_expected_is_a_miss() -> None:
    assert verdict(claim({"a": 1}), {"a": [1], "b": [1]}) == NOT_REPRODUCED


def test_what_fails_by_arithmetic_is_refuted_and_by_simulation_not_reproduced() -> None:
    assert verdict(claim(4, "eq", kind="deterministic"), 5) == REFUTED
    assert verdict(claim(4, "eq", kind="rate_sim"), 5) == NOT_REPRODUCED


def test_a_fit_is_named_and_a_direction_counts_only_where_the_size_is_wrong() -> None:
    assert verdict(claim(4, fitted="the shape"), 4) == FITTED
    assert verdict(claim(4, fitted="the shape"), 5) == NOT_REPRODUCED
    assert verdict(claim(4), 5, directions=[True, True]) == DIRECTION
    assert verdict(claim(4), 5, directions=[True, False]) == NOT_REPRODUCED
    assert verdict(claim(4), 4, directions=[False]) == CONFIRMED


def test_what_nothing_could_have_made_false_holds_vacuously() -> None:
    assert verdict(claim(0, "eq"), 0, vacuous="the pool is too small for any") == VACUOUS
    assert verdict(claim(0, "eq"), 1, vacuous="…") == NOT_REPRODUCED


def test_an_average_over_queued_time_needs_requests_that_wait_half_of_the_time() -> None:
    assert verdict(claim(4), 4, queued_time_frac=0.5) == CONFIRMED
    assert judge(claim(4), Measured({"": [4]}, queued_time_frac=0.49)) == (
        NOT_REPRODUCED,
        ["requests waited only 49% of the time, too little for an average"],
    )


def test_one_value_answers_a_pair_within_it_and_two_answer_its_ends() -> None:
    stated = claim({"reserved": 100, "filled": [10, 20]}, tolerance=0.03)
    assert verdict(stated, {"reserved": [102], "filled": [14]}) == CONFIRMED
    assert verdict(stated, {"reserved": [102], "filled": [21]}) == NOT_REPRODUCED
    assert verdict(stated, {"reserved": [102], "filled.0": [10], "filled.1": [20]}) == CONFIRMED
    assert judge(stated, Measured({"reserved": [102], "filled.0": [10]}))[1] == [
        "filled.1 is not measured"
    ]


def test_a_truth_value_answers_words_and_no_number() -> None:
    assert verdict(claim(0.96), True) == NOT_REPRODUCED
    assert verdict(claim({"gb": [10, 100]}, "range"), {"gb": [True]}) == NOT_REPRODUCED
    assert verdict(claim("a < b", "order"), True) == CONFIRMED
    assert verdict(claim(22, "order_and_upper"), {"x": [20], "a < b": [True]}) == CONFIRMED


def test_a_tolerance_of_one_part_is_not_that_of_another() -> None:
    stated = claim({"memory": 55, "speed": 2.2}, "le", tolerance={"memory": 5}, unit="percent / x")
    assert verdict(stated, {"memory": [59], "speed": [2.2]}) == CONFIRMED
    assert verdict(stated, {"memory": [59], "speed": [2.3]}) == NOT_REPRODUCED
