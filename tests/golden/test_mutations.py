"""The recorded cases tell the rules apart: five deliberate mistakes are each found by them."""

import numpy as np
import pytest

from recorded import Case, case_paths, read_case
from replay_v1 import VERSIONS, Difference, Replay, parts_of
from sim.allocators import Admission
from sim.allocators.blocks import NUM_FREE
from sim.allocators.prefix import Prefix
from sim.schedulers.vllm_v1 import VllmV1
from sim.sequence import NUM_COMPUTED, NUM_TOKENS, IntArray, SequenceTable

ENGINE = "vllm_v1"
NAMED = [path for path in case_paths(ENGINE) if path.suffix != ".gz"]

pytestmark = pytest.mark.skipif(not NAMED, reason=f"no named cases of {ENGINE}")


class FreesInAnotherOrder(Prefix):
    """Freed blocks without findable content go to the back of the queue."""

    def bind(self, num_slots: int, sequences: SequenceTable, max_model_len: int) -> None:
        self.free_order = "append"
        super().bind(num_slots, sequences, max_model_len)


class NeedsOneMore(Prefix):
    """Admits if the need is below what is free, where the engine admits up to it."""

    def admit(self, row: int, count: int) -> Admission:
        self._pool[NUM_FREE] -= 1
        verdict = self.can_admit(row, count)
        self._pool[NUM_FREE] += 1
        return super().admit(row, count) if verdict is Admission.OK else verdict


class HitsWholePrompts(Prefix):
    """A fully cached prompt of whole blocks is hit in full."""

    def lookup(self, row: int) -> int:
        self._rows[row, NUM_TOKENS] += 1
        found = super().lookup(row)
        self._rows[row, NUM_TOKENS] -= 1
        return found

    def admit(self, row: int, count: int) -> Admission:
        self._rows[row, NUM_TOKENS] += 1
        verdict = super().admit(row, count)
        self._rows[row, NUM_TOKENS] -= 1
        return verdict


class CachesAfterTheForwardPass(Prefix):
    """A block becomes findable in the iteration after the one that fills it."""

    def admit(self, row: int, count: int) -> Admission:
        verdict = self.can_admit(row, count)
        if verdict is Admission.OK:
            super().admit(row, 1)
            self.append(np.array([row]), np.array([count - 1]))
        return verdict

    def append(self, rows: IntArray, counts: IntArray) -> int:
        known = self._rows[rows, NUM_TOKENS].copy()
        self._rows[rows, NUM_TOKENS] = self._rows[rows, NUM_COMPUTED]
        served = super().append(rows, counts)
        self._rows[rows, NUM_TOKENS] = known
        return served


class PreemptsTheOldest(VllmV1):
    """Takes memory from whoever was admitted first."""

    def _victim(self) -> int:
        return 0


MUTATIONS = [FreesInAnotherOrder, NeedsOneMore, HitsWholePrompts, CachesAfterTheForwardPass]


def difference_with(case: Case, mutation: type | None) -> Difference | None:
    """The first difference when the mutation takes the place of what it is derived from."""
    allocator, scheduler = parts_of(case, VERSIONS[ENGINE])
    for part in (allocator, scheduler):
        if mutation is not None and issubclass(mutation, type(part)):
            part.__class__ = mutation
    return Replay(case, allocator, scheduler).first_difference()


@pytest.mark.parametrize("mutation", [*MUTATIONS, PreemptsTheOldest])
def test_a_mistake_in_a_rule_differs_from_what_the_engine_did(mutation: type) -> None:
    cases = [read_case(path) for path in NAMED]
    synchronous = [case for case in cases if case.config["pipeline_depth"] == 1]
    found = {case.name for case in synchronous if difference_with(case, mutation)}
    assert found, f"no case notices {mutation.__doc__}"
    unchanged = [case for case in synchronous if case.name in found]
    assert difference_with(unchanged[0], None) is None
