"""An allocator that verifies another one at every operation: `kvsim run --check`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, TypeVar

import numpy as np

from sim.allocators.base import Admission, Allocator, BoolArray
from sim.allocators.terms import (
    HELD_BLOCKS,
    INTERNAL,
    NUM_TERMS,
    TABLE_BLOCKS,
    TOKEN_STATES,
    ConservationError,
    KVUsage,
)
from sim.sequence import FINAL_TOKENS, NUM_COMPUTED, NUM_SLOTS, NUM_TOKENS, IntArray, SequenceTable
from workloads.sequences import SequenceContent

Answer = TypeVar("Answer")


def require(condition: bool, sentence: str) -> None:
    """Raise ConservationError with the sentence unless the condition holds."""
    if not condition:
        raise ConservationError(sentence)


def visible_state(allocator: Allocator) -> dict[str, IntArray]:
    """What is recorded and, where the allocator shows them, its free blocks and holes in order.

    And who shares what: reference counts, and the blocks that are findable.
    """
    state = {"terms": allocator.terms.copy(), "tables": allocator.recorded[NUM_TERMS:].copy()}
    for name in ("free_list", "host_free_list", "holes", "ref_counts", "findable"):
        method = getattr(allocator, name, None)
        if method is not None:
            state[name] = method()
    return state


def counted_state(allocator: Allocator) -> dict[str, IntArray]:
    """The visible state and what the allocator has counted, none of which a question changes."""
    counts = np.array(list(allocator.counters().values()), np.int64)
    return {**visible_state(allocator), "counters": counts}


def difference(before: dict[str, IntArray], after: dict[str, IntArray]) -> str:
    """The names of what differs between two states; empty if nothing does."""
    return ", ".join(name for name in before if not np.array_equal(before[name], after[name]))


class CheckedAllocator(Allocator):
    """Delegates to another allocator and raises ConservationError when it breaks the contract.

    Every attribute that is not part of the contract is the other allocator's.
    """

    kind: ClassVar[str] = "checked"

    def __init__(self, inner: Allocator) -> None:
        self.inner = inner
        vars(self).update(
            kind=inner.kind,
            needs=inner.needs,
            copies_kv=inner.copies_kv,
            caches_prefixes=inner.caches_prefixes,
            forks=inner.forks,
            evicts_by_batch=inner.evicts_by_batch,
            has_prefix_tree=inner.has_prefix_tree,
            caches_computed=inner.caches_computed,
        )

    def __getattr__(self, name: str) -> Any:
        if name == "inner":
            raise AttributeError(name)
        return getattr(self.inner, name)

    def bind(self, num_slots: int, sequences: SequenceTable, max_model_len: int) -> None:
        self.inner.bind(num_slots, sequences, max_model_len)
        has_begun = hasattr(self.inner, "recorded")
        self._require(has_begun, "bind leaves no terms; it begins with super().bind(…)")
        self.can_swap = self.inner.can_swap
        self._check_now("bind")

    def bind_content(self, content: SequenceContent) -> None:
        self.inner.bind_content(content)

    def lookup(self, row: int) -> int:
        found = self._ask("lookup", lambda: self.inner.lookup(row))
        is_short = 0 <= found < self.sequences.rows.item(row, NUM_TOKENS)
        self._require(is_short, f"lookup finds {found} tokens, which leaves none to compute")
        return found

    def until_findable(self, row: int, rows: IntArray, num_iterations: int) -> int:
        return self._ask(
            "until_findable", lambda: self.inner.until_findable(row, rows, num_iterations)
        )

    def until_lost(self, row: int, rows: IntArray, num_iterations: int) -> int:
        return self._ask("until_lost", lambda: self.inner.until_lost(row, rows, num_iterations))

    def can_admit(self, row: int, count: int) -> Admission:
        answer = self._ask("can_admit", lambda: self.inner.can_admit(row, count))
        return self._admission("can_admit", answer)

    def can_allocate(self, row: int) -> Admission:
        answer = self._ask("can_allocate", lambda: self.inner.can_allocate(row))
        return self._admission("can_allocate", answer)

    def can_append(self, rows: IntArray, num_iterations: int) -> int:
        answer = self._ask("can_append", lambda: self.inner.can_append(rows, num_iterations))
        self._require_whole("can_append", answer)
        self._require(
            0 <= answer <= num_iterations, f"can_append answers {answer} of {num_iterations}"
        )
        return answer

    def never_fits(self, requests: IntArray) -> BoolArray:
        return self._ask("never_fits", lambda: self.inner.never_fits(requests), rows=False)

    def can_finish(self, row: int, rows: IntArray) -> bool:
        return self._ask("can_finish", lambda: self.inner.can_finish(row, rows))

    def never_finishes(self, requests: IntArray) -> BoolArray:
        return self._ask("never_finishes", lambda: self.inner.never_finishes(requests), rows=False)

    def fragmented_for(self, row: int) -> bool:
        return self._ask("fragmented_for", lambda: self.inner.fragmented_for(row))

    def refusal(self, row: int) -> str:
        reason = self.inner.refusal(row)
        is_text = isinstance(reason, str) and reason != ""
        self._require(is_text, f"refusal gives no reason, but {reason!r}")
        return reason

    def admit(self, row: int, count: int) -> Admission:
        expected, found = self.can_admit(row, count), self.lookup(row)
        before, rows_before = counted_state(self.inner), self.sequences.rows.copy()
        verdict = self._admission("admit", self.inner.admit(row, count))
        self._require(verdict == expected, f"admit answers {verdict!r} after {expected!r}")
        if verdict == Admission.OK:
            self._require_advance(rows_before, np.array([row]), np.array([found + count]))
            self._check_now("admit")
        else:
            self._require_unchanged("a refused admit", before, rows_before)
        return verdict

    def append(self, rows: IntArray, counts: IntArray) -> int:
        before, rows_before = counted_state(self.inner), self.sequences.rows.copy()
        served = self.inner.append(rows, counts)
        self._require_whole("append", served)
        self._require(0 <= served <= len(rows), f"append served {served} of {len(rows)} rows")
        advance = counts.copy()
        advance[served:] = 0
        self._require_advance(rows_before, rows, advance)
        if served < len(rows):
            late = rows[served:]
            is_same = np.array_equal(self.sequences.rows[late], rows_before[late])
            self._require(is_same, "append changed a row that it did not serve")
        if served == 0:
            self._require_unchanged("an append that served nobody", before, rows_before)
        self._check_now("append")
        return served

    def admit_all(self, rows: IntArray, counts: IntArray) -> Admission:
        return self._try("admit_all", lambda: self.inner.admit_all(rows, counts))

    def admit_copies(self, row: int, copies: IntArray, count: int) -> Admission:
        return self._try("admit_copies", lambda: self.inner.admit_copies(row, copies, count))

    def fork(self, parents: IntArray, children: IntArray, ending: IntArray) -> bool:
        before, rows_before = counted_state(self.inner), self.sequences.rows.copy()
        lengths = self.sequences.rows[parents, NUM_COMPUTED]
        has_room = self.inner.fork(parents, children, ending)
        if has_room:
            written = self.sequences.rows[children, NUM_COMPUTED]
            self._require(np.array_equal(written, lengths), "a child has other tokens than wanted")
            held = self.sequences.rows[ending][:, [NUM_COMPUTED, NUM_SLOTS]]
            self._require(not held.any(), "a row that ended still holds memory")
        else:
            self._require_unchanged("a refused fork", before, rows_before)
        self._check_now("fork")
        return has_room

    def can_swap_out(self, rows: IntArray) -> bool:
        return self._ask("can_swap_out", lambda: self.inner.can_swap_out(rows))

    def swap_out(self, rows: IntArray) -> None:
        before = self.sequences.rows.copy()
        self.inner.swap_out(rows)
        self._require(np.array_equal(before, self.sequences.rows), "swap_out changed sequences")
        self._check_now("swap_out")

    def can_swap_in(self, rows: IntArray) -> Admission:
        return self._ask("can_swap_in", lambda: self.inner.can_swap_in(rows))

    def swap_in(self, rows: IntArray) -> None:
        before = self.sequences.rows.copy()
        self.inner.swap_in(rows)
        self._require(np.array_equal(before, self.sequences.rows), "swap_in changed sequences")
        self._check_now("swap_in")

    def drop_swapped(self, rows: IntArray) -> None:
        self.inner.drop_swapped(rows)
        self._check_now("drop_swapped")

    def num_swapped_blocks(self) -> tuple[int, int]:
        return self._ask("num_swapped_blocks", self.inner.num_swapped_blocks)

    def cache_up_to(self, rows: IntArray, num_tokens: IntArray) -> None:
        rows_before = self.sequences.rows.copy()
        self.inner.cache_up_to(rows, num_tokens)
        is_same = np.array_equal(rows_before, self.sequences.rows)
        self._require(is_same, "cache_up_to changed the sequences")
        self._check_now("cache_up_to")

    def append_ahead(self, rows: IntArray, num_iterations: int, log: IntArray) -> None:
        rows_before = self.sequences.rows.copy()
        self.inner.append_ahead(rows, num_iterations, log)
        self._require_advance(rows_before, rows, np.full(len(rows), num_iterations))
        self._require_totals(log[:num_iterations], "append_ahead")
        if num_iterations:
            is_current = np.array_equal(log[num_iterations - 1], self.recorded)
            self._require(is_current, "append_ahead logs other terms than it leaves")
        self._check_now("append_ahead")

    def free(self, rows: IntArray) -> None:
        self.inner.free(rows)
        held = self.sequences.rows[rows][:, [NUM_COMPUTED, NUM_SLOTS]]
        self._require(not held.any(), "a freed row still holds memory")
        self._check_now("free")

    def retire(self, row: int) -> None:
        before = self.sequences.rows.copy()
        self.inner.retire(row)
        before[row, [NUM_COMPUTED, FINAL_TOKENS]] = self.sequences.rows[
            row, [NUM_COMPUTED, FINAL_TOKENS]
        ]
        self._require(
            np.array_equal(before, self.sequences.rows), "retire changed more than the row's tokens"
        )
        self._check_now("retire")

    def copied_tokens(self) -> int:
        return self._ask("copied_tokens", self.inner.copied_tokens)

    def counters(self) -> dict[str, int]:
        return self._ask("counters", self.inner.counters)

    def reuse_distances(self) -> IntArray | None:
        return self._ask("reuse_distances", self.inner.reuse_distances)

    def held_ranges(self, row: int) -> IntArray:
        return self.inner.held_ranges(row)

    def host_ranges(self, row: int) -> IntArray:
        return self.inner.host_ranges(row)

    @property
    def shows_slots(self) -> bool:
        return self.inner.shows_slots

    def table_entries(self, rows: IntArray) -> IntArray:
        return self.inner.table_entries(rows)

    def free_ranges(self) -> IntArray:
        return self.inner.free_ranges()

    def cached_ranges(self) -> IntArray:
        return self.inner.cached_ranges()

    def record_events(self, capacity: int) -> None:
        self.inner.record_events(capacity)

    def events(self) -> IntArray:
        return self.inner.events()

    @property
    def num_blocks(self) -> int | None:
        return self.inner.num_blocks

    def usage(self) -> KVUsage:
        return self.inner.usage()

    def check(self, rows: IntArray) -> None:
        self.inner.check(rows)
        self._require_totals(self.recorded[np.newaxis], "check")

    def _try(self, name: str, operation: Callable[[], Admission]) -> Admission:
        """What an operation answers, that does all of something or nothing."""
        before, rows_before = counted_state(self.inner), self.sequences.rows.copy()
        verdict = operation()
        if verdict != Admission.OK:
            self._require_unchanged(f"a refused {name}", before, rows_before)
        self._check_now(name)
        return verdict

    def _check_now(self, operation: str) -> None:
        self._require_totals(self.recorded[np.newaxis], operation)
        self.inner.check(np.flatnonzero(self.sequences.rows[:, NUM_SLOTS]))

    def _require(self, condition: bool, sentence: str) -> None:
        require(condition, f"{self.kind}: {sentence}")

    def _admission(self, name: str, answer: Any) -> Admission:
        is_one = isinstance(answer, Admission)
        self._require(is_one, f"{name} answers {answer!r}; accepted: Admission.OK, .LATER, .NEVER")
        return Admission(answer)

    def _require_whole(self, name: str, answer: Any) -> None:
        is_whole = isinstance(answer, int | np.integer) and not isinstance(answer, bool)
        self._require(is_whole, f"{name} answers {answer!r}; accepted: a whole number")

    def _require_totals(self, log: IntArray, operation: str) -> None:
        """No term is negative and all add to the pool, or to what unlimited memory has written.

        And no block is held that stands in no table.
        """
        self._require(not (log < 0).any(), f"a term is negative after {operation}")
        in_use = log[:, TOKEN_STATES] + log[:, INTERNAL]
        totals = np.maximum(self.num_slots, in_use)
        are_right = np.array_equal(log[:, :NUM_TERMS].sum(axis=1), totals)
        self._require(are_right, f"the terms do not add to the pool after {operation}")
        are_held = not (log[:, HELD_BLOCKS] > log[:, TABLE_BLOCKS]).any()
        self._require(are_held, f"more blocks are held than stand in tables after {operation}")

    def _require_advance(self, before: IntArray, rows: IntArray, counts: IntArray) -> None:
        """Each row has computed so many more tokens, and no other row has changed."""
        now = self.sequences.rows
        written = now[rows, NUM_COMPUTED] - before[rows, NUM_COMPUTED]
        self._require(np.array_equal(written, counts), "num_computed advanced by another count")
        others = np.ones(len(now), np.bool_)
        others[rows] = False
        self._require(np.array_equal(now[others], before[others]), "another row has changed")

    def _require_unchanged(
        self, operation: str, before: dict[str, IntArray], rows: IntArray | None
    ) -> None:
        changed = difference(before, counted_state(self.inner))
        self._require(not changed, f"{operation} changed {changed}")
        if rows is not None:
            is_same = np.array_equal(self.sequences.rows, rows)
            self._require(is_same, f"{operation} changed the sequences")

    def _ask(self, name: str, question: Callable[[], Answer], rows: bool = True) -> Answer:
        """The answer to a question, which must change nothing."""
        before = counted_state(self.inner)
        rows_before = self.sequences.rows.copy() if rows else None
        answer = question()
        self._require_unchanged(name, before, rows_before)
        return answer
