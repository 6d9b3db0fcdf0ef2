"""Virtually contiguous KV memory: pages are mapped behind a request's addresses as it grows.

Models vAttention (ASPLOS 2025; arXiv 2405.04437). From the source (MIT; github
microsoft/vattention: vattention/vattention.cu and utils.h, sarathi-lean's
vattention_block_space_manager.py): K and V of each layer are virtual tensors with room for the
longest sequence at each place of a batch, so no block table is needed, and pages are mapped
together in all 2 x layers of them. A page of 2 MB, or of 64, 128 or 256 KB with a changed driver,
holds page / (KV heads x head_dim x bytes) tokens of one tensor: that is the block size, 1,024 for
Llama-3-8B with 2 MB, 32 with 64 KB. The pool is as many pages as fit, in multiples of 2 x layers.
Reclamation is deferred: what a finished request had mapped stays at its place of the batch; a new
request takes the first empty place, or a later one that has enough pages and fewer than the first;
who lacks pages takes those that are mapped and not needed, from the last place on. Such pages count
as free when requests are admitted, a watermark of 1 % of the blocks is left, and the page of a
sequence's next token is mapped while this one is computed.
In the terms a sequence holds the pages that its tokens need, of which the rest of the last is its
only waste, reserved or internal; mapped pages that nobody needs are free: they hold nothing that
could be found again, and anybody can have them.
Assumed, or different on purpose: the engine also maps up to two blocks an iteration for sequences
that need one within ten tokens, and unmaps others' to map the next token's; here a sequence whose
page is full has its next one mapped, if there is one that nobody maps. Sequences are served in
running order, where it is the order of places. Mapping takes no time, it is counted
(num_pages_mapped and others; each page stands for one in every tensor). A latent (MLA) would be cut
into two tensors.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Literal

import numpy as np

from sim.allocators import blocks, mapped_pages
from sim.allocators.base import ADMISSIONS, Admission, BoolArray
from sim.allocators.block_tables import BlockTables
from sim.allocators.terms import (
    NUM_RECORDED,
    ConservationError,
    check_terms,
    recount,
)
from sim.jit import STRIDED, direct
from sim.sequence import NUM_SLOTS, NUM_TOKENS, PROMPT_TOKENS, IntArray, SequenceTable

PAGE_SIZES_KIB = (64, 128, 256, 2048)


class VAttention(BlockTables):
    """Pages of page_size_kib KiB, mapped where a sequence's addresses need them.

    block_size is the number of tokens for which a page has room; null: what follows from
    kv_bytes_per_token and layers, which are the model's. watermark is the fraction of all blocks
    that an admission must leave free, rounded down. Without deferred_reclamation pages are unmapped
    when their sequence ends; without map_ahead only when a token needs one is it mapped.
    """

    kind: ClassVar[str] = "vattention"
    from_hardware: ClassVar[Mapping[str, str]] = {
        "kv_bytes_per_token": "model.kv_bytes_per_token",
        "layers": "model.layers",
    }

    def __init__(  # noqa: PLR0913, PLR0917 - the engine's settings, and what follows from the model
        self,
        page_size_kib: Literal[64, 128, 256, 2048] = 2048,
        block_size: int | None = None,
        kv_bytes_per_token: int | None = None,
        layers: int | None = None,
        watermark: float = 0.01,
        deferred_reclamation: bool = True,
        map_ahead: bool = True,
    ) -> None:
        if page_size_kib not in PAGE_SIZES_KIB:
            accepted = ", ".join(map(str, PAGE_SIZES_KIB))
            raise ValueError(
                f"page_size_kib: unknown value {page_size_kib!r}; accepted: {accepted}"
            )
        for name, value in (("kv_bytes_per_token", kv_bytes_per_token), ("layers", layers)):
            if value is not None and value < 1:
                raise ValueError(f"{name}: must be at least 1, got {value}")
        self.page_size_kib = page_size_kib
        self.kv_bytes_per_token = kv_bytes_per_token
        self.layers = layers
        self.watermark = watermark
        self.deferred_reclamation = deferred_reclamation
        self.map_ahead = map_ahead
        self._tensor_bytes: int | None = None  # of one token in one tensor
        if block_size is None and kv_bytes_per_token is not None and layers is not None:
            block_size = self._tokens_per_page(kv_bytes_per_token, 2 * layers)
        blocks.check_knobs(1 if block_size is None else block_size, watermark)
        self._tokens: int | None = block_size

    def _tokens_per_page(self, kv_bytes_per_token: int, num_tensors: int) -> int:
        if kv_bytes_per_token % num_tensors:
            raise ValueError(
                f"layers: the {kv_bytes_per_token} KV bytes of a token are no {num_tensors} tensors"
            )
        self._tensor_bytes = kv_bytes_per_token // num_tensors
        tokens = self.page_size_kib * 1024 // self._tensor_bytes
        if tokens < 1:
            raise ValueError(
                f"page_size_kib: a token has {self._tensor_bytes} bytes in each tensor, "
                f"more than a page of {self.page_size_kib} KiB"
            )
        return tokens

    def bind(self, num_slots: int, sequences: SequenceTable, max_model_len: int) -> None:
        super().bind(num_slots, sequences, max_model_len)
        if self._tokens is None:
            raise ValueError(
                "block_size: the tokens of a page follow from a model with layers, and there is "
                "none; give it, or block_size"
            )
        self.block_size = self._tokens
        num_blocks = self._num_blocks_of(num_slots)
        if num_blocks < 1:
            raise ValueError(
                f"block_size: a page of {self.block_size} slots is larger than the pool "
                f"of {num_slots}"
            )
        layout = mapped_pages.NUM_CELLS, num_slots, num_blocks, self.block_size
        pool = blocks.new_pool(*layout, self.watermark)
        pool[mapped_pages.NUM_UNMAPPED] = num_blocks
        pool[mapped_pages.DEFERS] = self.deferred_reclamation
        pool[mapped_pages.MAPS_AHEAD] = self.map_ahead
        self._pool = pool
        self.recorded = pool[:NUM_RECORDED]
        # a stack: block 0 is on top, so a fresh pool is handed out in order of ids
        self._unmapped = np.arange(num_blocks - 1, -1, -1, dtype=np.int32)
        self._width = min(num_blocks, -(-max_model_len // self.block_size))
        self._seats: IntArray = np.empty((0, mapped_pages.NUM_COLUMNS), np.int64)
        self._seat_of: IntArray = np.empty(0, np.int64)
        self._table = np.empty((0, self._width), np.int32)
        self._resize(len(sequences.rows))
        sequences.when_grown.append(self._resize)
        self._compile()

    def _num_blocks_of(self, num_slots: int) -> int:
        """Blocks of whole pages in the pool; a page may have bytes that are no token's."""
        if self._tensor_bytes is None:
            return num_slots // self.block_size
        return num_slots * self._tensor_bytes // (self.page_size_kib * 1024)

    def _compile(self) -> None:
        state = self._state()
        log: IntArray = np.zeros((1, 1), np.int64)
        self._admit = direct(mapped_pages.admit, *state, 0, 1)
        self._append = direct(mapped_pages.append, *state, STRIDED, STRIDED)
        self._append_ahead = direct(mapped_pages.append_ahead, *state, STRIDED, 1, log)
        self._free = direct(mapped_pages.free, *state, STRIDED)
        self._can_append = direct(
            blocks.can_append, self._pool, self._rows, STRIDED, 1, self._scratch
        )

    def _state(
        self,
    ) -> tuple[IntArray, IntArray, IntArray, IntArray, blocks.BlockIds, blocks.BlockIds]:
        places = self._seat_of, self._seats, self._table
        return self._pool, self._rows, *places, self._unmapped

    def _resize(self, capacity: int) -> None:
        """A seat for every row of the sequence table: as many as can ever sit at once."""
        self._rows = self.sequences.rows
        old = len(self._seats)
        seats = np.zeros((capacity, mapped_pages.NUM_COLUMNS), np.int64)
        seats[:, mapped_pages.ROW] = mapped_pages.NOBODY
        seats[:old] = self._seats
        table = np.zeros((capacity, self._width), np.int32)
        table[:old] = self._table
        seat_of = np.full(capacity, mapped_pages.NOBODY, np.int64)
        seat_of[:old] = self._seat_of
        self._seats, self._table, self._seat_of = seats, table, seat_of
        self._scratch: IntArray = np.empty(self.block_size + capacity, np.int64)

    def can_allocate(self, row: int) -> Admission:
        num_tokens = self._rows.item(row, NUM_TOKENS)
        return ADMISSIONS[blocks.admission(self._pool, num_tokens)]

    def never_fits(self, requests: IntArray) -> BoolArray:
        need = -(-requests[:, PROMPT_TOKENS] // self.block_size)
        usable = self.num_blocks - self._pool.item(blocks.WATERMARK_BLOCKS)
        return np.greater(need, usable)

    def admit(self, row: int, count: int) -> Admission:
        return ADMISSIONS[self._admit(*self._state(), row, count)]

    def append(self, rows: IntArray, counts: IntArray) -> int:
        return self._append(*self._state(), rows, counts)

    def append_ahead(self, rows: IntArray, num_iterations: int, log: IntArray) -> None:
        self._append_ahead(*self._state(), rows, num_iterations, log)

    def free(self, rows: IntArray) -> None:
        self._free(*self._state(), rows)

    def block_table(self, row: int) -> IntArray:
        """Ids of the blocks that the row needs, in order of address."""
        held = self._rows.item(row, NUM_SLOTS) // self.block_size
        return self._table[self._seat_of.item(row), :held].astype(np.int64)

    def _places(self, rows: IntArray) -> IntArray:
        return self._seat_of[rows]

    def free_list(self) -> IntArray:
        """Blocks that nobody needs: the unmapped ones, then as they would be reclaimed."""
        unmapped = self._unmapped[: self._pool.item(mapped_pages.NUM_UNMAPPED)][::-1]
        mapped = [
            self._table[seat, needed:mapped][::-1]
            for seat, (_, needed, mapped) in enumerate(self._seats.tolist())
        ]
        return np.concatenate([unmapped, *mapped[::-1]]).astype(np.int64)

    def num_mapped_blocks(self) -> int:
        """Blocks that are mapped, needed or not."""
        return int(self._seats[:, mapped_pages.MAPPED].sum())

    def counters(self) -> dict[str, int]:
        return {
            "num_pages_taken": self._pool.item(mapped_pages.NUM_TAKEN),
            "num_pages_mapped": self._pool.item(mapped_pages.NUM_MAPS),
            "num_pages_mapped_ahead": self._pool.item(mapped_pages.NUM_MAPS_AHEAD),
            "num_pages_unmapped": self._pool.item(mapped_pages.NUM_UNMAPS),
        }

    def refusal(self, row: int) -> str:
        need = -(-self._rows.item(row, NUM_TOKENS) // self.block_size)
        spare = self._pool.item(blocks.WATERMARK_BLOCKS)
        keep = f" and must keep {spare} free" if spare else ""
        return (
            f"needs {need} pages of {self.block_size} slots, the pool has {self.num_blocks}{keep}"
        )

    def check(self, rows: IntArray) -> None:
        tables = [self.block_table(int(row)) for row in rows]
        free = self.free_list()
        seen = np.sort(np.concatenate([*tables, free]))
        if not np.array_equal(seen, np.arange(self.num_blocks)):
            raise ConservationError(f"{self.kind}: pages are lost or held twice: {seen.tolist()}")
        counted = self._pool[[blocks.NUM_FREE, mapped_pages.NUM_UNMAPPED]].tolist()
        if counted != [len(free), self.num_blocks - self.num_mapped_blocks()]:
            raise ConservationError(f"{self.kind}: counts free and unmapped blocks as {counted}")
        remainder = self.num_slots - self.num_blocks * self.block_size
        expected = recount(self._rows[rows], remainder, len(free) * self.block_size)
        check_terms(self.terms, expected, self.kind)
