"""What an operation on an allocator must keep, from the states before and after it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple, TypeVar

import numpy as np

from sim.allocators.base import Admission, Allocator
from sim.allocators.terms import (
    HELD_BLOCKS,
    INTERNAL,
    NUM_TERMS,
    TABLE_BLOCKS,
    TOKEN_STATES,
    ConservationError,
)
from sim.sequence import NUM_COMPUTED, NUM_SLOTS, IntArray

Answer = TypeVar("Answer")
State = dict[str, IntArray]
OWN = (NUM_COMPUTED, NUM_SLOTS)  # the cells of a sequence that are an allocator's to change


class Snapshot(NamedTuple):
    """What an allocator shows and has counted, and the rows of sequences, at one time."""

    state: State
    rows: IntArray


def require(condition: bool, sentence: str) -> None:
    """Raise ConservationError with the sentence unless the condition holds."""
    if not condition:
        raise ConservationError(sentence)


def visible_state(allocator: Allocator) -> State:
    """What is recorded and, where the allocator shows them, its free blocks and holes in order.

    And who shares what: reference counts, and the blocks that are findable.
    """
    state = {"terms": allocator.terms.copy(), "tables": allocator.recorded[NUM_TERMS:].copy()}
    for name in ("free_list", "host_free_list", "holes", "ref_counts", "findable"):
        method = getattr(allocator, name, None)
        if method is not None:
            state[name] = method()
    return state


def counted_state(allocator: Allocator) -> State:
    """The visible state and what the allocator has counted, none of which a question changes."""
    counts: Any = allocator.counters()
    values = list(counts.values()) if isinstance(counts, dict) else []
    whole = np.array([count for count in values if isinstance(count, int)], np.int64)
    return {**visible_state(allocator), "counters": whole}


def difference(before: State, after: State) -> str:
    """The names of what differs between two states; empty if nothing does."""
    return ", ".join(name for name in before if not np.array_equal(before[name], after[name]))


class Audit:
    """Raises ConservationError, with the allocator's kind, where it breaks the contract."""

    def __init__(self, allocator: Allocator) -> None:
        self.allocator = allocator

    @property
    def rows(self) -> IntArray:
        """The rows of sequences, as they are now: a view."""
        return self.allocator.sequences.rows

    def snapshot(self) -> Snapshot:
        """The state to compare with after an operation."""
        return Snapshot(counted_state(self.allocator), self.rows.copy())

    def ask(self, name: str, question: Callable[[], Answer]) -> Answer:
        """The answer to a question, which must change nothing."""
        before = self.snapshot()
        answer = question()
        self.require_unchanged(name, before)
        return answer

    def ask_of_run(self, name: str, question: Callable[[], Answer]) -> Answer:
        """ask, about all requests of a run: it may open rows of sequences, and close them again."""
        before = counted_state(self.allocator)
        answer = question()
        self._require_same_state(name, before)
        return answer

    def attempt(self, name: str, operation: Callable[[], Admission]) -> Admission:
        """What an operation answers, that does all of something or nothing."""
        before = self.snapshot()
        verdict = operation()
        if verdict != Admission.OK:
            self.require_unchanged(f"a refused {name}", before)
        self.recount(name)
        return verdict

    def require(self, condition: bool, sentence: str) -> None:
        """Raise ConservationError with the kind and the sentence unless the condition holds."""
        require(condition, f"{self.allocator.kind}: {sentence}")

    def admission(self, name: str, answer: Any) -> Admission:
        """The answer, which must be an Admission."""
        is_one = isinstance(answer, Admission)
        self.require(is_one, f"{name} answers {answer!r}; accepted: Admission.OK, .LATER, .NEVER")
        return Admission(answer)

    def require_whole(self, name: str, answer: Any) -> None:
        """The answer must be a whole number."""
        is_whole = isinstance(answer, int | np.integer) and not isinstance(answer, bool)
        self.require(is_whole, f"{name} answers {answer!r}; accepted: a whole number")

    def recount(self, operation: str) -> None:
        """The terms must add up, and be what the allocator finds when it counts."""
        self.require_totals(self.allocator.recorded[np.newaxis], operation)
        self.allocator.check(np.flatnonzero(self.rows[:, NUM_SLOTS]))

    def require_totals(self, log: IntArray, operation: str) -> None:
        """No term is negative and all add to the pool, or to what unlimited memory has written.

        And no block is held that stands in no table. log is recorded states, one a row.
        """
        self.require(not (log < 0).any(), f"a term is negative after {operation}")
        in_use = log[:, TOKEN_STATES] + log[:, INTERNAL]
        totals = np.maximum(self.allocator.num_slots, in_use)
        are_right = np.array_equal(log[:, :NUM_TERMS].sum(axis=1), totals)
        self.require(are_right, f"the terms do not add to the pool after {operation}")
        are_held = not (log[:, HELD_BLOCKS] > log[:, TABLE_BLOCKS]).any()
        self.require(are_held, f"more blocks are held than stand in tables after {operation}")

    def require_advance(self, before: IntArray, rows: IntArray, counts: IntArray) -> None:
        """Each row has computed so many more tokens, and no other row has changed."""
        now = self.rows
        kept = [column for column in range(now.shape[1]) if column not in OWN]
        is_kept = np.array_equal(now[rows][:, kept], before[rows][:, kept])
        self.require(is_kept, "a row has changed beyond num_computed and num_slots")
        written = now[rows, NUM_COMPUTED] - before[rows, NUM_COMPUTED]
        self.require(np.array_equal(written, counts), "num_computed advanced by another count")
        others = np.ones(len(now), np.bool_)
        others[rows] = False
        self.require(np.array_equal(now[others], before[others]), "another row has changed")

    def require_unchanged(self, operation: str, before: Snapshot) -> None:
        """Nothing has changed since the snapshot, neither memory nor sequences."""
        self._require_same_state(operation, before.state)
        self.require_same_rows(operation, before.rows)

    def require_same_rows(self, operation: str, before: IntArray) -> None:
        """The rows of sequences are as they were."""
        is_same = np.array_equal(self.rows, before)
        self.require(is_same, f"{operation} changed the sequences")

    def _require_same_state(self, operation: str, before: State) -> None:
        changed = difference(before, counted_state(self.allocator))
        self.require(not changed, f"{operation} changed {changed}")

    @contextmanager
    def unchanged(self, name: str, *arrays: IntArray) -> Iterator[None]:
        """The arguments of an operation are the caller's, and stay as they are."""
        before = [array.copy() for array in arrays]
        yield
        are_same = all(map(np.array_equal, before, arrays))
        self.require(are_same, f"{name} changed an array that it was given")

    def require_freed(self, before: IntArray, rows: IntArray) -> None:
        """The rows have no memory, and nothing else of any row has changed."""
        self.require_empty(rows, "a freed row")
        before = before.copy()
        for column in OWN:
            before[rows, column] = 0
        is_all = np.array_equal(before, self.rows)
        self.require(is_all, "free changed more than what the rows hold")

    def counts(self, counts: Any) -> dict[str, int]:
        """What has been counted, which must be whole numbers by name."""
        are_named = isinstance(counts, dict) and all(isinstance(name, str) for name in counts)
        self.require(are_named, f"counters answers {counts!r}; accepted: names and whole numbers")
        for name, count in counts.items():
            self.require_whole(f"counters of {name}", count)
            self.require(count >= 0, f"counters says {name} is {count}")
        return dict(counts)

    def require_empty(self, rows: IntArray, what: str) -> None:
        """The rows have no memory. what they are stands in the sentence."""
        held = self.rows[rows][:, [NUM_COMPUTED, NUM_SLOTS]]
        self.require(not held.any(), f"{what} still holds memory")
