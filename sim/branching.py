"""What a request's sequences become at each step: parallel samples, beams, or what was recorded.

No tokens are simulated, so somebody must say which sequences fork and which die. A provider of
`Branches` does, from the workload's model or from a recording; a scheduler applies it in the
order of its engine.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping

from sim.beam_search import BeamSearch, Candidate, Step
from sim.sequence import IntArray
from workloads.beams import BeamModel
from workloads.beams import BeamSearch as ModelledSearch


class Branches(ABC):
    """Says what the sequences of requests become."""

    @abstractmethod
    def width(self, request: int) -> int:
        """The most sequences that the request runs at once; 1 for one that never forks."""

    @abstractmethod
    def is_search(self, request: int) -> bool:
        """Whether its sequences are beams: then every token may fork some and end others."""

    @abstractmethod
    def step(self, request: int, is_prompt: bool, is_last: bool) -> Step | None:
        """What becomes of the sequences that have just got a token; None if each goes on.

        is_prompt: it is the first one after a prompt, of the only sequence there is. is_last: it
        is the last one by its length. Called once a token for a search, for others only then.
        """

    def asks_always(self, request: int) -> bool:
        """Whether step must be called for every token of the request."""
        return self.is_search(request)


class WorkloadBranches(Branches):
    """The samples and beams that a trace asks for. No sequence ends before its request does.

    Beams are a model's, but for the requests whose search was recorded: recorded maps them to the
    parents of their beams, shape (steps, width), as workloads.beams.recorded_parents returns them.
    """

    def __init__(
        self,
        num_samples: IntArray | None,
        beam_width: IntArray | None,
        seed: int,
        recorded: Mapping[int, IntArray] | None = None,
    ) -> None:
        self._num_samples, self._beam_width = num_samples, beam_width
        self._model = BeamModel(seed)
        self._recorded = recorded or {}
        self._searches: dict[int, _Beams | _RecordedBeams] = {}

    def width(self, request: int) -> int:
        columns = (self._num_samples, self._beam_width)
        return max(1, *(column.item(request) for column in columns if column is not None))

    def is_search(self, request: int) -> bool:
        return self._beam_width is not None and self._beam_width.item(request) > 1

    def step(self, request: int, is_prompt: bool, is_last: bool) -> Step | None:
        width = self.width(request)
        if not self.is_search(request):
            return Step(forked=[0] * (width - 1)) if is_prompt and not is_last else None
        if is_last:
            self._searches.pop(request, None)
            return None
        if is_prompt:
            self._searches[request] = self._new_search(request, width)
        return self._searches[request].step()

    def _new_search(self, request: int, width: int) -> _Beams | _RecordedBeams:
        if request in self._recorded:
            return _RecordedBeams(self._recorded[request])
        return _Beams(self._model.search(request, width), width)


class _Beams:
    """One search of the model: which beam of the model each sequence is."""

    def __init__(self, model: ModelledSearch, width: int) -> None:
        self._model, self._search = model, BeamSearch(width)
        self._beams = [0]  # of the running sequences, in their order
        self._step = 0

    def step(self) -> Step:
        places = {beam: place for place, beam in enumerate(self._beams)}
        samples: list[list[Candidate]] = [[] for _ in places]
        for rank, (beam, score) in enumerate(self._model.candidates(self._step)):
            samples[places[beam]].append(Candidate(places[beam], score, False, rank))
        self._step += 1
        step, running = self._search.select(samples)
        self._beams = [candidate.name for candidate in running]
        return step


class _RecordedBeams:
    """One search that was recorded: which beam of it each sequence is.

    Of the beams that continue one sequence the first to be named stays in it, the others are new.
    """

    def __init__(self, parents: IntArray) -> None:
        self._parents = iter(parents.tolist())
        self._beams = [0]  # of the running sequences, in their order

    def step(self) -> Step:
        places = {beam: place for place, beam in enumerate(self._beams)}
        stays: dict[int, int] = {}  # the beam that each sequence becomes
        forks = []  # (sequence, new beam)
        for beam, parent in enumerate(next(self._parents)):
            place = places[parent]
            if place in stays:
                forks.append((place, beam))
            else:
                stays[place] = beam
        dropped = [place for place in range(len(self._beams)) if place not in stays]
        self._beams = [stays[place] for place in sorted(stays)] + [beam for _, beam in forks]
        return Step(dropped, [place for place, _ in forks])
