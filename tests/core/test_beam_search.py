"""Who lives, forks and ends in a beam search, against a definition that compares everybody."""

from collections.abc import Sequence

from hypothesis import given, settings
from hypothesis import strategies as st

from sim.beam_search import BeamSearch, Candidate, Step

History = tuple[int, ...]
"""the names of a sequence's tokens"""


def is_among_best(score: float, place: int, scores: Sequence[float], width: int) -> bool:
    """Whether fewer than width others are better; of equals the one named first is."""
    better = sum(other > score for other in scores)
    equal_before = sum(other == score for other in scores[:place])
    return better + equal_before < width


class EverybodyCompared:
    """The rule as a definition: no sorting, and sequences are what they consist of."""

    def __init__(self, width: int, early_stopping: bool) -> None:
        self.width, self.early_stopping = width, early_stopping
        self.finished: list[float] = []
        self.running: list[History] = [()]

    def step(self, samples: list[list[Candidate]]) -> None:
        new = [candidate for mine in samples for candidate in mine]
        done = self.finished + [c.score for c in new if c.is_finished]
        keeps = [is_among_best(score, i, done, self.width) for i, score in enumerate(done)]
        self.finished = [score for score, kept in zip(done, keeps, strict=True) if kept]
        going = [c for c in new if not c.is_finished]
        scores = [c.score for c in going]
        is_full = len(self.finished) == self.width
        is_beaten = is_full and all(min(self.finished) >= score for score in scores)
        if is_full and (self.early_stopping or is_beaten):
            going = []
        best = [c for i, c in enumerate(going) if is_among_best(c.score, i, scores, self.width)]
        self.running = [(*self.running[c.parent], c.name) for c in best]


def apply(step: Step, rows: list[History], samples: list[list[Candidate]]) -> list[History]:
    """Do to sequences what a step says, as its docstring says: every one must be touched once."""
    ends = [*step.dropped, *step.ended]
    assert len(set(ends)) == len(ends), "a sequence ends twice"
    assert not set(step.forked) & set(step.dropped), "a dropped sequence forks"
    assert all(not samples[place] for place in step.dropped)
    kept = [row for place, row in enumerate(rows) if place not in ends]
    return [*kept, *(rows[place] for place in step.forked)]


@settings(max_examples=400, deadline=None, derandomize=True)
@given(st.data(), st.integers(1, 5), st.booleans())
def test_a_beam_search_keeps_whom_a_comparison_with_everybody_keeps(
    data: st.DataObject, width: int, early_stopping: bool
) -> None:
    search = BeamSearch(width, early_stopping)
    reference = EverybodyCompared(width, early_stopping)
    rows: list[History] = [()]
    num_names = 0
    for _ in range(data.draw(st.integers(1, 8))):
        samples: list[list[Candidate]] = [[] for _ in rows]
        for _ in range(data.draw(st.integers(0, 2 * width))):
            parent = data.draw(st.integers(0, len(rows) - 1))
            score = float(data.draw(st.integers(-12, 0)))
            is_finished = data.draw(st.integers(0, 3)) == 0
            samples[parent].append(Candidate(parent, score, is_finished, num_names))
            num_names += 1
        reference.running = list(rows)  # the same ones, in the order of their places
        reference.step(samples)
        step, going = search.select(samples)
        parents = apply(step, rows, samples)
        rows = [(*parent, c.name) for parent, c in zip(parents, going, strict=True)]
        assert sorted(rows) == sorted(reference.running)
        assert sorted(search._finished) == sorted(reference.finished)
        if not rows:
            return


@given(st.integers(1, 5), st.booleans())
def test_without_candidates_every_beam_is_dropped(width: int, early_stopping: bool) -> None:
    step, going = BeamSearch(width, early_stopping).select([[] for _ in range(width)])
    assert (list(step.dropped), going) == (list(range(width)), [])
    assert not step.forked
    assert not step.ended


def test_early_stopping_ends_a_search_that_a_better_beam_would_prolong() -> None:
    """The only finished one scores -2, and a running one -1."""
    samples = [[Candidate(0, -1.0, False, 0), Candidate(0, -2.0, True, 1)]]
    for early_stopping, num_going in ((False, 1), (True, 0)):
        step, going = BeamSearch(1, early_stopping).select(samples)
        assert len(going) == num_going
        assert list(step.ended) == [0], "its last candidate has finished"
        assert list(step.forked) == [0] * num_going
