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

from collections.abc import Callable, Iterable, Mapping
from typing import ClassVar, Literal

import numpy as np

from sim.allocators import blocks, entries, shared_ahead, shared_blocks, shared_rows
from sim.allocators.base import ADMISSIONS, Admission, BoolArray
from sim.allocators.cached_check import check_tables
from sim.allocators.declared import NO_PREFIXES, declared_prefixes, pin
from sim.allocators.host_pool import HostPool, check_host_size
from sim.allocators.shared_check import Blocks, recount_blocks
from sim.allocators.terms import NUM_RECORDED, check_terms
from sim.jit import STRIDED, direct
from sim.sequence import (
    MAX_FINAL_TOKENS,
    NUM_TOKENS,
    PROMPT_TOKENS,
    REQUEST,
    IntArray,
    SequenceTable,
)
from workloads.sequences import SequenceContent


class PagedCow(HostPool):
    """Blocks of block_size slots that sequences of a request share until they write.

    watermark is the fraction of all blocks that an admission, or a return from the host, must
    leave free, rounded down. The host pool has num_cpu_blocks blocks or, if that is not given, as
    many as fit into swap_space GiB (None: 4, vLLM's default); without a model, whose
    kv_bytes_per_token would say how many that are, as many as the pool. sliding_window is the
    number of last tokens that a sequence keeps. Prompts whose first shared_prefix_tokens tokens
    are also another's begin with a declared prefix.
    """

    kind: ClassVar[str] = "paged_cow"
    from_hardware: ClassVar[Mapping[str, str]] = {"kv_bytes_per_token": "model.kv_bytes_per_token"}
    forks: Literal["no", "copied", "shared"] = "shared"
    copies_kv = True

    def __init__(  # noqa: PLR0913, PLR0917 - the engine's settings
        self,
        block_size: int = 16,
        watermark: float = 0.01,
        swap_space: float | None = None,
        num_cpu_blocks: int | None = None,
        kv_bytes_per_token: int | None = None,
        sliding_window: int | None = None,
        shared_prefix_tokens: int = 0,
    ) -> None:
        blocks.check_knobs(block_size, watermark)
        self.block_size = block_size
        self.watermark = watermark
        check_host_size(swap_space, num_cpu_blocks, kv_bytes_per_token)
        _check_window(sliding_window, block_size, shared_prefix_tokens)
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
        self._events: IntArray = np.empty((0, 3), np.int64)
        self.release_order: Callable[[list[int]], Iterable[int]] | None = None
        """In which order a sequence's blocks are freed; a recording has its engine's."""

    def bind(self, num_slots: int, sequences: SequenceTable, max_model_len: int) -> None:
        super().bind(num_slots, sequences, max_model_len)
        num_blocks = blocks.whole_blocks(num_slots, self.block_size)
        num_host = self._num_host_blocks(num_blocks)
        self._pool = self._new_pool(num_blocks, num_host)
        self.recorded = self._pool[:NUM_RECORDED]
        # stacks: the last is on top
        self._free_blocks = np.arange(num_blocks, dtype=np.int32)
        self._open_host_pool(num_blocks, num_host)
        self._prefixes = NO_PREFIXES
        self._width = min(num_blocks, -(-max_model_len // self.block_size))
        self._table = np.empty((0, self._width), np.int32)
        self._resize(len(sequences.rows))
        sequences.when_grown.append(self._resize)
        self._compile()

    def _new_pool(self, num_blocks: int, num_host: int) -> IntArray:
        layout = shared_blocks.NUM_CELLS, self.num_slots, num_blocks, self.block_size
        pool = blocks.new_pool(*layout, self.watermark)
        pool[shared_blocks.WINDOW_BLOCKS] = (self.sliding_window or 0) // self.block_size
        pool[shared_blocks.NUM_HOST_FREE] = num_host
        return pool

    def _resize(self, capacity: int) -> None:
        """Give every row of the sequence table a block table."""
        self._rows = self.sequences.rows
        table = np.zeros((capacity, self._width), np.int32)
        table[: len(self._table)] = self._table
        self._table = table
        self._scratch: IntArray = np.empty(self.block_size + capacity, np.int64)

    def _compile(self) -> None:
        arrays = self._pool, self._rows, self._table, self._refs, self._free_blocks
        ahead = STRIDED, 1, self._scratch, np.zeros((1, 1), np.int64)
        self._append = direct(shared_blocks.append, *arrays, self._events, STRIDED, STRIDED)
        self._append_ahead = direct(shared_ahead.append_ahead, *arrays, *ahead)
        self._can_append = direct(shared_ahead.can_append, *arrays[:4], STRIDED, 1)
        self._free = direct(shared_rows.free, *arrays, STRIDED)

    def bind_content(self, content: SequenceContent) -> None:
        """Pin the declared prefixes: those of several requests. Raises ValueError without room."""
        if self.shared_prefix_tokens:
            number_of = declared_prefixes(content, self.shared_prefix_tokens)
            memory = self._pool, self._refs, self._free_blocks
            self._prefixes = pin(*memory, number_of, self.shared_prefix_tokens)

    def lookup(self, row: int) -> int:
        count = self.shared_prefix_tokens
        if count and self._rows.item(row, NUM_TOKENS) > count:
            return count if self._rows.item(row, REQUEST) in self._prefixes.number_of else 0
        return 0

    def can_allocate(self, row: int) -> Admission:
        num_tokens = self._rows.item(row, NUM_TOKENS)
        return ADMISSIONS[shared_rows.admission(self._pool, num_tokens, self.lookup(row))]

    def never_fits(self, requests: IntArray) -> BoolArray:
        return np.greater(self._need(requests, requests[:, PROMPT_TOKENS]), self._usable())

    def never_finishes(self, requests: IntArray) -> BoolArray:
        need = self._need(requests, requests[:, MAX_FINAL_TOKENS])
        return np.greater_equal(need, self.num_blocks - self._pool.item(shared_blocks.NUM_PINNED))

    def _need(self, requests: IntArray, num_tokens: IntArray) -> IntArray:
        """Blocks of its own that each request of the run holds with num_tokens tokens."""
        window = self._pool.item(shared_blocks.WINDOW_BLOCKS)
        need = -(-num_tokens // self.block_size)
        if window:
            need = np.minimum(need, window)
        whole = self.shared_prefix_tokens // self.block_size
        is_longer = requests[:, PROMPT_TOKENS] > self.shared_prefix_tokens
        return need - whole * (is_longer & self._prefixes.begin(len(requests)))

    def can_finish(self, row: int, rows: IntArray) -> bool:
        """As the base says, with a block to spare: a token asks for one, needed or not."""
        longest = self._rows.item(row, MAX_FINAL_TOKENS)
        need = shared_blocks.num_entries(self._pool, longest) - self.lookup(row) // self.block_size
        spare = self._pool.item(blocks.NUM_FREE)
        spare -= int(shared_rows.outstanding(self._pool, self._rows, rows))
        return need < spare

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
            pinned = self._prefixes.of(self._rows.item(row, REQUEST))
            shared_rows.share_prefix(*self._shared(), self._events, row, pinned, found)
        shared_blocks.write(*self._shared(), self._events, row, count)
        return verdict

    def admit_all(self, rows: IntArray, counts: IntArray) -> Admission:
        before = self._pool.copy()
        verdict = super().admit_all(rows, counts)
        if verdict is not Admission.OK:
            self._pool[:] = before  # nor have the first ones copied a prefix's last block
        return verdict

    def append(self, rows: IntArray, counts: IntArray) -> int:
        return self._append(*self._shared(), self._events, rows, counts)

    def can_append(self, rows: IntArray, num_iterations: int) -> int:
        return self._can_append(*self._known(), rows, num_iterations)

    def append_ahead(self, rows: IntArray, num_iterations: int, log: IntArray) -> None:
        if num_iterations == 0:
            return
        self.append(rows, np.ones(len(rows), np.int64))  # copies what the rows still share
        log[0] = self.recorded
        rest = num_iterations - 1, self._scratch, log[1:]
        self._append_ahead(*self._shared(), rows, *rest)

    def free_list(self) -> IntArray:
        """Free block ids, the next one to be handed out first."""
        return self._free_blocks[: self._pool.item(blocks.NUM_FREE)][::-1].astype(np.int64)

    def free(self, rows: IntArray) -> None:
        if self.release_order is None:
            self._free(*self._shared(), rows)
            return
        for row in rows.tolist():
            table = self.block_table(row).tolist()
            for block in self.release_order(table):
                shared_blocks.drop_block(*self._shared(), row, table.index(block))
            shared_rows.forget(self._pool, self._rows, row)

    def retire(self, row: int) -> None:
        shared_rows.retire(*self._known(), row)

    def fork(self, parents: IntArray, children: IntArray, ending: IntArray) -> bool:
        shared_rows.fork(*self._known(), parents, children)
        self.free(ending)
        return True

    def copied_tokens(self) -> int:
        return self._pool.item(shared_blocks.NUM_COPIED_BLOCKS) * self.block_size

    def counters(self) -> dict[str, int]:
        return {
            "num_copied_tokens": self.copied_tokens(),
            "num_copied_blocks": self._pool.item(shared_blocks.NUM_COPIED_BLOCKS),
            "num_blocks_swapped_out": self._pool.item(shared_blocks.NUM_BLOCKS_OUT),
            "num_blocks_swapped_in": self._pool.item(shared_blocks.NUM_BLOCKS_IN),
        }

    def held_ranges(self, row: int) -> IntArray:
        table = self.block_table(row)
        return self._ranges(table[table < self.num_blocks])

    def host_ranges(self, row: int) -> IntArray:
        table = self.block_table(row) - self.num_blocks
        return self._ranges(table[table >= 0])

    def table_entries(self, rows: IntArray) -> IntArray:
        found = super().table_entries(rows)
        block_ids = found[:, entries.START] // self.block_size
        is_pinned = self._refs[block_ids] >= shared_blocks.PIN
        is_pinned &= found[:, entries.ON_HOST] == 0
        found[is_pinned, entries.WRITTEN] = self.block_size  # also for a row that is done
        found[is_pinned, entries.RESERVED] = 0
        return found

    def cached_ranges(self) -> IntArray:
        return self._prefixes.ranges(self.block_size)

    def ref_counts(self) -> IntArray:
        """How many rows hold each block, first the device's, then the host's."""
        return self._refs % shared_blocks.PIN

    def record_events(self, capacity: int) -> None:
        self._events = np.empty((capacity, 3), np.int64)

    def events(self) -> IntArray:
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
        return f"needs {need} blocks of {self.block_size} slots, the pool has {has}{beside}{keep}"

    def check(self, rows: IntArray) -> None:
        tables = {row: self.block_table(row) for row in rows.tolist()}
        held = Blocks(
            size=self.block_size,
            refs=self._refs,
            num_device=self.num_blocks,
            free=np.concatenate([self.free_list(), self.host_free_list()]),
            pinned=self._prefixes.blocks.astype(np.int64),
            prefix_tokens=self._prefixes.num_tokens,
        )
        expected = recount_blocks(self._rows, tables, held)
        on_device = (table[table < self.num_blocks] for table in tables.values())
        check_tables(self.recorded, on_device, self.kind)
        remainder = self.num_slots - self.num_blocks * self.block_size
        check_terms(self.terms, expected._replace(external=remainder), self.kind)


def _check_window(sliding_window: int | None, block_size: int, shared_prefix_tokens: int) -> None:
    """Refuse a window of broken blocks, and a prefix that would leave it. Raises ValueError."""
    if sliding_window is not None and (sliding_window < 1 or sliding_window % block_size):
        raise ValueError(
            f"sliding_window: must be a multiple of block_size {block_size}, got {sliding_window}"
        )
    if shared_prefix_tokens < 0:
        raise ValueError(f"shared_prefix_tokens: must be at least 0, got {shared_prefix_tokens}")
    if sliding_window is not None and shared_prefix_tokens:
        raise ValueError("shared_prefix_tokens: a prefix leaves a sliding window")
