"""The model of who survives in a beam search."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from workloads.beams import BeamModel, log_sticks

widths = st.integers(1, 8)
concentrations = st.sampled_from([0.001, 0.1, 1.0, 10.0, 1000.0])


@given(st.integers(0, 2**63), st.integers(0, 10**6), widths, concentrations)
def test_a_search_repeats_and_does_not_depend_on_others(seed, request, width, concentration):
    model = BeamModel(seed, concentration)
    search = model.search(request, width)
    late_first = model.search(request, width)
    late_first.parents(9)
    for step in range(10):
        parents = search.parents(step)
        assert parents == search.parents(step) == late_first.parents(step)
        assert len(parents) == width
        assert set(parents) <= set(range(width if step else 1))


def test_requests_and_seeds_differ():
    def steps(seed, request):
        search = BeamModel(seed).search(request, 4)
        return [search.parents(step) for step in range(30)]

    assert steps(0, 0) != steps(0, 1)
    assert steps(0, 0) != steps(1, 0)


def test_the_entropy_of_the_next_token_is_one_nat_at_concentration_one():
    logs = log_sticks(np.random.default_rng(1), 20_000, 60, 1.0)
    sticks = np.exp(logs)
    assert sticks.sum(axis=1) == pytest.approx(1, abs=1e-3)
    entropies = -(sticks * logs).sum(axis=1)
    assert entropies.mean() == pytest.approx(1, abs=4 * entropies.std() / 20_000**0.5)


def test_survivors_are_the_best_of_all_candidates():
    search = BeamModel(3, 1.0).search(0, 5)
    search.parents(4)
    scores, rng = search._scores.copy(), search.rng
    state = rng.bit_generator.state
    parents = search.parents(5)
    rng.bit_generator.state = state
    logs = log_sticks(rng, 5, 10, 1.0)
    everyone = sorted(
        ((scores[beam] + log, beam) for beam in range(5) for log in logs[beam]), reverse=True
    )
    assert parents == tuple(beam for _, beam in everyone[:5])


def distinct_parents(concentration):
    searches = [BeamModel(5, concentration).search(request, 6) for request in range(40)]
    return np.mean([len(set(s.parents(step))) for s in searches for step in range(1, 60)])


def test_sure_beams_go_on_alone_and_unsure_ones_fork_and_die():
    sure, middle, unsure = (distinct_parents(c) for c in (0.01, 1.0, 100.0))
    assert sure > 5.5
    assert sure > middle > unsure > 1


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: BeamModel(-1), "seed: must be a whole number, at least 0, got -1"),
        (lambda: BeamModel(0, 0), "concentration: must be at least 0.001 and at most 1000, got 0"),
        (lambda: BeamModel().search(0, 0), "width: must be a whole number, from 1 to 10000, got 0"),
    ],
)
def test_a_mistake_is_refused_by_name(make, message):
    with pytest.raises(ValueError, match=": ") as error:
        make()
    assert str(error.value) == message
