"""Tests without a distribution: exact cases by hand, and how often chance is taken for more."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim.compare.significance import (
    ALPHA,
    MAX_EXACT,
    holm,
    num_pairs_needed,
    sign_flip,
    two_samples,
)

numbers = st.floats(-1e6, 1e6, allow_nan=False)


def test_signs_of_three_pairs_are_flipped_in_eight_ways() -> None:
    """1 + 2 + 3 = 6 is only reached by it and by its mirror image; 1 + 2 - 3 = 0 by all."""
    found = sign_flip(np.array([1.0, 2.0, 3.0]))
    assert found.p == found.smallest == 2 / 8
    assert sign_flip(np.array([1.0, 2.0, -3.0])).p == 1
    # |-1 + 2 + 3| = 4: as far are 6, 4 and their mirror images
    assert sign_flip(np.array([-1.0, 2.0, 3.0])).p == 4 / 8


def test_five_values_are_dealt_out_in_ten_ways() -> None:
    """{1, 2} and {8, 9, 10} are farthest apart; {9, 10} and {1, 2, 8} have a smaller t."""
    found = two_samples(np.array([1.0, 2.0]), np.array([8.0, 9.0, 10.0]))
    assert found.p == found.smallest == 1 / 10
    assert two_samples(np.array([1.0, 2.0]), np.array([1.0, 2.0])).p == 1


@pytest.mark.parametrize("count", [1, 5, 40])
def test_no_difference_at_all_cannot_be_more_or_less_likely(count: int) -> None:
    assert sign_flip(np.zeros(count)).p == sign_flip(np.zeros(count)).smallest == 1
    if count > 1:
        equal = two_samples(np.full(count, 0.1), np.full(count, 0.1))
        assert equal.p == equal.smallest == 1


def test_constant_sides_that_differ_are_as_far_apart_as_can_be() -> None:
    """No variance on either side; rounding makes none."""
    assert sign_flip(np.full(6, 0.1)).p == 2 / 64
    assert two_samples(np.full(4, 0.1), np.full(4, 0.3)).p == 2 / 70


def test_many_values_are_sampled_and_what_was_seen_counts_as_one_draw() -> None:
    assert MAX_EXACT < 1 << 40
    apart = sign_flip(np.full(40, 1.0))
    assert 0 < apart.p < 1e-3
    assert 0 < two_samples(np.arange(30.0), np.arange(100.0, 130.0)).p < 1e-3
    assert sign_flip(np.tile([1.0, -1.0], 20)).p > 0.5


@given(st.lists(numbers, min_size=1, max_size=8), st.floats(1e-3, 1e3))
def test_neither_scale_nor_direction_nor_order_changes_p(values: list[float], scale: float) -> None:
    differences = np.array(values)
    found = sign_flip(differences)
    assert 0 < found.smallest <= found.p <= 1
    for other in (-differences, differences[::-1]):
        assert sign_flip(other).p == found.p
    assert sign_flip(differences * scale).p == pytest.approx(found.p, abs=0.1)


@given(
    st.lists(st.integers(-9, 9), min_size=2, max_size=5),
    st.lists(st.integers(-9, 9), min_size=2, max_size=5),
)
def test_the_sides_may_be_exchanged(first: list[int], second: list[int]) -> None:
    mine, its = np.array(first, float), np.array(second, float)
    found = two_samples(mine, its)
    assert 0 < found.smallest <= found.p <= 1
    assert two_samples(its, mine).p == pytest.approx(found.p)


def test_holm_multiplies_the_smallest_by_all_and_never_reverses_an_order() -> None:
    """Holm 1979, by hand: 0.01 x 4, 0.02 x 3, 0.03 x 2, 0.5; 0.02 and 0.03 end equal."""
    assert holm([0.5, 0.01, 0.03, 0.02]) == pytest.approx([0.5, 0.04, 0.06, 0.06])
    assert holm([0.9, 0.8]) == [1.0, 1.0]
    assert holm([]) == []


@given(st.lists(st.floats(1e-6, 1), min_size=1, max_size=20))
def test_holm_lies_between_no_correction_and_bonferronis(values: list[float]) -> None:
    for own, corrected in zip(values, holm(values), strict=True):
        assert own <= corrected <= min(1.0, own * len(values))


def test_it_is_said_how_many_pairs_could_tell() -> None:
    for tests in (1, 2, 7, 72):
        count = num_pairs_needed(tests)
        assert tests * 2 / 2**count <= ALPHA < tests * 2 / 2 ** (count - 1)


@pytest.mark.parametrize("kind", ["normal", "skewed"])
def test_equal_distributions_are_taken_for_different_ones_at_most_one_time_in_twenty(
    kind: str,
) -> None:
    """1,000 comparisons of equal sides: 50 expected, 68 is 2.6 deviations above.

    Pairs share what their seed draws, so their differences are symmetric whatever is drawn; values
    dealt out are exact for any distribution.
    """
    drawn = np.random.default_rng(20_260_101)
    draw = drawn.standard_normal if kind == "normal" else drawn.standard_exponential
    paired = two = 0
    for _ in range(1000):
        shared, first, second = draw(8), draw(8), draw(8)
        paired += sign_flip((shared + first) - (shared + second)).p <= ALPHA
        two += two_samples(first[:6], second[:6]).p <= ALPHA
    assert 30 <= paired <= 68
    assert 30 <= two <= 68


def test_of_twenty_comparisons_of_equals_seldom_a_single_one_is_found() -> None:
    """200 times twenty rows: 10 times at most is expected; uncorrected it is 128 times."""
    drawn = np.random.default_rng(3)
    corrected = uncorrected = 0
    for _ in range(200):
        values = [sign_flip(drawn.standard_normal(10)).p for _ in range(20)]
        corrected += min(holm(values)) <= ALPHA
        uncorrected += min(values) <= ALPHA
    assert corrected <= 18
    assert uncorrected > 100


def test_pairs_find_what_two_samples_cannot() -> None:
    """An effect of 1 beneath a common noise of 5, eight seeds: pairing takes the noise away."""
    found = {"pairs": 0, "two samples": 0}
    drawn = np.random.default_rng(7)
    for _ in range(100):
        common = 5 * drawn.standard_normal(8)
        first = common + 0.5 * drawn.standard_normal(8)
        second = common + 0.5 * drawn.standard_normal(8) + 1
        found["pairs"] += sign_flip(second - first).p <= ALPHA
        found["two samples"] += two_samples(first, second[::-1]).p <= ALPHA
    assert found["pairs"] > 90
    assert found["two samples"] < 20
