"""Which candidates of a beam search live on, by the rule of vLLM v0 (0.2.7).

The sampler proposes twice as many candidates as there are beams. Finished ones compete with those
that finished before, by score; of the others the best `width` run on, unless the search is over:
nobody runs, or enough have finished and none that runs is better than the worst of them. A
parent's last candidate continues its sequence; its others are new sequences.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class Step(NamedTuple):
    """What becomes of a request's sequences, which are numbered in their order, at one token.

    First the dropped ones are freed. Then forked[i] gets a new sequence that continues it; new
    sequences stand behind the old ones, in this order. Last, the ended ones are freed, in order.
    """

    dropped: Sequence[int] = ()
    forked: Sequence[int] = ()
    ended: Sequence[int] = ()


class Candidate(NamedTuple):
    """One more token for a sequence: parent is its place among those that run.

    score is the logarithm of the whole sequence's probability, divided by what the length penalty
    makes of its length. name is whatever the caller knows it by.
    """

    parent: int
    score: float
    is_finished: bool
    name: int


class BeamSearch:
    """One request's search: it remembers the scores of what has finished."""

    def __init__(self, width: int, early_stopping: bool = False) -> None:
        self.width = width
        self.early_stopping = early_stopping
        self._finished: list[float] = []

    def select(self, samples: Sequence[Sequence[Candidate]]) -> tuple[Step, list[Candidate]]:
        """What becomes of the running sequences; samples[i] are the candidates of number i.

        The second result are the candidates that run on, in the order of their sequences.
        """
        new = [candidate for mine in samples for candidate in mine]
        last = {id(mine[-1]) for mine in samples if mine}  # these continue their parents
        kept, lost = self._finish([candidate for candidate in new if candidate.is_finished])
        running = sorted((c for c in new if not c.is_finished), key=_score, reverse=True)
        if not running or self._is_over(running[0].score):
            going, over = [], running
        else:
            going, over = running[: self.width], running[self.width :]
        forks = [candidate for candidate in going if id(candidate) not in last]
        stays = sorted((c for c in going if id(c) in last), key=lambda c: c.parent)
        ended = [c.parent for c in (*kept, *lost, *over) if id(c) in last]
        dropped = [place for place, mine in enumerate(samples) if not mine]
        return Step(dropped, [c.parent for c in forks], ended), [*stays, *forks]

    def _finish(self, new: list[Candidate]) -> tuple[list[Candidate], list[Candidate]]:
        """Let new ones compete with those that have finished; return kept and lost, best first."""
        entries = [(score, None) for score in self._finished] + [(c.score, c) for c in new]
        entries.sort(key=lambda entry: entry[0], reverse=True)
        best, rest = entries[: self.width], entries[self.width :]
        self._finished = [score for score, _ in best]
        self._worst = best[-1][0] if len(best) == self.width else None
        return [c for _, c in best if c is not None], [c for _, c in rest if c is not None]

    def _is_over(self, best_running: float) -> bool:
        if self._worst is None:
            return False
        return self.early_stopping or self._worst >= best_running


def _score(candidate: Candidate) -> float:
    return candidate.score
