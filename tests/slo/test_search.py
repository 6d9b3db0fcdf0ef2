"""The search for the highest rate: exact on any threshold, monotone on anything."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim.slo.search import MAX_DOUBLINGS, Bracket, Ladder, highest_rung, ladder

STEPS = 8
LADDER = Ladder(1.0, STEPS)
TOP = LADDER.highest


def found(holds: Callable[[int], bool], highest: int = TOP) -> tuple[Bracket, list[int]]:
    asked: list[int] = []

    def noted(rung: int) -> bool:
        asked.append(rung)
        return holds(rung)

    return highest_rung(LADDER, noted, highest), asked


@given(st.integers(-TOP, TOP - 1))
def test_a_threshold_is_found_to_the_rung_with_few_questions(threshold: int) -> None:
    bracket, asked = found(lambda rung: rung <= threshold)
    assert bracket == Bracket(threshold, threshold + 1)
    assert len(asked) <= abs(threshold) // STEPS + 2 + 3
    assert len(asked) == len(set(asked))


def test_what_always_or_never_holds_is_said_and_ends() -> None:
    bracket, asked = found(lambda rung: True)
    assert bracket == Bracket(TOP, None)
    assert len(asked) == MAX_DOUBLINGS + 1
    bracket, asked = found(lambda rung: False)
    assert bracket == Bracket(None, -TOP)
    assert len(asked) == MAX_DOUBLINGS + 1
    assert found(lambda rung: True, highest=STEPS)[0] == Bracket(STEPS, None)


@given(st.sets(st.integers(-TOP, TOP)), st.sets(st.integers(-TOP, TOP)), st.integers(0, TOP))
def test_a_stricter_condition_is_never_found_at_a_higher_rate(
    loose: set[int], kept: set[int], highest: int
) -> None:
    """Whatever the conditions do along the rates: neither of them need be monotone."""
    strict = loose & kept
    low, high = (
        -TOP - 1 if bracket.holds is None else bracket.holds
        for bracket in (found(where.__contains__, highest)[0] for where in (strict, loose))
    )
    assert low <= high


@given(st.sets(st.integers(-TOP, TOP)))
def test_the_bracket_lies_between_a_yes_and_a_no_that_were_seen(where: set[int]) -> None:
    bracket, asked = found(where.__contains__)
    if bracket.holds is not None:
        assert bracket.holds in where
        assert bracket.holds in asked
    if bracket.fails is not None:
        assert bracket.fails not in where
        assert bracket.fails in asked
    if bracket.holds is not None and bracket.fails is not None:
        assert bracket.fails == bracket.holds + 1


@given(st.floats(0.001, 1), st.floats(1e-3, 1e3))
def test_rungs_are_as_close_as_the_tolerance_asks(tolerance: float, start: float) -> None:
    made = ladder(start, tolerance)
    assert made.rate(0) == pytest.approx(start, rel=1e-5)
    assert made.rate(made.rungs_per_doubling) == pytest.approx(2 * start, rel=1e-5)
    ratio = 2 ** (1 / made.rungs_per_doubling)
    assert ratio <= 1 + tolerance + 1e-9
    assert made.rungs_per_doubling & (made.rungs_per_doubling - 1) == 0
