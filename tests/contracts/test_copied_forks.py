"""Forks without sharing: each sequence keeps its tokens, and only what must be is copied."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, reject, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from sim.allocators import ALLOCATORS, Admission, Allocator
from sim.allocators.checked import CheckedAllocator
from sim.allocators.terms import NUM_RECORDED
from sim.sequence import FINAL_TOKENS, NUM_COMPUTED, NUM_TOKENS, Limits, SequenceTable, new_requests

LONGEST = 16
NUM_REQUESTS = 8

Word = int
Slots = list[int]

PARAMETERS: list[tuple[str, dict[str, Any]]] = [
    *(("paged", {"block_size": size, "watermark": spare}) for size in (1, 3) for spare in (0, 0.2)),
    *(
        (
            "contiguous",
            {"reservation": reservation, "placement": placement, "compaction": compaction},
        )
        for reservation, placement in (
            ("oracle", "first_fit"),
            ("pow2", "best_fit"),
            ("max", "next_fit"),
            ("oracle", "next_fit"),
        )
        for compaction in (False, True)
    ),
    ("contiguous", {"reservation": "oracle", "placement": "buddy", "min_block": 2}),
    (
        "contiguous",
        {"reservation": "pow2", "placement": "buddy", "arena": "max_len_chunks", "min_block": 1},
    ),
]


class ForkMachine(RuleBasedStateMachine):
    """Random requests of several sequences; memory is what a device would hold, slot by slot.

    Nothing is copied into memory but what the allocator counts as copied.
    """

    factory: Callable[[], Allocator]

    @initialize(data=st.data(), num_slots=st.integers(16, 90))
    def open_pool(self, data: st.DataObject, num_slots: int) -> None:
        lengths = st.lists(st.integers(1, 7), min_size=NUM_REQUESTS, max_size=NUM_REQUESTS)
        columns = [np.array([0] * NUM_REQUESTS), *(np.array(data.draw(lengths)) for _ in range(2))]
        self.requests = new_requests(*columns, Limits(LONGEST, columns[2]))
        self.allocator = CheckedAllocator(type(self).factory())
        self.sequences = SequenceTable(capacity=2)
        try:
            self.allocator.bind(num_slots, self.sequences, LONGEST)
        except ValueError as refused:
            if "more than the pool of" not in str(refused):
                raise
            reject()
        self.groups: dict[int, list[int]] = {}
        self.words: dict[int, list[Word]] = {}  # of every row
        self.memory: dict[int, Word] = {}  # by slot
        self.num_words = 0

    def slots(self, row: int) -> Slots:
        """Of the row's tokens, in their order."""
        pieces = self.allocator.held_ranges(row).tolist()
        slots = [slot for start, count in pieces for slot in range(start, start + count)]
        return slots[: int(self.sequences.rows[row, NUM_COMPUTED])]

    def layout(self) -> dict[int, Slots]:
        return {row: self.slots(row) for row in self.words}

    def _new_words(self, count: int) -> list[Word]:
        self.num_words += count
        return list(range(self.num_words - count, self.num_words))

    def _num_compactions(self) -> int:
        return self.allocator.counters().get("num_compactions", 0)

    @rule(data=st.data(), width=st.integers(1, 4), again=st.booleans())
    def a_request_is_admitted(self, data: st.DataObject, width: int, again: bool) -> None:
        """As one sequence and copies of it or, again after a preemption, as several."""
        idle = sorted(set(range(NUM_REQUESTS)) - set(self.groups))
        if not idle:
            return
        request = data.draw(st.sampled_from(idle))
        row = self.sequences.open(self.requests, request)
        copies = [self.sequences.fork(row) for _ in range(width - 1)]
        rows, count = [row, *copies], int(self.requests[request, 0])
        before, copied = self.layout(), self.allocator.copied_tokens()
        compactions = self._num_compactions()
        if again:
            verdict = self.allocator.admit_all(np.array(rows), np.full(width, count))
        else:
            verdict = self.allocator.admit_copies(row, np.array(copies, np.int64), count)
        if verdict is not Admission.OK:
            assert self.layout() == before
            self.sequences.close_all(np.array(rows[::-1]))
            return
        prompt = self._new_words(count)
        self._account(before, copied, compactions, 0 if again else count * (width - 1))
        self.groups[request] = rows
        for mine in rows:
            self._write(mine, prompt)

    def _write(self, row: int, words: Sequence[Word]) -> None:
        """A row's last tokens are these."""
        self.words.setdefault(row, []).extend(words)
        slots = self.slots(row)
        self.memory |= dict(zip(slots[len(slots) - len(words) :], words, strict=True))

    def _account(
        self, before: dict[int, Slots], copied: int, compactions: int, forked: int
    ) -> None:
        """Move what compaction has moved; it and forks are what has been copied."""
        old = dict(self.memory)
        needed = forked
        for row, slots in before.items():
            if row in self.words and self.slots(row) != slots:
                needed += len(slots)
                moved = zip(self.slots(row), slots, strict=True)
                self.memory |= {new: old[slot] for new, slot in moved}
        spent = self.allocator.copied_tokens() - copied
        again = self._num_compactions() - compactions  # each may also move what is new
        written = self.sequences.rows[:, NUM_COMPUTED].sum()
        assert needed <= spent <= needed + again * written

    def growing(self) -> list[int]:
        return [request for request, (row, *_) in self.groups.items() if self._room(row) > 0]

    def _room(self, row: int) -> int:
        cells = self.sequences.rows[row]
        return int(cells[FINAL_TOKENS]) - 1 - len(self.words[row])

    @precondition(lambda self: self.growing())
    @rule(data=st.data(), num_iterations=st.integers(1, 8))
    def some_requests_decode(self, data: st.DataObject, num_iterations: int) -> None:
        requests = st.lists(st.sampled_from(self.growing()), min_size=1, unique=True)
        rows = [row for request in data.draw(requests) for row in self.groups[request]]
        array = np.array(rows)
        num_iterations = min([num_iterations, *(self._room(row) for row in rows)])
        promised = self.allocator.can_append(array, num_iterations)
        log = np.zeros((promised, NUM_RECORDED), np.int64)
        self.sequences.rows[array, NUM_TOKENS] += promised
        before = self.layout()
        self.allocator.append_ahead(array, promised, log)
        for row in rows:
            self._write(row, self._new_words(promised))
        after = self.layout()
        assert all(slots == after[row][: len(slots)] for row, slots in before.items())

    @precondition(lambda self: self.groups)
    @rule(data=st.data(), keeps_count=st.booleans())
    def a_request_forks(self, data: st.DataObject, keeps_count: bool) -> None:
        """With as many sequences after it as before, it needs no more memory than it has."""
        request = data.draw(st.sampled_from(sorted(self.groups)))
        rows = self.groups[request]
        parents = data.draw(st.lists(st.sampled_from(rows), min_size=1, max_size=4))
        ending = data.draw(st.lists(st.sampled_from(rows), unique=True))
        if keeps_count:
            parents = parents[: len(ending)]
        if len(ending) == len(rows) and not parents:
            return
        children = [self.sequences.fork(parent) for parent in parents]
        before, copied = self.layout(), self.allocator.copied_tokens()
        compactions = self._num_compactions()
        num_free = self.allocator.terms.item(-1)
        arrays = (np.array(mine, np.int64) for mine in (parents, children, ending))
        if not self.allocator.fork(*arrays):
            assert len(parents) > len(ending)
            assert self.layout() == before
            if self.allocator.kind == "paged":
                each = len(self.allocator.block_table(rows[0])) * self.allocator.block_size
                assert (len(parents) - len(ending)) * each > num_free
            self.sequences.close_all(np.array(children[::-1]))
            return
        taken_over = set(parents) & set(ending)
        forked = (len(parents) - len(taken_over)) * len(self.words[rows[0]])
        spoken = {row: self.words[row] for row in rows}
        for row in ending:
            del self.words[row]
        self.sequences.close_all(np.array(ending, np.int64))
        self._account(before, copied, compactions, forked)
        for parent in taken_over:  # without a copy, its memory must be one of its children's
            heirs = [c for c, p in zip(children, parents, strict=True) if p == parent]
            assert has_moved(compactions, self) or before[parent] in [self.slots(c) for c in heirs]
        for parent, child in zip(parents, children, strict=True):
            self._write(child, spoken[parent])
        self.groups[request] = [row for row in rows if row not in ending] + children

    @precondition(lambda self: self.groups)
    @rule(data=st.data())
    def a_request_ends(self, data: st.DataObject) -> None:
        rows = self.groups.pop(data.draw(st.sampled_from(sorted(self.groups))))
        before = self.layout()
        self.allocator.free(np.array(rows))
        self.sequences.close_all(np.array(rows))
        for row in rows:
            del self.words[row], before[row]
        assert self.layout() == before

    @invariant()
    def every_sequence_sees_its_own_tokens(self) -> None:
        if not hasattr(self, "groups"):
            return
        for row, words in self.words.items():
            assert [self.memory[slot] for slot in self.slots(row)] == words

    def teardown(self) -> None:
        if hasattr(self, "groups"):
            rows = [row for rows in self.groups.values() for row in rows]
            self.allocator.free(np.array(rows, np.int64))
            fresh = type(self).factory()
            fresh.bind(self.allocator.num_slots, SequenceTable(), LONGEST)
            assert self.allocator.terms.tolist() == fresh.terms.tolist()


def has_moved(compactions: int, machine: ForkMachine) -> bool:
    return machine._num_compactions() > compactions


@pytest.mark.parametrize(
    ("kind", "parameters"),
    [
        pytest.param(kind, given, id=f"{kind}-{'-'.join(map(str, given.values()))}")
        for kind, given in PARAMETERS
    ],
)
def test_copied_forks_keep_every_token_and_copy_what_they_must(
    kind: str, parameters: dict[str, Any]
) -> None:
    class Machine(ForkMachine):
        @staticmethod
        def factory() -> Allocator:
            return ALLOCATORS[kind](**parameters)

    run_state_machine_as_test(
        Machine,
        settings=settings(
            max_examples=12,
            stateful_step_count=25,
            deadline=None,
            derandomize=True,
            suppress_health_check=list(HealthCheck),
        ),
    )
