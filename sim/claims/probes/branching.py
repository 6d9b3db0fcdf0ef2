"""What samples and beams spare where they are of other kinds than a workload of kvsim can say.

Each probe runs the engine of the PagedAttention paper over requests of a dataset, in memory so
large that nobody waits. An iteration takes the same time whatever its batch, which weighs all
tokens alike.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sim.allocators.paged_cow import PagedCow
from sim.beam_search import Step
from sim.branching import Branches, WorkloadBranches
from sim.claims.probes.results import Seeds
from sim.costs.linear import Constant
from sim.engine.simulation import Memory, Options, Run, simulate
from sim.metrics.facts import facts_of
from sim.metrics.summary import memory_metrics
from sim.schedulers.vllm_v0 import VllmV0
from sim.sequence import (
    FINISH_NS,
    FIRST_SCHEDULED_NS,
    PROMPT_TOKENS,
    IntArray,
    Limits,
    new_requests,
)
from workloads.alpaca import Alpaca
from workloads.beams import BeamModel, BeamSearch
from workloads.sharegpt import ShareGPT
from workloads.trace import Trace

DATASETS = {"alpaca": Alpaca, "sharegpt": ShareGPT}
RATE = 4.0  # requests a second
ITERATION_S = 0.03
LONGEST = 2048
NUM_SLOTS = 1 << 20


@dataclass(frozen=True)
class Calming(BeamModel):
    """A beam model whose concentration falls with the length: 1 / (1 + step / calms_after)."""

    calms_after: float = 1.0

    def search(self, request: int, width: int) -> BeamSearch:
        """As the model's, calming."""
        search = super().search(request, width)
        return _CalmingSearch(search.width, search.concentration, search.rng, calms=self)


@dataclass
class _CalmingSearch(BeamSearch):
    calms: Calming | None = None

    def _advance(self) -> None:
        assert self.calms is not None
        step = len(self._steps)
        self.concentration = self.calms.concentration / (1 + step / self.calms.calms_after)
        super()._advance()


class _Searches(WorkloadBranches):
    """Beams of one width, of a given model."""

    def __init__(self, num_requests: int, width: int, model: BeamModel) -> None:
        super().__init__(None, np.full(num_requests, width), model.seed)
        self._model = model


class UnequalSamples(Branches):
    """Samples that end one by one; lengths are output tokens, shape (requests, samples)."""

    def __init__(self, lengths: IntArray) -> None:
        self._lengths = lengths
        self._running: dict[int, list[int]] = {}  # lengths of a request's, in order
        self._done: dict[int, int] = {}  # tokens of each so far

    def width(self, request: int) -> int:
        return int(self._lengths.shape[1])

    def is_search(self, request: int) -> bool:
        return False

    def asks_always(self, request: int) -> bool:
        return True

    def step(self, request: int, is_prompt: bool, is_last: bool) -> Step | None:
        if is_prompt:
            self._running[request] = self._lengths[request].tolist()
            self._done[request] = 1
            return Step(forked=[0] * (self.width(request) - 1))
        self._done[request] += 1
        running, done = self._running[request], self._done[request]
        self._running[request] = [length for length in running if length > done]
        return Step(ended=[place for place, length in enumerate(running) if length == done])


def beams_spare_percent(
    dataset: str,
    width: int,
    concentration: float,
    num_requests: int,
    calms_after: float | None = None,
    num_seeds: int = 1,
) -> Seeds:
    """Percent of blocks that beams spare (PagedAttention, Fig. 15b), by the beam model's parameter.

    concentration: see workloads.beams. With calms_after it has halved after so many tokens, has
    fallen to a third after twice as many, and so on: beams switch less and less.
    """

    def found(seed: int) -> float:
        trace = _trace(dataset, num_requests, seed)
        model = BeamModel(seed, concentration)
        if calms_after is not None:
            model = Calming(seed, concentration, calms_after)
        return _spared_percent(_run(trace, _Searches(num_requests, width, model)))

    return Seeds(tuple(found(seed) for seed in range(num_seeds)))


def samples_spare_percent(
    dataset: str, num_samples: int, spread: float, num_requests: int = 400, num_seeds: int = 5
) -> Seeds:
    """Percent of blocks that samples spare (PagedAttention, Fig. 15a) if they differ in length.

    Each is as long as its request's output times a number between 1 - spread and 1 + spread, all
    equally likely, and two tokens at least.
    """

    def found(seed: int) -> float:
        trace = _trace(dataset, num_requests, seed)
        rng = np.random.default_rng([seed, num_samples])
        factors = rng.uniform(1 - spread, 1 + spread, (num_requests, num_samples))
        lengths = np.rint(factors * trace.output_tokens[:, np.newaxis]).astype(np.int64)
        room = LONGEST - trace.prompt_tokens[:, np.newaxis]
        lengths = np.clip(lengths, 2, room)
        return _spared_percent(_run(trace, UnequalSamples(lengths), lengths.max(axis=1)))

    return Seeds(tuple(found(seed) for seed in range(num_seeds)))


def prompt_share_percent(dataset: str, num_requests: int = 2000, num_seeds: int = 5) -> Seeds:
    """Percent of the KV in memory that is prompts, averaged over time, one output a request.

    n samples that share nothing have n times of both. A request's prompt is there from when it is
    first scheduled until it finishes; all KV are the token states of the run.
    """

    def found(seed: int) -> float:
        run = _run(_trace(dataset, num_requests, seed), None)
        stays_ns = run.requests[:, FINISH_NS] - run.requests[:, FIRST_SCHEDULED_NS]
        prompts = float((run.requests[:, PROMPT_TOKENS] * stays_ns).sum())
        frac = memory_metrics(facts_of(run))["token_states_frac"]
        assert isinstance(frac, float)
        return 100 * prompts / (frac * NUM_SLOTS * (run.end_ns - run.start_ns))

    return Seeds(tuple(found(seed) for seed in range(num_seeds)))


def _trace(dataset: str, num_requests: int, seed: int) -> Trace:
    return DATASETS[dataset](num_requests, {"kind": "poisson", "rate": RATE}).load(seed)


def _run(trace: Trace, branches: Branches | None, outputs: IntArray | None = None) -> Run:
    outputs = trace.output_tokens if outputs is None else outputs
    limits = Limits(LONGEST, outputs)
    requests = new_requests(trace.arrival_ns, trace.prompt_tokens, outputs, limits)
    allocator, scheduler = PagedCow(16), VllmV0(max_num_seqs=1 << 16)
    options = Options(branches=branches)
    cost = Constant(ITERATION_S)
    return simulate(requests, Memory(NUM_SLOTS, LONGEST), allocator, scheduler, cost, options)


def _spared_percent(run: Run) -> float:
    """Fig. 15's measure of a run. Raises ValueError if nothing was ever held."""
    frac = memory_metrics(facts_of(run))["shared_blocks_saved_frac"]
    if not isinstance(frac, float):
        raise ValueError("nothing was held")
    return 100 * frac
