"""What is in every slot, kept beside an allocator: whose bookkeeping must agree with it.

An allocator's own `check` recounts what it believes. Here nothing is believed but where it says
that slots are: each token is put into the slot that its sequence has for it, and must be found
there as long as the sequence runs. Terms are counted from slots, one by one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from sim.allocators.base import Allocator
from sim.allocators.checked import require
from sim.allocators.terms import (
    CACHED,
    EXTERNAL,
    FREE,
    HELD_BLOCKS,
    INTERNAL,
    RESERVED,
    TABLE_BLOCKS,
    TERM_NAMES,
    TOKEN_STATES,
    recount,
)
from sim.sequence import FINAL_TOKENS, NUM_COMPUTED, NUM_SLOTS, IntArray
from workloads.content import Run

NOTHING = -1  # in a slot that was never written
SOURCE = 1 << 32  # a token is its source and its place in it, in one number


def tokens_of(runs: Sequence[Run]) -> IntArray:
    """The tokens of runs, one number each."""
    parts = [source * SOURCE + np.arange(start, start + count) for source, start, count in runs]
    return np.concatenate([np.empty(0, np.int64), *parts])


class Slots:
    """The memory of a device, and what each row that runs must find in it."""

    def __init__(self, allocator: Allocator) -> None:
        self._allocator = allocator
        self._tokens: IntArray = np.full(allocator.num_slots, NOTHING)
        self._texts: dict[int, IntArray] = {}
        self.num_moved = 0  # tokens that are elsewhere than they were written, and copied there
        self._seen: dict[int, IntArray] = {}  # the slots of what a row had written
        self._shares = allocator.caches_prefixes or allocator.forks == "shared"
        self._says_free = self._overrides("free_ranges")
        self._says_cached = self._overrides("cached_ranges")

    def _overrides(self, name: str) -> bool:
        inner: Any = getattr(self._allocator, "inner", self._allocator)
        return getattr(type(inner), name) is not getattr(Allocator, name)

    def enter(self, row: int, text: IntArray, found: int) -> None:
        """A row has been admitted; found of its tokens were in the pool, and are not written."""
        self._texts[row] = text
        self._seen[row] = self._held(row)[:found]
        self._require_tokens(row, self._seen[row], "is said to be found")

    def leave(self, rows: Sequence[int]) -> None:
        """Rows have ended."""
        for row in rows:
            self._texts.pop(row, None)
            self._seen.pop(row, None)

    def look(self, rows: Sequence[int]) -> None:
        """Write what rows have computed since; then all that they hold must be as they left it."""
        held = {row: self._held(row) for row in rows}
        if self._allocator.shows_slots:
            written = {row: slots[: self._computed(row)] for row, slots in held.items()}
            for row in rows:
                self._write(row, written[row])
            for row in rows:
                self._require_tokens(row, written[row], "has been written")
            self._require_apart(held)
            self._require_terms(rows, held)
        elif not self._shares:
            free = self._allocator.terms.item(FREE)
            counted = recount(self._allocator.sequences.rows[list(rows)], 0, free)
            self._compare((TOKEN_STATES, RESERVED, INTERNAL), counted)
        is_possible = self._allocator.caches_prefixes or not self._allocator.terms.item(CACHED)
        self._require(is_possible, "something is cached, and caches_prefixes is False")

    def _computed(self, row: int) -> int:
        return self._allocator.sequences.rows.item(row, NUM_COMPUTED)

    def _held(self, row: int) -> IntArray:
        """The slots of a row, in logical order."""
        ranges: Any = self._allocator.held_ranges(row)
        is_table = isinstance(ranges, np.ndarray) and ranges.ndim == 2 and ranges.shape[1] == 2
        is_whole = is_table and ranges.dtype.kind in "iu"
        self._require(is_whole, f"held_ranges of row {row} are not whole numbers, (pieces, 2)")
        slots = _places(ranges)
        is_inside = not len(slots) or (slots.min() >= 0 and slots.max() < len(self._tokens))
        self._require(bool(is_inside), f"held_ranges of row {row} are outside of the pool")
        if self._allocator.shows_slots:
            own = self._allocator.sequences.rows.item(row, NUM_SLOTS)
            self._require(len(slots) == own, f"held_ranges of row {row} are not its {own} slots")
        return slots

    def _write(self, row: int, slots: IntArray) -> None:
        """Put the row's tokens where it says they are; what has moved was copied, if it may be."""
        seen, text = self._seen[row], self._texts[row]
        kept = min(len(seen), len(slots))
        self._tokens[slots[kept:]] = text[kept : len(slots)]
        if self._allocator.copies_kv:
            moved = np.flatnonzero(seen[:kept] != slots[:kept])
            self._tokens[slots[moved]] = text[moved]
            self.num_moved += len(moved)
        self._seen[row] = slots

    def _require_tokens(self, row: int, slots: IntArray, what: str) -> None:
        wrong = np.flatnonzero(self._tokens[slots] != self._texts[row][: len(slots)])
        place = wrong[0] if len(wrong) else 0
        self._require(not len(wrong), f"token {place} of row {row} {what}, and is not in its slot")

    def _require_apart(self, held: dict[int, IntArray]) -> None:
        """No slot is held twice, but where blocks are shared."""
        for row, slots in held.items():
            is_once = len(np.unique(slots)) == len(slots)
            self._require(is_once, f"held_ranges of row {row} name a slot twice")
        if not self._shares:
            together = np.concatenate([np.empty(0, np.int64), *held.values()])
            is_apart = len(np.unique(together)) == len(together)
            self._require(is_apart, "two rows hold one slot, and nothing is shared")

    def _require_terms(self, rows: Sequence[int], held: dict[int, IntArray]) -> None:
        """The terms are what the slots say."""
        written, reached, taken = (np.zeros(len(self._tokens), np.bool_) for _ in range(3))
        for row in rows:
            cells = self._allocator.sequences.rows[row]
            slots, computed = held[row], cells.item(NUM_COMPUTED)
            written[slots[:computed]] = True
            reached[slots[: max(computed, cells.item(FINAL_TOKENS) - 1)]] = True
            taken[slots] = True
        reserved, internal = reached & ~written, taken & ~reached & ~written
        counted = {TOKEN_STATES: written.sum(), RESERVED: reserved.sum()}
        counted |= {INTERNAL: internal.sum()}
        if self._says_cached:
            cached = self._allocator.cached_ranges()
            cached = cached[~taken[cached[:, 0]]]  # what a row holds is the row's
            counted[CACHED] = cached[:, 2].sum()
            counted[INTERNAL] += cached[:, 1].sum() - counted[CACHED]
            taken[_places(cached)] = True
        if self._says_free:
            free = np.zeros_like(taken)
            free[_places(self._allocator.free_ranges())] = True
            counted[FREE] = (free & ~taken).sum()
            counted[EXTERNAL] = (~free & ~taken).sum()
        expected = [counted.get(term, self._allocator.terms.item(term)) for term in range(6)]
        self._compare(tuple(counted), expected)
        self._require_blocks(held)

    def _require_blocks(self, held: dict[int, IntArray]) -> None:
        """What is held are blocks of the pool; those in tables are counted where shared."""
        count = self._allocator.num_blocks
        sizes = {size for row in held for size in self._allocator.held_ranges(row)[:, 1].tolist()}
        if count is None or not sizes:
            return
        size: int = getattr(self._allocator, "block_size", min(sizes))
        are_blocks = all(piece % size == 0 for piece in sizes)
        self._require(are_blocks, f"held_ranges of {sorted(sizes)} slots are no blocks of {size}")
        fits = count * size <= len(self._tokens)
        self._require(fits, f"num_blocks is {count}: more blocks of {size} than the pool has")
        beyond, external = len(self._tokens) - count * size, self._allocator.terms.item(EXTERNAL)
        rule = f"external is {external}, and {beyond} slots of the pool make no block"
        self._require(external >= beyond, rule)
        if self._shares:
            found = [slots[::size] for slots in held.values()]
            blocks = np.concatenate([np.empty(0, np.int64), *found])
            self._require_counts(blocks // size)
            own = self._allocator.recorded[[TABLE_BLOCKS, HELD_BLOCKS]].tolist()
            counted = [len(blocks), len(np.unique(blocks))]
            rule = f"blocks in tables, and different ones, are recorded as {own}, slots say"
            self._require(own == counted, f"{rule} {counted}")

    def _require_counts(self, blocks: IntArray) -> None:
        """Reference counts, where they are shown, are those of the tables."""
        shown = getattr(self._allocator, "ref_counts", None)
        if shown is not None:
            own = np.asarray(shown())[: self._allocator.num_blocks]
            counted = np.bincount(blocks, minlength=len(own))
            wrong = np.flatnonzero(own != counted[: len(own)]).tolist()
            self._require(not wrong, f"ref_counts of blocks {wrong[:5]} are not those of tables")

    def _compare(self, terms: tuple[int, ...], counted: Sequence[int]) -> None:
        for term in terms:
            own, right = self._allocator.terms.item(term), int(counted[term])
            self._require(own == right, f"{TERM_NAMES[term]} is {own}, the slots say {right}")

    def _require(self, condition: bool, sentence: str) -> None:
        require(condition, f"{self._allocator.kind}: {sentence}")


def _places(ranges: IntArray) -> IntArray:
    """All slots of ranges (first, count), in their order."""
    parts = [np.arange(start, start + count) for start, count in ranges[:, :2].tolist()]
    return np.concatenate([np.empty(0, np.int64), *parts]).astype(np.int64)
