"""The allocator contract: bookkeeping of KV slots, with no clock, no queue and no randomness.

An allocator knows rows of the SequenceTable. It answers before it acts: every `can_` method
changes nothing, and an operation that fails changes nothing either. Its constructor parameters
are its configuration; `bind` gives it a pool and the table.

Conservation: total = token_states + reserved + internal + external + cached + free, in slots,
after every operation. `recorded` holds the six numbers and, behind them, how many blocks stand in
the block tables of sequences and how many different ones those are; it is always current, and
`terms` is its first part. The engine integrates it over time.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from enum import IntEnum
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from sim.allocators import entries
from sim.allocators.terms import (
    FREE,
    NUM_RECORDED,
    NUM_TERMS,
    ConservationError,
    KVUsage,
    retire_row,
)
from sim.sequence import NUM_COMPUTED, IntArray, SequenceTable
from workloads.sequences import SequenceContent

BoolArray = NDArray[np.bool_]


class Admission(IntEnum):
    """The answer to `can_allocate`."""

    OK = 0
    LATER = 1  # not now; when others have freed memory
    NEVER = 2  # not even if the pool were empty


ADMISSIONS = tuple(Admission)  # by value: compiled code answers with integers


class Allocator(ABC):
    """Base of all allocators.

    To write one, define `kind`, take the configuration in the constructor (raise ValueError with
    a message that starts with the parameter's name), and implement the abstract methods. The
    rest has slow but right defaults built on them.
    """

    kind: ClassVar[str]
    needs: frozenset[str] = frozenset()
    """What the trace must provide beside lengths, for example prefix identity."""
    uses: frozenset[str] = frozenset()
    """What of the trace it makes use of if it is there; what it needs is used, too."""
    copies_kv: bool = False
    """Whether an append may copy tokens that are in the pool already (see copied_tokens)."""
    caches_prefixes: bool = False
    """Whether `lookup` may ever find anything."""
    forks: Literal["no", "copied", "shared"] = "no"
    """Whether a sequence can begin as another's copy, and whether that copies its KV."""
    can_swap: bool = False
    """Whether there is host memory that sequences can move to."""
    has_prefix_tree: bool = False
    """Whether it has the steps of sim.schedulers.tree_steps, too."""
    evicts_by_batch: bool = False
    """Whether what a batch evicts is more than its rows would one by one."""
    caches_computed: bool = False
    """Whether tokens are found when the iteration that computes them has ended, not before."""

    def bind(self, num_slots: int, sequences: SequenceTable, max_model_len: int) -> None:
        """Take a pool of num_slots slots for sequences of at most max_model_len tokens.

        Raises ValueError, with a message that starts with the parameter's name, if the pool
        cannot be used.
        """
        self.num_slots = num_slots
        self.sequences = sequences
        self.max_model_len = max_model_len
        self.recorded: IntArray = np.zeros(NUM_RECORDED, np.int64)
        self.recorded[FREE] = num_slots

    @abstractmethod
    def can_allocate(self, row: int) -> Admission:
        """Whether all tokens the row has so far would fit. Changes nothing."""

    @abstractmethod
    def append(self, rows: IntArray, counts: IntArray) -> int:
        """Write counts[i] more tokens for rows[i], in order, until memory runs out.

        Takes what memory that needs and advances num_computed and num_slots. Returns how many
        rows were served; the first that was not, and those behind it, are unchanged.
        """

    @abstractmethod
    def free(self, rows: IntArray) -> None:
        """Take back all that the rows hold: num_computed and num_slots become 0."""

    @abstractmethod
    def can_append(self, rows: IntArray, num_iterations: int) -> int:
        """How many of num_iterations iterations of one token a row would succeed."""

    @abstractmethod
    def check(self, rows: IntArray) -> None:
        """Recount everything for the rows that hold memory; raise ConservationError."""

    @abstractmethod
    def refusal(self, row: int) -> str:
        """Why the row can never be admitted: the end of a sentence about the request."""

    def bind_content(self, content: SequenceContent) -> None:  # noqa: B027 - most need none
        """Take what the sequences consist of, after `bind`; without, nothing is shared."""

    def lookup(self, row: int) -> int:
        """Tokens of a waiting row that need not be computed, because they are in the pool.

        At least one token is left to compute. Changes nothing.
        """
        return 0

    def until_findable(self, row: int, rows: IntArray, num_iterations: int) -> int:
        """How many of num_iterations iterations of one token a row do not lengthen `lookup(row)`.

        The iterations are known to succeed.
        """
        return num_iterations

    def until_lost(self, row: int, rows: IntArray, num_iterations: int) -> int:
        """How many of num_iterations iterations of one token a row do not shorten `lookup(row)`.

        The iterations are known to succeed.
        """
        return num_iterations

    def can_admit(self, row: int, count: int) -> Admission:
        """What admit would answer. Changes nothing."""
        return self.can_allocate(row)

    def cache_up_to(  # noqa: B027 - most allocators find nothing
        self, rows: IntArray, num_tokens: IntArray
    ) -> None:
        """The first num_tokens[i] tokens of rows[i] may be found from now on.

        Needed where tokens are written before they are known, and at the end of every iteration
        if caches_computed; others are found at once.
        """

    def admit(self, row: int, count: int) -> Admission:
        """can_admit and, if the answer is OK, append count tokens behind what lookup found."""
        verdict = self.can_admit(row, count)
        if verdict == Admission.OK:
            self.append(np.array([row]), np.array([count]))
        return verdict

    def admit_all(self, rows: IntArray, counts: IntArray) -> Admission:
        """admit for all of several rows, or for none of them."""
        for i, (row, count) in enumerate(zip(rows.tolist(), counts.tolist(), strict=True)):
            verdict = self.admit(row, count)
            if verdict != Admission.OK:
                self.free(rows[:i][::-1])
                return verdict
        return Admission.OK

    def admit_copies(self, row: int, copies: IntArray, count: int) -> Admission:
        """admit, and memory for rows that begin as copies of all the row's tokens; or nothing.

        Where forks are copied: so that a request that will fork has the memory for it.
        """
        raise NotImplementedError(f"{self.kind} cannot fork")

    def fork(self, parents: IntArray, children: IntArray, ending: IntArray) -> bool:
        """Let children[i], an empty row, begin as a copy of parents[i]; then free the ending rows.

        False, and nothing changed, if memory runs out. Of one request, each row of which has as
        many tokens as the others.
        """
        raise NotImplementedError(f"{self.kind} cannot fork")

    def can_swap_out(self, rows: IntArray) -> bool:
        """Whether the host has room for all that the rows of a request hold. Changes nothing."""
        return False

    def swap_out(self, rows: IntArray) -> None:
        """Move all rows of a request to the host, which has room: num_computed stays."""
        raise NotImplementedError(f"{self.kind} has no host memory")

    def can_swap_in(self, rows: IntArray) -> Admission:
        """Whether rows that were swapped out fit again, and can go on. Changes nothing."""
        return Admission.NEVER

    def swap_in(self, rows: IntArray) -> None:
        """Bring rows back that can_swap_in says fit."""
        raise NotImplementedError(f"{self.kind} has no host memory")

    def drop_swapped(self, rows: IntArray) -> None:
        """Take back what rows hold that were swapped out, and will not come back."""
        raise NotImplementedError(f"{self.kind} has no host memory")

    def num_swapped_blocks(self) -> tuple[int, int]:
        """Blocks moved between device and host so far, and the slots of one."""
        return 0, 0

    def never_fits(self, requests: IntArray) -> BoolArray:
        """Which requests of a run an empty pool could not admit: bool, one a request.

        Changes nothing. An allocator may know a request by its number, so it is asked of them all.
        """
        answer = np.zeros(len(requests), np.bool_)
        for request in range(len(requests)):
            row = self.sequences.open(requests, request)
            answer[request] = self.can_allocate(row) == Admission.NEVER
            self.sequences.close(row)
        return answer

    def can_finish(self, row: int, rows: IntArray) -> bool:
        """Whether the row could grow to the most it may become, while rows do the same.

        Changes nothing. Memory whose admission takes all that a row will ever need can always.
        """
        return True

    def never_finishes(self, requests: IntArray) -> BoolArray:
        """Which requests may outgrow an empty pool: bool, one a request. Changes nothing."""
        return np.zeros(len(requests), np.bool_)

    def append_ahead(self, rows: IntArray, num_iterations: int, log: IntArray) -> None:
        """Run num_iterations iterations of one token a row, known to succeed.

        log[i] receives what is recorded after iteration i. Of iterations that others follow, what
        they computed may be found.
        """
        counts = np.ones(len(rows), np.int64)
        for i in range(num_iterations):
            if self.caches_computed:
                self.cache_up_to(rows, self.sequences.rows[rows, NUM_COMPUTED])
            if self.append(rows, counts) != len(rows):
                raise ConservationError(f"{self.kind}: can_append promised iteration {i}")
            log[i] = self.recorded

    def retire(self, row: int) -> None:
        """The row's sequence is done, but its memory stays until it is freed: of no use now."""
        retire_row(self.terms, self.sequences.rows, row)

    def copied_tokens(self) -> int:
        """Tokens whose KV has been copied within the pool so far; the engine times the rest."""
        return 0

    def counters(self) -> dict[str, int]:
        """Further counts for the summary; which ones there are, sim.metrics.summary says."""
        return {}

    def reuse_distances(self) -> IntArray | None:
        """A histogram (sim.gaps) of how far back hits reach; None for memory that finds nothing.

        The reuse distance of a hit is counted for each block that waited in the free queue when
        it was hit: how many blocks have been taken from the front of the queue for other tokens
        since it was freed. Those that were hit themselves are not among them.
        """
        return None

    def held_ranges(self, row: int) -> IntArray:
        """(first slot, slots) of what the row holds, in logical order: shape (pieces, 2).

        Empty where an allocator does not say where slots are.
        """
        return np.empty((0, 2), np.int64)

    def host_ranges(self, row: int) -> IntArray:
        """held_ranges of the host's memory; in logical order they follow those of the device."""
        return np.empty((0, 2), np.int64)

    @property
    def shows_slots(self) -> bool:
        """Whether it says where the slots are that rows hold."""
        return type(self).held_ranges is not Allocator.held_ranges

    def table_entries(self, rows: IntArray) -> IntArray:
        """All that the rows hold, entry by entry of their tables: see sim.allocators.entries."""
        pieces = [(self.held_ranges(row), self.host_ranges(row)) for row in rows.tolist()]
        return entries.listed(self.sequences.rows, rows, pieces)

    def free_ranges(self) -> IntArray:
        """(first slot, slots) of what is free, unless a row holds it or it is cached.

        What is none of the three is external. Shape (pieces, 2); all of the pool, if an allocator
        does not say more.
        """
        return np.array([[0, self.num_slots]], np.int64)

    def cached_ranges(self) -> IntArray:
        """(first slot, slots, tokens) of what is cached, unless a row holds it: shape (pieces, 3).

        The tokens come first; slots behind them are internal.
        """
        return np.empty((0, 3), np.int64)

    def record_events(self, capacity: int) -> None:  # noqa: B027 - most share and move nothing
        """Log up to capacity copies and swaps between two calls of `events`."""

    def events(self) -> IntArray:
        """(kind, from, to) of each copy on write and swap of a block since this was last asked.

        The kinds are those of sim.allocators.shared_blocks; ids from num_blocks on are the host's.
        """
        return np.empty((0, 3), np.int64)

    def fragmented_for(self, row: int) -> bool:
        """Whether the row fits into the free slots in total but into no hole of them."""
        return False

    @property
    def terms(self) -> IntArray:
        """The six conservation terms in slots, as they are now: a view."""
        return self.recorded[:NUM_TERMS]

    @property
    def num_blocks(self) -> int | None:
        """Blocks in the pool; None for memory without blocks."""
        return None

    def usage(self) -> KVUsage:
        """The six conservation terms, as they are now."""
        return KVUsage(*self.terms.tolist())
