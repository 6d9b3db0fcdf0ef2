"""Automatic prefix caching: paged memory whose full blocks stay findable by what they hold.

Models the KV cache manager of vLLM v1 (full attention, one KV group). A full block is findable by
its content and all before it from the moment its last known token is scheduled, so that a request
admitted in the same iteration hits it already. A freed block keeps its content until it is given
away again; that is the only eviction, oldest first. Of several blocks with the same content the
one that became findable first is hit. At least one token of a prompt is computed, so a cached
prompt of whole blocks computes its last block once more. Block 0 is never given away.
Differs on purpose: contents are compared exactly, where the engine trusts a hash; a request that
needs more than the whole pool is NEVER, where the engine would wait for ever (vllm_v1 has a switch
for that).
"""

from __future__ import annotations

from typing import ClassVar, Literal

import numpy as np

from sim.allocators import blocks, cached_ahead, cached_blocks, cached_ops
from sim.allocators.base import ADMISSIONS, Admission, BoolArray
from sim.allocators.block_tables import BlockTables
from sim.allocators.cached_check import check_tables, recount_shared
from sim.allocators.terms import EXTERNAL, FREE, NUM_RECORDED, check_terms
from sim.gaps import new_gaps
from sim.jit import STRIDED, direct
from sim.sequence import FINAL_TOKENS, NUM_TOKENS, PROMPT_TOKENS, REQUEST, IntArray, SequenceTable
from workloads.blockkeys import BlockKeys
from workloads.sequences import SequenceContent

FreeOrder = Literal["prepend_unhashed", "append"]


class Prefix(BlockTables):
    """Blocks of block_size slots that are found again by their content.

    free_order says where freed blocks without findable content go: to the front of the free queue
    (vLLM from 0.23) or, like all others, to its back. reserve_full_isl admits a request only if
    all tokens that it has so far would fit, not just its first chunk (vLLM from 0.19). watermark
    is the fraction of all blocks that an admission leaves free while others run.
    """

    kind: ClassVar[str] = "prefix"
    num_null_blocks: ClassVar[int] = 1
    """How many of the first blocks are never given away."""

    def __init__(
        self,
        block_size: int = 16,
        enable_prefix_caching: bool = True,
        free_order: FreeOrder = "prepend_unhashed",
        reserve_full_isl: bool = True,
        watermark: float = 0.0,
    ) -> None:
        blocks.check_knobs(block_size, watermark)
        if free_order not in {"prepend_unhashed", "append"}:
            raise ValueError(
                f"free_order: unknown value {free_order!r}; accepted: prepend_unhashed, append"
            )
        self.block_size = block_size
        self.enable_prefix_caching = self.caches_prefixes = enable_prefix_caching
        self.needs = frozenset({"prefix identity"} if enable_prefix_caching else ())
        self.free_order = free_order
        self.reserve_full_isl = reserve_full_isl
        self.watermark = watermark

    def bind(self, num_slots: int, sequences: SequenceTable, max_model_len: int) -> None:
        super().bind(num_slots, sequences, max_model_len)
        num_blocks = num_slots // self.block_size
        if num_blocks <= self.num_null_blocks:
            beside = " beside the null block" * self.num_null_blocks
            raise ValueError(
                f"block_size: a block of {self.block_size} slots{beside} is more than the pool of "
                f"{num_slots}"
            )
        self._pool = self._new_pool(num_blocks)
        self.recorded = self._pool[:NUM_RECORDED]
        self._blocks = _new_blocks(num_blocks, self.num_null_blocks)
        self._chains: IntArray = np.full((64, 2), cached_blocks.NONE, np.int64)
        self._events: IntArray = np.empty((0, 3), np.int64)
        self._distances = new_gaps()
        self._width = min(num_blocks, -(-max_model_len // self.block_size))
        self._table: blocks.BlockIds = np.empty((0, self._width), np.int32)
        self._keys: IntArray = np.empty((0, cached_blocks.FIRST_KEY + self._width), np.int64)
        self._resize(len(sequences.rows))
        sequences.when_grown.append(self._resize)
        self.bind_content(SequenceContent())
        if self.enable_prefix_caching:
            sequences.when_opened.append(self._load_keys)
        self._compile()

    def _new_pool(self, num_blocks: int) -> IntArray:
        pool: IntArray = np.zeros(cached_blocks.NUM_CELLS, np.int64)
        num_usable = num_blocks - self.num_null_blocks
        usable = num_usable * self.block_size
        pool[EXTERNAL], pool[FREE] = self.num_slots - usable, usable
        pool[blocks.BLOCK_SIZE] = self.block_size
        pool[blocks.NUM_BLOCKS], pool[blocks.NUM_FREE] = num_blocks, num_usable
        pool[blocks.WATERMARK_BLOCKS] = int(self.watermark * num_blocks)
        pool[cached_blocks.IS_CACHING] = self.enable_prefix_caching
        pool[cached_blocks.PREPENDS_UNHASHED] = self.free_order == "prepend_unhashed"
        pool[cached_blocks.RESERVES_FULL] = self.reserve_full_isl
        pool[cached_blocks.MAX_TOKENS] = self.max_model_len
        pool[cached_blocks.NUM_NULL_BLOCKS] = self.num_null_blocks
        return pool

    def _compile(self) -> None:
        pool, rows, table, keys = self._pool, self._rows, self._table, self._keys
        state = pool, rows, table, keys, self._blocks, self._chains, self._events
        log: IntArray = np.zeros((1, 1), np.int64)
        self._find = direct(cached_blocks.find, pool, rows, keys, self._chains, 0)
        self._admit = direct(cached_ops.admit, *state, self._distances, 0, 1)
        self._append = direct(cached_ops.append, *state, STRIDED, STRIDED)
        ahead = STRIDED, 1, self._scratch
        self._append_ahead = direct(cached_ahead.append_ahead, *state, *ahead, log)
        self._can_append = direct(blocks.can_append, pool, rows, *ahead)
        found = pool, rows, keys, self._blocks, self._chains
        self._until_lost = direct(cached_ahead.until_lost, *found, 0, *ahead)
        self._free = direct(cached_ops.free, *state[:5], STRIDED)
        self._cache_rows = direct(cached_blocks.cache_rows, pool, *state[2:], STRIDED, STRIDED)

    def _resize(self, capacity: int) -> None:
        """Give every row of the sequence table a block table and keys."""
        self._rows = self.sequences.rows
        grown = []
        for old in (self._table, self._keys):
            new = np.zeros((capacity, old.shape[1]), old.dtype)
            new[: len(old)] = old
            grown.append(new)
        self._table, self._keys = grown
        self._scratch: IntArray = np.empty(self.block_size + capacity, np.int64)

    def bind_content(self, content: SequenceContent) -> None:
        self._content = content
        self._interned = BlockKeys(self.block_size)

    def _load_keys(self, row: int) -> None:
        """Number the blocks that a sequence will fill: prompt and output, once and for all."""
        request, prompt, final = self._rows[row, [REQUEST, PROMPT_TOKENS, FINAL_TOKENS]].tolist()
        keys = self._keys[row]
        count = min((final - 1) // self.block_size, self._width)
        keys[cached_blocks.NUM_KEYS] = count
        keys[cached_blocks.NUM_CACHED] = 0
        if count == 0:
            return
        runs = self._content.runs(request, prompt, final - 1)
        root = self._interned.root(self._content.namespace(request))
        place, end = cached_blocks.FIRST_KEY, cached_blocks.FIRST_KEY + count
        for stretch in self._interned.stretches(root, runs):
            size = min(len(stretch), end - place)
            if size == 1:
                keys[place] = stretch.start  # much faster than as an array
            else:
                keys[place : place + size] = np.arange(stretch.start, stretch.start + size)
            place += size
        if len(self._interned) > len(self._chains):
            chains = np.full((2 * len(self._interned), 2), cached_blocks.NONE, np.int64)
            chains[: len(self._chains)] = self._chains
            self._chains = chains

    def lookup(self, row: int) -> int:
        found = self._find(self._pool, self._rows, self._keys, self._chains, row)
        return int(found) * self.block_size

    def until_findable(self, row: int, rows: IntArray, num_iterations: int) -> int:
        state = self._pool, self._rows, self._keys, self._chains
        return int(min(num_iterations, cached_ahead.until_findable(*state, row, rows)))

    def until_lost(self, row: int, rows: IntArray, num_iterations: int) -> int:
        state = self._pool, self._rows, self._keys, self._blocks, self._chains
        return self._until_lost(*state, row, rows, num_iterations, self._scratch)

    @property
    def num_usable_blocks(self) -> int:
        return self.num_blocks - self.num_null_blocks

    def num_held_hits(self, row: int) -> int:
        hits = self._find(self._pool, self._rows, self._keys, self._chains, row)
        keys = self._keys[row, cached_blocks.FIRST_KEY : cached_blocks.FIRST_KEY + hits]
        found = self._chains[keys, cached_blocks.FIRST]
        return int(np.count_nonzero(self._blocks[found, cached_blocks.REF_CNT]))

    def can_allocate(self, row: int) -> Admission:
        return self.can_admit(row, self._rows.item(row, NUM_TOKENS) - self.lookup(row))

    def can_admit(self, row: int, count: int) -> Admission:
        state = self._pool, self._rows, self._keys, self._blocks, self._chains
        return ADMISSIONS[cached_ops.admission(*state, row, count)]

    def never_fits(self, requests: IntArray) -> BoolArray:
        need = -(-requests[:, PROMPT_TOKENS] // self.block_size)
        return np.greater(need, self.num_usable_blocks)

    def _state(self) -> tuple[IntArray, IntArray, blocks.BlockIds, IntArray, IntArray]:
        return self._pool, self._rows, self._table, self._keys, self._blocks

    def admit(self, row: int, count: int) -> Admission:
        more = self._chains, self._events, self._distances, row, count
        verdict = self._admit(*self._state(), *more)
        return ADMISSIONS[verdict]

    def append(self, rows: IntArray, counts: IntArray) -> int:
        return self._append(*self._state(), self._chains, self._events, rows, counts)

    def cache_up_to(self, rows: IntArray, num_tokens: IntArray) -> None:
        state = self._pool, self._table, self._keys, self._blocks, self._chains, self._events
        self._cache_rows(*state, rows, num_tokens)

    def append_ahead(self, rows: IntArray, num_iterations: int, log: IntArray) -> None:
        more = rows, num_iterations, self._scratch, log
        self._append_ahead(*self._state(), self._chains, self._events, *more)

    def free(self, rows: IntArray) -> None:
        self._free(*self._state(), rows)

    def retire(self, row: int) -> None:
        cached_ops.retire(self._pool, self._rows, self._table, self._blocks, row)

    def counters(self) -> dict[str, int]:
        return {"num_evicted_blocks": self._pool.item(cached_blocks.NUM_EVICTED)}

    def reuse_distances(self) -> IntArray | None:
        return self._distances if self.enable_prefix_caching else None

    def free_list(self) -> IntArray:
        """Free block ids, the next one to be handed out first."""
        found: IntArray = np.empty(len(self._blocks), np.int64)
        return found[: cached_blocks.read_queue(self._blocks, found)]

    def ref_counts(self) -> IntArray:
        """How many rows hold each block."""
        return self._blocks[:-1, cached_blocks.REF_CNT].copy()

    def findable(self) -> IntArray:
        """(block, the block of the same content that became findable before it or -1)."""
        columns = self._blocks[:-1, [cached_blocks.KEY, cached_blocks.PREVIOUS_SAME]]
        found = np.flatnonzero(columns[:, 0] != cached_blocks.NONE)
        return np.stack([found, columns[found, 1]], axis=1)

    def cached_ranges(self) -> IntArray:
        keys, refs = self._blocks[:-1, cached_blocks.KEY], self._blocks[:-1, cached_blocks.REF_CNT]
        found = np.flatnonzero((keys != cached_blocks.NONE) & (refs == 0))
        size = np.full(len(found), self.block_size)
        return np.stack([found * self.block_size, size, size], axis=1)

    def record_events(self, capacity: int) -> None:
        """Log up to capacity blocks that become findable or are evicted, between two `events`."""
        self._events = np.empty((capacity, 3), np.int64)

    def events(self) -> IntArray:
        """(kind, row or -1, block) of each event since this was last asked; see cached_blocks."""
        count = self._pool.item(cached_blocks.NUM_EVENTS)
        self._pool[cached_blocks.NUM_EVENTS] = 0
        return self._events[:count].copy()

    def refusal(self, row: int) -> str:
        need = -(-self._rows.item(row, NUM_TOKENS) // self.block_size)
        usable = self.num_usable_blocks
        return f"needs {need} blocks of {self.block_size} slots, the pool has {usable} to give"

    def check(self, rows: IntArray) -> None:
        tables = {row: self.block_table(row) for row in rows.tolist()}
        state = self._blocks, self._chains, self.free_list()
        layout = self.block_size, self.num_null_blocks
        expected = recount_shared(self._rows, tables, state, *layout)
        check_tables(self.recorded, tables.values(), self.kind)
        remainder = self.num_slots - self.num_usable_blocks * self.block_size
        check_terms(self.terms, expected._replace(external=remainder), self.kind)


def _new_blocks(num_blocks: int, first: int) -> IntArray:
    """Blocks from number first on in the free queue, in the order of their ids."""
    state: IntArray = np.zeros((num_blocks + 1, cached_blocks.NUM_COLUMNS), np.int64)
    state[:, cached_blocks.KEY] = cached_blocks.NONE
    state[:, [cached_blocks.NEXT_SAME, cached_blocks.PREVIOUS_SAME]] = cached_blocks.NONE
    ids = np.arange(num_blocks + 1)
    state[:, cached_blocks.NEXT] = (ids + 1) % (num_blocks + 1)
    state[:, cached_blocks.PREVIOUS] = ids - 1
    state[num_blocks, cached_blocks.NEXT] = first
    state[first, cached_blocks.PREVIOUS] = num_blocks
    return state
