"""Step for step and block for block what nano-vllm did, in every recorded case.

The cases are not part of this repository: $KVSIM_GOLDEN_DIR or $KVSIM_SHARED/golden says where
they are.
"""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from recorded import Case, RecordedContent, case_paths, read_case
from replay_nano import (
    ENGINE,
    MAX_MODEL_LEN,
    Replay,
    num_slots_of,
    parts_of,
    requests_of,
)
from replay_v1 import Difference
from sim.allocators import cached_blocks
from sim.allocators.checked import visible_state
from sim.allocators.nano_vllm import NanoVllm
from sim.costs.linear import Constant
from sim.engine.simulation import Memory, Options, simulate
from sim.schedulers.nano_vllm import NanoVllm as NanoVllmScheduler
from sim.sequence import IntArray

STEP_NS = 1000
ENOUGH = 20  # cases in which every rule occurs

CASES = case_paths(ENGINE)
missing = pytest.mark.skip(f"no cases of {ENGINE}: set KVSIM_GOLDEN_DIR or KVSIM_SHARED")
every_case = pytest.mark.parametrize(
    "path",
    [pytest.param(path, id=path.name) for path in CASES]
    or [pytest.param(None, id="absent", marks=missing)],
)


@every_case
def test_every_step_of_a_recorded_case_is_the_engines(path: Path) -> None:
    case = read_case(path)
    difference = Replay(case, *parts_of(case)).first_difference()
    assert difference is None, f"{case.name}: {difference}"


@every_case
def test_a_case_run_with_sleeps_ends_like_the_engine(path: Path) -> None:
    """Every iteration takes one step's time, so that requests arrive where the engine saw them."""
    case = read_case(path)
    last = case.steps[-1]
    requests, content = requests_of(case, STEP_NS), RecordedContent(case.requests)
    memory = Memory(num_slots_of(case), MAX_MODEL_LEN)
    cost, options = Constant(STEP_NS * 1e-9), Options(content=content)
    run = simulate(requests, memory, *parts_of(case), cost, options)
    assert not last["after_update"]["running"]
    assert run.end_ns == (last["step"] + 1) * STEP_NS
    state = visible_state(run.allocator)
    assert state["free_list"].tolist() == last["after_update"]["free"]
    assert state["findable"][:, 0].tolist() == last["after_update"]["hashed"]
    assert not np.any(state["ref_counts"])


def test_a_difference_says_step_field_and_both_values() -> None:
    if not CASES:
        pytest.skip(f"no cases of {ENGINE}")
    case = read_case(CASES[0])
    free = case.steps[1]["after_update"]["free"]
    case.steps[1]["after_update"]["free"] = free[1:]
    found = Replay(case, *parts_of(case)).first_difference()
    words = f"step {case.steps[1]['step']}, after_update.free: recorded {free[1:]}, ours {free}"
    assert str(found) == words


class ChangedPool(NanoVllm):
    """A flag of the pool that is another one."""

    cell: int
    value: bool

    def _new_pool(self, num_blocks: int) -> IntArray:
        pool = super()._new_pool(num_blocks)
        pool[self.cell] = self.value
        return pool


class HitsTheOldest(ChangedPool):
    """Of two blocks with the same content the first one stays findable."""

    cell, value = cached_blocks.FINDS_NEWEST, False


class SharesWithinAnIteration(ChangedPool):
    """A block is findable as soon as its last token is scheduled."""

    cell, value = cached_blocks.CACHES_COMPUTED, False


class TakesBlocksChunkByChunk(ChangedPool):
    """A prompt in chunks takes the blocks of a chunk when it is computed."""

    cell, value = cached_blocks.TAKES_ALL, False


class FreesToTheFront(ChangedPool):
    """Freed blocks without findable content are handed out next."""

    cell, value = cached_blocks.PREPENDS_UNHASHED, True


class KeepsBlockZero(NanoVllm):
    """A null block is set aside."""

    num_null_blocks = 1


class ComputesAnyPromptInPart(NanoVllmScheduler):
    """Whatever is left of the budget goes to the next prompt."""

    def _admit(self, num_seqs: int, budget: int, now_ns: int) -> int:
        return super()._admit(min(num_seqs, 0), budget, now_ns)


class LimitsWhoRuns(NanoVllmScheduler):
    """max_num_seqs is how many may run."""

    def _admit(self, num_seqs: int, budget: int, now_ns: int) -> int:
        return super()._admit(max(num_seqs, self.num_running), budget, now_ns)


class PreemptsToTheBack(NanoVllmScheduler):
    """Who is preempted queues again behind all others."""

    def _put_back(self, request: int, row: int) -> None:
        super()._put_back(request, row)
        self._waiting.push(self._waiting.pop())


class PutsDecodesFirst(NanoVllmScheduler):
    """Prompts wait as long as anybody can decode."""

    def _prefill(self, now_ns: int) -> bool:
        is_free = self.num_running == 0 or self.is_chunked
        return is_free and super()._prefill(now_ns)


MUTATIONS = [
    HitsTheOldest,
    SharesWithinAnIteration,
    TakesBlocksChunkByChunk,
    FreesToTheFront,
    KeepsBlockZero,
    ComputesAnyPromptInPart,
    LimitsWhoRuns,
    PreemptsToTheBack,
    PutsDecodesFirst,
]


def difference_with(case: Case, mutation: type[Any]) -> Difference | None:
    """The first difference when the mutation takes the place of what it is derived from."""
    allocator, scheduler = parts_of(case)
    for part in (allocator, scheduler):
        if issubclass(mutation, type(part)):
            part.__class__ = mutation
    return Replay(case, allocator, scheduler).first_difference()


@pytest.mark.skipif(len(CASES) < ENOUGH, reason=f"fewer than {ENOUGH} cases of {ENGINE}")
@pytest.mark.parametrize("mutation", MUTATIONS)
def test_a_mistake_in_a_rule_differs_from_what_the_engine_did(mutation: type[Any]) -> None:
    assert any(difference_with(read_case(path), mutation) for path in CASES), mutation.__doc__
