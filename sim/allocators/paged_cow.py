"""Paged memory with sharing: reference counts, forks, copies on write, and a host pool to swap to.

Models the block manager of vLLM v0 (0.2.7; PagedAttention, SOSP 2023 §4.4-4.5). A forked sequence
holds its parent's blocks; whoever writes into a block that others hold copies it first, so that of
n sequences with a partial last block n - 1 copy it. Blocks are handed out from a stack, the highest
id first. Before it writes one token a sequence, a request needs as many free blocks as it has
sequences, whether it needs them or not. A request that is swapped out keeps its sharing.
A declared prefix (§4.4) lies in pinned blocks from the start: sequences that begin with it share
the whole ones, copy the last, partial one, and do not compute it.
Differs on purpose: within one sequence v0 frees blocks in an order that it does not specify, here
the first block is handed out again first; with a sliding window nothing is forked (v0 counts
references for each entry of a table and gives back each block once, and so loses blocks).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import ClassVar, Literal

import numpy as np

from sim.allocators import blocks, host_blocks, shared_blocks
from sim.allocators.base import (
    ADMISSIONS,
    CACHED,
    FREE,
    INTERNAL,
    NUM_TERMS,
    Admission,
    BoolArray,
    check_terms,
)
from sim.allocators.paged import Paged
from sim.allocators.shared_check import Blocks, recount_blocks
from sim.jit import STRIDED, direct
from sim.sequence import NUM_SLOTS, NUM_TOKENS, PROMPT_TOKENS, REQUEST, IntArray, SequenceTable
from workloads.content import first_tokens
from workloads.sequences import SequenceContent

GIB = 1 << 30


class PagedCow(Paged):
    """Blocks of block_size slots that sequences of a request share until they write.

    watermark is the fraction of all blocks that an admission, or a return from the host, must
    leave free, rounded down. The host pool has num_cpu_blocks blocks or, if that is not given, as
    many as fit into swap_space GiB; without a model, whose kv_bytes_per_token would say how many
    that are, as many as the pool. sliding_window is the number of last tokens that a sequence
    keeps. Prompts whose first shared_prefix_tokens tokens are also another's begin with a declared
    prefix.
    """

    kind: ClassVar[str] = "paged_cow"
    from_hardware: ClassVar[Mapping[str, str]] = {"kv_bytes_per_token": "model.kv_bytes_per_token"}
    forks: Literal["no", "copied", "shared"] = "shared"
    copies_kv = True

    def __init__(  # noqa: PLR0913, PLR0917 - the engine's settings
        self,
        block_size: int = 16,
        watermark: float = 0.01,
        swap_space: float = 4.0,
        num_cpu_blocks: int | None = None,
        kv_bytes_per_token: int | None = None,
        sliding_window: int | None = None,
        shared_prefix_tokens: int = 0,
    ) -> None:
        super().__init__(block_size, watermark)
        if not 0 <= swap_space <= 1 << 20:
            raise ValueError(f"swap_space: must be from 0 to 2^20 GiB, got {swap_space}")
        if num_cpu_blocks is not None and not 0 <= num_cpu_blocks <= 1 << 28:
            raise ValueError(f"num_cpu_blocks: must be from 0 to 2^28, got {num_cpu_blocks}")
        if kv_bytes_per_token is not None and kv_bytes_per_token < 1:
            raise ValueError(f"kv_bytes_per_token: must be at least 1, got {kv_bytes_per_token}")
        if sliding_window is not None and (sliding_window < 1 or sliding_window % block_size):
            raise ValueError(
                f"sliding_window: must be a multiple of block_size {block_size}, "
                f"got {sliding_window}"
            )
        if shared_prefix_tokens < 0:
            raise ValueError(f"shared_prefix_tokens: must be at least 0, got {shared_prefix_tokens}")
        if sliding_window is not None and shared_prefix_tokens:
            raise ValueError("shared_prefix_tokens: a prefix leaves a sliding window")
        self.swap_space = swap_space
        self.num_cpu_blocks = num_cpu_blocks
        self.kv_bytes_per_token = kv_bytes_per_token
        self.sliding_window = sliding_window
        self.shared_prefix_tokens = shared_prefix_tokens
        if sliding_window is not None:
            self.forks = "no"
        if shared_prefix_tokens:
            self.needs = frozenset({"prefix identity"})
            self.caches_prefixes = True
        self.release_order: Callable[[list[int]], Iterable[int]] | None = None
        """In which order a sequence's blocks are freed; a recording has its engine's."""

    def bind(self, num_slots: int, sequences: SequenceTable, max_model_len: int) -> None:
        super().bind(num_slots, sequences, max_model_len)
        num_blocks = self.num_blocks
        pool: IntArray = np.zeros(shared_blocks.NUM_CELLS, np.int64)
        pool[: blocks.NUM_CELLS] = self._pool
        window = self.sliding_window or 0
        pool[shared_blocks.WINDOW_BLOCKS] = window // self.block_size
        self._pool, self.terms = pool, pool[:NUM_TERMS]
        self._free_blocks = np.arange(num_blocks, dtype=np.int32)  # a stack: the last is on top
        num_host = self._num_host_blocks()
        pool[shared_blocks.NUM_HOST_FREE] = num_host
        self.can_swap = num_host > 0
        self._host_blocks = np.arange(num_blocks, num_blocks + num_host, dtype=np.int32)
        self._refs: IntArray = np.zeros(num_blocks + num_host, np.int64)
        self._moved = np.full(num_blocks + num_host, host_blocks.NOWHERE, np.int32)
        self._events: IntArray = np.empty((0, 3), np.int64)
        self._pinned: blocks.BlockIds = np.empty((0, 0), np.int32)  # one row a declared prefix
        self._prefix_of: dict[int, int] = {}  # by request
        arrays = pool, sequences.rows, self._table, self._refs, self._free_blocks
        self._append = direct(shared_blocks.append, *arrays, self._events, STRIDED, STRIDED)
        log: IntArray = np.zeros((1, 1), np.int64)
        self._append_ahead = direct(
            shared_blocks.append_ahead, *arrays, STRIDED, 1, self._scratch, log
        )
        self._can_append = direct(shared_blocks.can_append, *arrays[:4], STRIDED, 1)
        self._free = direct(shared_blocks.free, *arrays, STRIDED)

    def _num_host_blocks(self) -> int:
        if self.num_cpu_blocks is not None:
            return self.num_cpu_blocks
        if self.kv_bytes_per_token is None:
            return self.num_blocks
        return int(self.swap_space * GIB) // (self.kv_bytes_per_token * self.block_size)

    def _shared(
        self,
    ) -> tuple[IntArray, IntArray, blocks.BlockIds, IntArray, blocks.BlockIds]:
        return self._pool, self._rows, self._table, self._refs, self._free_blocks

    def bind_content(self, content: SequenceContent) -> None:
        """Pin the declared prefixes: those of several requests. Raises ValueError without room."""
        count = self.shared_prefix_tokens
        if not count:
            return
        begins = {
            request: (content.namespace(request), *first_tokens(runs, count))
            for request, runs in content.prompts()
        }
        numbers: dict[object, int] = {}
        for begin, times in Counter(begins.values()).items():
            if times > 1 and sum(length for *_, length in begin[1:]) == count:
                numbers[begin] = len(numbers)
        self._prefix_of = {
            request: numbers[begin] for request, begin in begins.items() if begin in numbers
        }
        self._pin(len(numbers), count)

    def _pin(self, num_prefixes: int, num_tokens: int) -> None:
        """Take blocks for so many prefixes of num_tokens tokens, for good."""
        size, pool = self.block_size, self._pool
        each = -(-num_tokens // size)
        need, num_free = num_prefixes * each, pool.item(blocks.NUM_FREE)
        if need >= num_free:
            raise ValueError(
                f"shared_prefix_tokens: {num_prefixes} prefixes of {num_tokens} tokens take {need} "
                f"blocks, the pool has {num_free}"
            )
        taken = self._free_blocks[num_free - need : num_free][::-1]
        self._pinned = taken.reshape(num_prefixes, each).copy()
        self._refs[taken] = shared_blocks.PIN
        pool[blocks.NUM_FREE] -= need
        pool[shared_blocks.NUM_PINNED] = need
        pool[FREE] -= need * size
        pool[CACHED] += num_prefixes * num_tokens
        pool[INTERNAL] += need * size - num_prefixes * num_tokens

    def lookup(self, row: int) -> int:
        count = self.shared_prefix_tokens
        if count and self._rows.item(row, NUM_TOKENS) > count:
            return count if self._rows.item(row, REQUEST) in self._prefix_of else 0
        return 0

    def can_allocate(self, row: int) -> Admission:
        num_tokens = self._rows.item(row, NUM_TOKENS)
        return ADMISSIONS[shared_blocks.admission(self._pool, num_tokens, self.lookup(row))]

    def never_fits(self, requests: IntArray) -> BoolArray:
        window = self._pool.item(shared_blocks.WINDOW_BLOCKS)
        need = -(-requests[:, PROMPT_TOKENS] // self.block_size)
        if window:
            need = np.minimum(need, window)
        count = self.shared_prefix_tokens
        if count:
            begins = np.zeros(len(requests), np.bool_)
            begins[list(self._prefix_of)] = True
            begins &= requests[:, PROMPT_TOKENS] > count
            need = need - begins * (count // self.block_size)
        return np.greater(need, self._usable())

    def _usable(self) -> int:
        """Blocks that admissions can have."""
        taken = self._pool[[blocks.WATERMARK_BLOCKS, shared_blocks.NUM_PINNED]].sum()
        return self.num_blocks - int(taken)

    def admit(self, row: int, count: int) -> Admission:
        verdict = self.can_allocate(row)
        if verdict is not Admission.OK:
            return verdict
        found = self.lookup(row)
        if found:
            pinned = self._pinned[self._prefix_of[self._rows.item(row, REQUEST)]]
            shared_blocks.share_prefix(*self._shared(), self._events, row, pinned, found)
        shared_blocks.write(*self._shared(), self._events, row, count)
        return verdict

    def append(self, rows: IntArray, counts: IntArray) -> int:
        return self._append(*self._shared(), self._events, rows, counts)

    def can_append(self, rows: IntArray, num_iterations: int) -> int:
        return self._can_append(*self._shared()[:4], rows, num_iterations)

    def append_ahead(self, rows: IntArray, num_iterations: int, log: IntArray) -> None:
        if num_iterations == 0:
            return
        self.append(rows, np.ones(len(rows), np.int64))  # copies what the rows still share
        log[0] = self.terms
        rest = num_iterations - 1, self._scratch, log[1:]
        self._append_ahead(*self._shared(), rows, *rest)

    def free(self, rows: IntArray) -> None:
        if self.release_order is None:
            self._free(*self._shared(), rows)
            return
        for row in rows.tolist():
            table = self.block_table(row).tolist()
            for block in self.release_order(table):
                shared_blocks.drop_block(*self._shared(), row, table.index(block))
            shared_blocks.forget(self._pool, self._rows, row)

    def retire(self, row: int) -> None:
        shared_blocks.retire(self._pool, self._rows, self._table, self._refs, row)

    def fork(self, parents: IntArray, children: IntArray, ending: IntArray) -> bool:
        shared_blocks.fork(*self._shared()[:4], parents, children)
        self.free(ending)
        return True

    def can_swap_out(self, rows: IntArray) -> bool:
        need = host_blocks.num_distinct(*self._shared()[:4], rows)
        return need <= self._pool.item(shared_blocks.NUM_HOST_FREE)

    def swap_out(self, rows: IntArray) -> None:
        more = self._host_blocks, self._moved, self._events, rows
        host_blocks.swap_out(*self._shared(), *more)

    def can_swap_in(self, rows: IntArray) -> Admission:
        return ADMISSIONS[host_blocks.can_swap_in(*self._shared()[:4], rows)]

    def swap_in(self, rows: IntArray) -> None:
        more = self._host_blocks, self._moved, self._events, rows
        host_blocks.swap_in(*self._shared(), *more)

    def num_swapped_blocks(self) -> tuple[int, int]:
        moved = self._pool[[shared_blocks.NUM_BLOCKS_OUT, shared_blocks.NUM_BLOCKS_IN]].sum()
        return int(moved), self.block_size

    def drop_swapped(self, row: int) -> None:
        """Take back what a row that is swapped out holds: it will not come back."""
        host_blocks.forget_swapped(*self._shared(), self._host_blocks, row)
        shared_blocks.forget(self._pool, self._rows, row)

    def copied_tokens(self) -> int:
        return self._pool.item(shared_blocks.NUM_COPIED_BLOCKS) * self.block_size

    def counters(self) -> dict[str, int]:
        return {
            "num_copied_tokens": self.copied_tokens(),
            "num_copied_blocks": self._pool.item(shared_blocks.NUM_COPIED_BLOCKS),
            "num_blocks_swapped_out": self._pool.item(shared_blocks.NUM_BLOCKS_OUT),
            "num_blocks_swapped_in": self._pool.item(shared_blocks.NUM_BLOCKS_IN),
        }

    def block_table(self, row: int) -> IntArray:
        """Ids of the row's blocks in logical order; those from num_blocks on are the host's."""
        return super().block_table(row)

    def held_ranges(self, row: int) -> IntArray:
        starts = self.block_table(row)
        starts = starts[starts < self.num_blocks] * self.block_size
        return np.stack([starts, np.full_like(starts, self.block_size)], axis=1)

    def host_free_list(self) -> IntArray:
        """Free blocks of the host, the next one to be taken first."""
        count = self._pool.item(shared_blocks.NUM_HOST_FREE)
        return self._host_blocks[:count][::-1].astype(np.int64)

    def ref_counts(self) -> IntArray:
        """How many rows hold each block, first the device's, then the host's."""
        return self._refs % shared_blocks.PIN

    def record_events(self, capacity: int) -> None:
        """Log up to capacity copies and swaps between two calls of `events`."""
        self._events = np.empty((capacity, 3), np.int64)

    def events(self) -> IntArray:
        """(kind, from, to) of each copy and swap since this was last asked; see shared_blocks."""
        count = self._pool.item(shared_blocks.NUM_EVENTS)
        self._pool[shared_blocks.NUM_EVENTS] = 0
        return self._events[:count].copy()

    def refusal(self, row: int) -> str:
        found = self.lookup(row) // self.block_size
        num_tokens = self._rows.item(row, NUM_TOKENS)
        need = shared_blocks.num_entries(self._pool, num_tokens) - found
        spare = self._pool.item(blocks.WATERMARK_BLOCKS)
        keep = f" and must keep {spare} free" if spare else ""
        pinned = self._pool.item(shared_blocks.NUM_PINNED)
        beside = f" beside {pinned} of prefixes" if pinned else ""
        has = self.num_blocks - pinned
        return (
            f"needs {need} blocks of {self.block_size} slots, the pool has {has}{beside}{keep}"
        )

    def check(self, rows: IntArray) -> None:
        tables = {row: self.block_table(row) for row in rows.tolist()}
        free = np.concatenate([self.free_list(), self.host_free_list()])
        state = self.num_blocks, free, self._pinned, self.shared_prefix_tokens
        expected = recount_blocks(self._rows, tables, Blocks(self.block_size, self._refs, *state))
        remainder = self.num_slots - self.num_blocks * self.block_size
        check_terms(self.terms, expected._replace(external=remainder), self.kind)
