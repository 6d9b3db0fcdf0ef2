"""vLLM v0's recorded cases tell the rules apart: one of them finds each deliberate mistake."""

from collections.abc import Iterator

import numpy as np
import pytest

from recorded import Case, case_paths, read_case
from replay_v0 import Difference, Replay, parts_of
from sim.allocators import Admission
from sim.allocators.blocks import NUM_FREE
from sim.allocators.host_blocks import NOWHERE
from sim.allocators.paged_cow import PagedCow
from sim.schedulers.vllm_v0 import VllmV0
from sim.sequence import NUM_COMPUTED, REQUEST, IntArray, SequenceTable

NAMED = [path for path in case_paths("vllm_v0") if path.suffix != ".gz"]

pytestmark = pytest.mark.skipif(not NAMED, reason="no named cases of vllm_v0")


class FreesToTheBottom(PagedCow):
    """What was freed first is handed out first."""

    def free(self, rows: IntArray) -> None:
        old = self._pool.item(NUM_FREE)
        super().free(rows)
        stack = self._free_blocks[: self._pool.item(NUM_FREE)]
        stack[:] = np.roll(stack, len(stack) - old)


class TakesFromTheFront(PagedCow):
    """The lowest id is handed out first."""

    def bind(self, num_slots: int, sequences: SequenceTable, max_model_len: int) -> None:
        super().bind(num_slots, sequences, max_model_len)
        self._free_blocks[:] = self._free_blocks[::-1].copy()


class LastChildCopies(PagedCow):
    """Of the sequences that share a last block the first keeps it."""

    def append(self, rows: IntArray, counts: IntArray) -> int:
        backwards = [part[::-1] for part in self._parts(rows)]
        return super().append(np.concatenate(backwards), counts)

    def _parts(self, rows: IntArray) -> Iterator[IntArray]:
        requests = self.sequences.rows[rows, REQUEST]
        yield from np.split(rows, np.flatnonzero(np.diff(requests)) + 1)


class IgnoresTheWatermark(PagedCow):
    """Admissions and returns from the host may take the last block."""

    def bind(self, num_slots: int, sequences: SequenceTable, max_model_len: int) -> None:
        self.watermark = 0.0
        super().bind(num_slots, sequences, max_model_len)


class NeedsOneMore(PagedCow):
    """Admits what leaves more than the watermark free, where the engine admits what leaves it."""

    def can_allocate(self, row: int) -> Admission:
        self._pool[NUM_FREE] -= 1
        verdict = super().can_allocate(row)
        self._pool[NUM_FREE] += 1
        return verdict


class AsksForWhatIsNeeded(PagedCow):
    """A sequence that needs no block asks for none."""

    def append(self, rows: IntArray, counts: IntArray) -> int:
        num_free = self._pool.item(NUM_FREE)
        if len(rows) <= num_free:
            return super().append(rows, counts)
        table = [self.block_table(row)[-1] for row in rows.tolist()]
        is_full = self.sequences.rows[rows, NUM_COMPUTED] % self.block_size == 0
        if (is_full | (self._refs[table] > 1)).any():
            return super().append(rows, counts)
        self._pool[NUM_FREE] = len(rows)
        served = super().append(rows, counts)
        self._pool[NUM_FREE] = num_free
        return served


class SharingIsLost(PagedCow):
    """On the host each sequence has its own copy of what it shared."""

    def swap_out(self, rows: IntArray) -> None:
        for row in rows.tolist():
            super().swap_out(np.array([row]))
            self._moved[:] = NOWHERE


class FreesBeforeForks(PagedCow):
    """A parent's blocks are gone when its children want to hold them."""

    def fork(self, parents: IntArray, children: IntArray, ending: IntArray) -> bool:
        self.free(ending)
        return super().fork(parents, children, ending[:0])


class DecodesFirst(VllmV0):
    """Prompts wait as long as anybody decodes."""

    def _admit(self, now_ns: int) -> bool:
        return self.num_running == 0 and super()._admit(now_ns)


class PreemptsTheOldest(VllmV0):
    """Takes memory from the request that arrived first."""

    def _decode(self) -> None:
        self._sort()
        while self.num_running and not self.allocator.can_append(self._rows_now(), 1):
            requests = self.sequences.rows[self._rows_now(), REQUEST]
            first = int((requests == requests[0]).sum())
            self.running[: self.num_running] = np.roll(self._rows_now(), -first)
            self._preempt_last()
        super()._decode()

    def _rows_now(self) -> IntArray:
        return self.running[: self.num_running]


class SwapsEverybody(VllmV0):
    """A request of one sequence goes to the host, too."""

    def bind(self, *parts: object) -> None:
        self.preemption_mode = "swap"
        super().bind(*parts)  # type: ignore[arg-type]


class RecomputesEverybody(VllmV0):
    """A request of several sequences is recomputed, too."""

    def bind(self, *parts: object) -> None:
        self.preemption_mode = "recompute"
        super().bind(*parts)  # type: ignore[arg-type]


class AdmitsBesideSwapped(VllmV0):
    """Prompts do not wait for those that are on the host."""

    def step(self, now_ns: int) -> bool:
        away, self._swapped = self._swapped, {}
        self.num_waiting -= len(away)
        admits = self._admit(now_ns)
        self._swapped = away
        self.num_waiting += len(away)
        return admits or super().step(now_ns)


MUTATIONS = [
    FreesToTheBottom,
    TakesFromTheFront,
    LastChildCopies,
    IgnoresTheWatermark,
    NeedsOneMore,
    AsksForWhatIsNeeded,
    SharingIsLost,
    FreesBeforeForks,
    DecodesFirst,
    PreemptsTheOldest,
    SwapsEverybody,
    RecomputesEverybody,
    AdmitsBesideSwapped,
]


def difference_with(case: Case, mutation: type | None) -> Difference | None:
    """The first difference when the mutation takes the place of what it is derived from."""
    allocator, scheduler = parts_of(case)
    for part in (allocator, scheduler):
        if mutation is not None and issubclass(mutation, type(part)):
            part.__class__ = mutation
    assert isinstance(allocator, PagedCow)
    assert isinstance(scheduler, VllmV0)
    return Replay(case, allocator, scheduler).first_difference()


@pytest.mark.parametrize("mutation", MUTATIONS)
def test_a_mistake_in_a_rule_differs_from_what_the_engine_did(mutation: type) -> None:
    for path in NAMED:
        case = read_case(path)
        if difference_with(case, mutation) is not None:
            assert difference_with(case, None) is None
            return
    pytest.fail(f"no case notices: {mutation.__doc__}")
