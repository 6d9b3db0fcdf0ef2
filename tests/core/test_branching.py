"""What samples and beams become, and that a recorded search is followed."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from sim.beam_search import Step
from sim.branching import WorkloadBranches


def recorded(parents: list[list[int]]) -> WorkloadBranches:
    width = np.array([len(parents[0])])
    return WorkloadBranches(None, width, 0, {0: np.array(parents)})


def follow(parents: list[list[int]]) -> list[Step]:
    """The steps of a search, and none at its last token."""
    branches = recorded(parents)
    steps = [branches.step(0, i == 0, False) for i in range(len(parents))]
    assert branches.step(0, False, True) is None
    assert None not in steps
    return [step for step in steps if step is not None]


def test_a_recorded_search_forks_and_drops_the_beams_it_names() -> None:
    assert follow([[0, 0, 0, 0], [0, 1, 0, 0], [0, 3, 0, 0], [1, 2, 1, 2]]) == [
        Step([], [0, 0, 0], ()),
        Step([2, 3], [0, 0], ()),
        Step([1, 2], [0, 0], ()),
        Step([0, 3], [1, 2], ()),
    ]


def test_a_beam_keeps_its_number_when_its_sequence_has_another_place() -> None:
    # beams 0 and 1 change places: the sequence of the old beam 1 is beam 0 now, in place 1
    assert follow([[0, 0], [1, 0], [0, 0]])[2] == Step([0], [1], ())


def test_the_model_draws_the_beams_of_a_request_that_was_not_recorded() -> None:
    widths = np.array([2, 2])
    some = WorkloadBranches(None, widths, 7, {0: np.array([[0, 0], [1, 1]])})
    none = WorkloadBranches(None, widths, 7)
    for is_prompt in (True, False, False):
        assert some.step(1, is_prompt, False) == none.step(1, is_prompt, False)


@st.composite
def searches(draw: st.DrawFn) -> list[list[int]]:
    width = draw(st.integers(2, 5))
    beams = st.lists(st.integers(0, width - 1), min_size=width, max_size=width)
    return [[0] * width, *draw(st.lists(beams, max_size=8))]


Tree = tuple["Tree", ...]
History = tuple[int, ...]


def tree(histories: list[History]) -> Tree:
    """Who has which ancestors in common, whatever they are called."""
    groups: dict[int, list[History]] = {}
    for first, *rest in histories:
        groups.setdefault(first, []).append(tuple(rest))
    return tuple(sorted(tree(group) if group[0] else () for group in groups.values()))


@given(searches())
def test_every_beam_has_the_ancestors_that_were_recorded(parents: list[list[int]]) -> None:
    sequences: list[History] = [()]
    beams: list[History] = [()]
    branches = recorded(parents)
    for i, step_parents in enumerate(parents):
        step = branches.step(0, i == 0, False)
        assert step is not None
        kept = [s for place, s in enumerate(sequences) if place not in step.dropped]
        sequences = [*kept, *(sequences[parent] for parent in step.forked)]
        sequences = [(*history, k) for k, history in enumerate(sequences)]
        beams = [(*beams[parent], k) for k, parent in enumerate(step_parents)]
        assert tree(sequences) == tree(beams)
