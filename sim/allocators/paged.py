"""Paged KV memory: fixed blocks behind a block table, taken from a free list on demand.

Models the block manager of vLLM v0 (PagedAttention, SOSP 2023 §4.2-4.3) without sharing. A block
is taken when its first token is written; the last block of a sequence is its only waste.
Differs on purpose: no block is shared (that is paged_cow), so a fork copies all its tokens; a block
is needed only when a token needs it, where v0 asks for one free block per running sequence before
every step; and the free list hands a freed sequence's blocks out again first block first, where
v0's order within one sequence is unspecified.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from sim.allocators import blocks
from sim.allocators.base import ADMISSIONS, Admission, BoolArray
from sim.allocators.block_tables import BlockTables
from sim.allocators.copied_forks import CopiedForks
from sim.allocators.terms import (
    NUM_RECORDED,
    ConservationError,
    check_terms,
    recount,
)
from sim.jit import STRIDED, direct
from sim.sequence import (
    MAX_FINAL_TOKENS,
    NUM_SLOTS,
    NUM_TOKENS,
    PROMPT_TOKENS,
    IntArray,
    SequenceTable,
)


class Paged(CopiedForks, BlockTables):
    """Blocks of block_size slots.

    watermark is the fraction of all blocks that an admission must leave free, rounded down
    (vLLM v0: 0.01); sequences that already run may use them. With reserve_max_tokens an admission
    takes the blocks of the prompt and max_tokens of output at once, less the last token, which is
    never written; without, blocks are taken as tokens need them.
    """

    kind: ClassVar[str] = "paged"

    def __init__(
        self,
        block_size: int = 16,
        watermark: float = 0.0,
        reserve_max_tokens: bool = False,
    ) -> None:
        blocks.check_knobs(block_size, watermark)
        self.block_size = block_size
        self.watermark = watermark
        self.reserve_max_tokens = reserve_max_tokens

    def bind(self, num_slots: int, sequences: SequenceTable, max_model_len: int) -> None:
        super().bind(num_slots, sequences, max_model_len)
        size = self.block_size
        num_blocks = blocks.whole_blocks(num_slots, size)
        self._pool = blocks.new_pool(blocks.NUM_CELLS, num_slots, num_blocks, size, self.watermark)
        self._pool[blocks.RESERVES] = self.reserve_max_tokens
        self.recorded = self._pool[:NUM_RECORDED]
        # a stack: block 0 is on top, so a fresh pool is handed out in order of ids
        self._free_blocks = np.arange(num_blocks - 1, -1, -1, dtype=np.int32)
        self._width = min(num_blocks, -(-max_model_len // size))
        self._table: blocks.BlockIds = np.empty((0, self._width), np.int32)
        self._resize(len(sequences.rows))
        sequences.when_grown.append(self._resize)
        arrays = self._pool, sequences.rows, self._table, self._free_blocks
        self._admit = direct(blocks.admit, *arrays, 0, 1)
        self._append = direct(blocks.append, *arrays, STRIDED, STRIDED)
        self._append_ahead = direct(
            blocks.append_ahead, *arrays, STRIDED, 1, self._scratch, np.zeros((1, 1), np.int64)
        )
        self._can_append = direct(blocks.can_append, *arrays[:2], STRIDED, 1, self._scratch)
        self._free = direct(blocks.free, *arrays, STRIDED)

    def _resize(self, capacity: int) -> None:
        """Give every row of the sequence table a block table."""
        self._rows = self.sequences.rows
        table = np.empty((capacity, self._width), np.int32)
        for row in np.flatnonzero(self.sequences.rows[: len(self._table), NUM_SLOTS]).tolist():
            held = self.block_table(row)
            table[row, : len(held)] = held
        self._table = table
        self._scratch: IntArray = np.empty(self.block_size + capacity, np.int64)

    def can_allocate(self, row: int) -> Admission:
        return ADMISSIONS[blocks.admission(self._pool, self._room_for(row))]

    def _room_for(self, row: int) -> int:
        """Tokens for which the row needs blocks when it is admitted."""
        num_tokens = self._rows.item(row, NUM_TOKENS)
        return int(blocks.room_for(self._pool, self._rows, row, num_tokens))

    def never_fits(self, requests: IntArray) -> BoolArray:
        num_tokens = requests[:, PROMPT_TOKENS]
        if self.reserve_max_tokens:
            num_tokens = np.maximum(num_tokens, requests[:, MAX_FINAL_TOKENS] - 1)
        need = -(-num_tokens // self.block_size)
        usable = self.num_blocks - self._pool.item(blocks.WATERMARK_BLOCKS)
        return np.greater(need, usable)

    def admit(self, row: int, count: int) -> Admission:
        verdict = self._admit(self._pool, self._rows, self._table, self._free_blocks, row, count)
        return ADMISSIONS[verdict]

    def append(self, rows: IntArray, counts: IntArray) -> int:
        return self._append(
            self._pool,
            self._rows,
            self._table,
            self._free_blocks,
            rows,
            counts,
        )

    def can_append(self, rows: IntArray, num_iterations: int) -> int:
        if self.reserve_max_tokens:
            return num_iterations  # the rows have their blocks
        most_blocks = len(rows) * (num_iterations // self.block_size + 1)
        if most_blocks <= self._pool.item(blocks.NUM_FREE):
            return num_iterations  # enough even if every row is at a boundary: the common case
        return self._can_append(self._pool, self._rows, rows, num_iterations, self._scratch)

    def append_ahead(self, rows: IntArray, num_iterations: int, log: IntArray) -> None:
        self._append_ahead(
            self._pool,
            self._rows,
            self._table,
            self._free_blocks,
            rows,
            num_iterations,
            self._scratch,
            log,
        )

    def free(self, rows: IntArray) -> None:
        self._free(self._pool, self._rows, self._table, self._free_blocks, rows)

    def _layout(self) -> tuple[NDArray[Any], ...]:
        return self._pool, self._free_blocks

    def _give_place(self, row: int, heir: int) -> None:
        self._table[heir] = self._table[row]

    def copied_tokens(self) -> int:
        return self.num_forked_tokens

    def counters(self) -> dict[str, int]:
        return {"num_copied_tokens": self.num_forked_tokens}

    def free_list(self) -> IntArray:
        """Free block ids, the next one to be handed out first."""
        return self._free_blocks[: self._pool.item(blocks.NUM_FREE)][::-1].astype(np.int64)

    def refusal(self, row: int) -> str:
        need = -(-self._room_for(row) // self.block_size)
        spare = self._pool.item(blocks.WATERMARK_BLOCKS)
        keep = f" and must keep {spare} free" if spare else ""
        return (
            f"needs {need} blocks of {self.block_size} slots, the pool has {self.num_blocks}{keep}"
        )

    def check(self, rows: IntArray) -> None:
        tables = [self.block_table(int(row)) for row in rows]
        seen = np.sort(np.concatenate([*tables, self.free_list()]))
        if not np.array_equal(seen, np.arange(self.num_blocks)):
            raise ConservationError(f"{self.kind}: blocks are lost or held twice: {seen.tolist()}")
        num_free = len(self.free_list()) * self.block_size
        remainder = self.num_slots - self.num_blocks * self.block_size
        expected = recount(self._rows[rows], remainder, num_free)
        check_terms(self.terms, expected, self.kind)
