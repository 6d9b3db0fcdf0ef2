"""An allocator that verifies another one at every operation: `kvsim run --check`."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from sim.allocators.audit import Audit, difference, require, visible_state
from sim.allocators.base import Admission, Allocator, BoolArray
from sim.allocators.terms import KVUsage
from sim.sequence import FINAL_TOKENS, NUM_COMPUTED, NUM_TOKENS, IntArray, SequenceTable
from workloads.sequences import SequenceContent

__all__ = ["CheckedAllocator", "difference", "require", "visible_state"]


class CheckedAllocator(Allocator):
    """Delegates to another allocator and raises ConservationError when it breaks the contract.

    Every attribute that is not part of the contract is the other allocator's.
    """

    kind: ClassVar[str] = "checked"

    def __init__(self, inner: Allocator) -> None:
        self.inner = inner
        self._audit = Audit(inner)
        self._num_copied = 0
        vars(self).update(
            kind=inner.kind,
            needs=inner.needs,
            uses=inner.uses,
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
        self._num_copied = 0
        has_begun = hasattr(self.inner, "recorded")
        self._audit.require(has_begun, "bind leaves no terms; it begins with super().bind(…)")
        self.can_swap = self.inner.can_swap
        self._audit.recount("bind")

    def bind_content(self, content: SequenceContent) -> None:
        self.inner.bind_content(content)

    def lookup(self, row: int) -> int:
        found = self._audit.ask("lookup", lambda: self.inner.lookup(row))
        is_short = 0 <= found < self.sequences.rows.item(row, NUM_TOKENS)
        self._audit.require(is_short, f"lookup finds {found} tokens, which leaves none to compute")
        says_so = found == 0 or self.inner.caches_prefixes
        self._audit.require(says_so, f"lookup finds {found} tokens, and caches_prefixes is False")
        return found

    def until_findable(self, row: int, rows: IntArray, num_iterations: int) -> int:
        return self._audit.ask(
            "until_findable", lambda: self.inner.until_findable(row, rows, num_iterations)
        )

    def until_lost(self, row: int, rows: IntArray, num_iterations: int) -> int:
        return self._audit.ask(
            "until_lost", lambda: self.inner.until_lost(row, rows, num_iterations)
        )

    def can_admit(self, row: int, count: int) -> Admission:
        answer = self._audit.ask("can_admit", lambda: self.inner.can_admit(row, count))
        return self._audit.admission("can_admit", answer)

    def can_allocate(self, row: int) -> Admission:
        answer = self._audit.ask("can_allocate", lambda: self.inner.can_allocate(row))
        return self._audit.admission("can_allocate", answer)

    def can_append(self, rows: IntArray, num_iterations: int) -> int:
        with self._audit.unchanged("can_append", rows):
            answer = self._audit.ask(
                "can_append", lambda: self.inner.can_append(rows, num_iterations)
            )
        self._audit.require_whole("can_append", answer)
        self._audit.require(
            0 <= answer <= num_iterations, f"can_append answers {answer} of {num_iterations}"
        )
        return answer

    def never_fits(self, requests: IntArray) -> BoolArray:
        with self._audit.unchanged("never_fits", requests):
            return self._audit.ask_of_run("never_fits", lambda: self.inner.never_fits(requests))

    def can_finish(self, row: int, rows: IntArray) -> bool:
        return self._audit.ask("can_finish", lambda: self.inner.can_finish(row, rows))

    def never_finishes(self, requests: IntArray) -> BoolArray:
        return self._audit.ask_of_run("never_finishes", lambda: self.inner.never_finishes(requests))

    def fragmented_for(self, row: int) -> bool:
        return self._audit.ask("fragmented_for", lambda: self.inner.fragmented_for(row))

    def refusal(self, row: int) -> str:
        reason = self._audit.ask("refusal", lambda: self.inner.refusal(row))
        is_text = isinstance(reason, str) and reason != ""
        self._audit.require(is_text, f"refusal gives no reason, but {reason!r}")
        return reason

    def admit(self, row: int, count: int) -> Admission:
        expected, found = self.can_admit(row, count), self.lookup(row)
        before = self._audit.snapshot()
        verdict = self._audit.admission("admit", self.inner.admit(row, count))
        self._audit.require(verdict == expected, f"admit answers {verdict!r} after {expected!r}")
        if verdict == Admission.OK:
            self._audit.require_advance(before.rows, np.array([row]), np.array([found + count]))
            self._audit.recount("admit")
        else:
            self._audit.require_unchanged("a refused admit", before)
        return verdict

    def append(self, rows: IntArray, counts: IntArray) -> int:
        before = self._audit.snapshot()
        with self._audit.unchanged("append", rows, counts):
            served = self.inner.append(rows, counts)
        self._audit.require_whole("append", served)
        self._audit.require(0 <= served <= len(rows), f"append served {served} of {len(rows)} rows")
        advance = counts.copy()
        advance[served:] = 0
        self._audit.require_advance(before.rows, rows, advance)
        if served < len(rows):
            late = rows[served:]
            is_same = np.array_equal(self.sequences.rows[late], before.rows[late])
            self._audit.require(is_same, "append changed a row that it did not serve")
        if served == 0:
            self._audit.require_unchanged("an append that served nobody", before)
        self._audit.recount("append")
        return served

    def admit_all(self, rows: IntArray, counts: IntArray) -> Admission:
        return self._audit.attempt("admit_all", lambda: self.inner.admit_all(rows, counts))

    def admit_copies(self, row: int, copies: IntArray, count: int) -> Admission:
        return self._audit.attempt(
            "admit_copies", lambda: self.inner.admit_copies(row, copies, count)
        )

    def fork(self, parents: IntArray, children: IntArray, ending: IntArray) -> bool:
        before = self._audit.snapshot()
        lengths = self.sequences.rows[parents, NUM_COMPUTED]
        with self._audit.unchanged("fork", parents, children, ending):
            has_room = self.inner.fork(parents, children, ending)
        if has_room:
            written = self.sequences.rows[children, NUM_COMPUTED]
            self._audit.require(
                np.array_equal(written, lengths), "a child has other tokens than wanted"
            )
            self._audit.require_empty(ending, "a row that ended")
        else:
            self._audit.require_unchanged("a refused fork", before)
        self._audit.recount("fork")
        return has_room

    def can_swap_out(self, rows: IntArray) -> bool:
        return self._audit.ask("can_swap_out", lambda: self.inner.can_swap_out(rows))

    def swap_out(self, rows: IntArray) -> None:
        before = self.sequences.rows.copy()
        self.inner.swap_out(rows)
        self._audit.require_same_rows("swap_out", before)
        self._audit.recount("swap_out")

    def can_swap_in(self, rows: IntArray) -> Admission:
        return self._audit.ask("can_swap_in", lambda: self.inner.can_swap_in(rows))

    def swap_in(self, rows: IntArray) -> None:
        before = self.sequences.rows.copy()
        self.inner.swap_in(rows)
        self._audit.require_same_rows("swap_in", before)
        self._audit.recount("swap_in")

    def drop_swapped(self, rows: IntArray) -> None:
        self.inner.drop_swapped(rows)
        self._audit.recount("drop_swapped")

    def num_swapped_blocks(self) -> tuple[int, int]:
        return self._audit.ask("num_swapped_blocks", self.inner.num_swapped_blocks)

    def cache_up_to(self, rows: IntArray, num_tokens: IntArray) -> None:
        before = self.sequences.rows.copy()
        self.inner.cache_up_to(rows, num_tokens)
        self._audit.require_same_rows("cache_up_to", before)
        self._audit.recount("cache_up_to")

    def append_ahead(self, rows: IntArray, num_iterations: int, log: IntArray) -> None:
        before = self.sequences.rows.copy()
        with self._audit.unchanged("append_ahead", rows):
            self.inner.append_ahead(rows, num_iterations, log)
        self._audit.require_advance(before, rows, np.full(len(rows), num_iterations))
        self._audit.require_totals(log[:num_iterations], "append_ahead")
        if num_iterations:
            is_current = np.array_equal(log[num_iterations - 1], self.recorded)
            self._audit.require(is_current, "append_ahead logs other terms than it leaves")
        self._audit.recount("append_ahead")

    def free(self, rows: IntArray) -> None:
        before = self.sequences.rows.copy()
        with self._audit.unchanged("free", rows):
            self.inner.free(rows)
        self._audit.require_freed(before, rows)
        self._audit.recount("free")

    def retire(self, row: int) -> None:
        before = self.sequences.rows.copy()
        self.inner.retire(row)
        may_change = row, [NUM_COMPUTED, FINAL_TOKENS]
        before[may_change] = self.sequences.rows[may_change]
        is_same = np.array_equal(before, self.sequences.rows)
        self._audit.require(is_same, "retire changed more than the row's tokens")
        self._audit.recount("retire")

    def copied_tokens(self) -> int:
        count = self._audit.ask("copied_tokens", self.inner.copied_tokens)
        self._audit.require_whole("copied_tokens", count)
        before, self._num_copied = self._num_copied, count
        self._audit.require(before <= count, f"copied_tokens falls from {before} to {count}")
        return count

    def counters(self) -> dict[str, int]:
        return self._audit.counts(self._audit.ask("counters", self.inner.counters))

    def reuse_distances(self) -> IntArray | None:
        counts: Any = self._audit.ask("reuse_distances", self.inner.reuse_distances)
        is_table = counts is None or (isinstance(counts, np.ndarray) and counts.dtype.kind == "i")
        accepted = "accepted: counts, or None"
        self._audit.require(is_table, f"reuse_distances answers {counts!r}; {accepted}")
        found: IntArray | None = counts
        return found

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
        self._audit.require_totals(self.recorded[np.newaxis], "check")
