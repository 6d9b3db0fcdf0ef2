"""The steps of SGLang's memory: match, hold, extend, give to the tree, finish, release, evict.

Models RadixCache with the allocators of slots (page size 1) and of pages. A request locks what the
tree has of its prompt, computes the rest into blocks of its own, and gives them to the tree after
every chunk of its prompt and when it ends; what the tree has had already is freed. What it decodes
is its own until then. Unlocked leaves are evicted when free blocks are short.
Source: SGLang 0.5.23, srt/mem_cache/{radix_cache,common,allocation}.py and allocator/.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import ClassVar

import numpy as np

from sim.allocators import blocks, tree_orders, tree_slots
from sim.allocators.base import Allocator
from sim.allocators.terms import NUM_RECORDED, TABLE_BLOCKS, resize_row
from sim.allocators.tree import Node, RadixTree
from sim.allocators.tree_held import Held
from sim.allocators.tree_keys import Key
from sim.allocators.tree_terms import TreeTerms
from sim.jit import STRIDED, direct
from sim.sequence import (
    FINAL_TOKENS,
    NUM_COMPUTED,
    NUM_SLOTS,
    NUM_TOKENS,
    PROMPT_TOKENS,
    REQUEST,
    IntArray,
    SequenceTable,
)
from workloads.sequences import SequenceContent


class TreeMemory(Allocator):
    """Memory whose used blocks stay in a radix tree: the part that a scheduler of SGLang's drives.

    A waiting row is matched, then held, which `release` undoes; extend takes slots for a batch of
    prompts or chunks, checkpoint gives them to the tree when they have been computed; append takes
    a slot a row for a batch of decodes. finish ends rows, release takes memory from rows that will
    come back.
    """

    block_size: int
    eviction_policy: str
    protected_threshold: int
    split_at_prompt: bool
    evicts_exactly: ClassVar[bool] = False
    """Whether no more is evicted than the blocks that are needed take; else a few more are."""

    def bind(self, num_slots: int, sequences: SequenceTable, max_model_len: int) -> None:
        super().bind(num_slots, sequences, max_model_len)
        size = self.block_size
        num_blocks = blocks.whole_blocks(num_slots, size)
        self.tree = self._new_tree()
        self._pool = blocks.new_pool(tree_slots.NUM_CELLS, num_slots, num_blocks, size, 0.0)
        self._pool[tree_slots.FREES_BEHIND] = size == 1 or self.evicts_exactly
        self._pool[tree_slots.EVICTS_EXACTLY] = self.evicts_exactly
        self.recorded = self._pool[:NUM_RECORDED]
        self._blocks: IntArray = np.zeros((num_blocks + 1, 2), np.int64)
        self._blocks[:num_blocks, tree_slots.FREE_RING] = np.arange(1, num_blocks + 1)
        self._in_tree = TreeTerms(self.tree, self._pool)
        self._num_evicted = 0
        self._held: list[Held] = []
        self._private: IntArray = np.zeros((0, 2), np.int64)
        self._resize(len(sequences.rows))
        sequences.when_grown.append(self._resize)
        sequences.when_opened.append(self._open)
        self.bind_content(SequenceContent())
        state = self._pool, self._rows, self._blocks, self._private
        self._extend = direct(tree_slots.extend, *state, 0, 1)
        self._put_back = direct(tree_slots.put_back, self._pool, self._blocks, STRIDED)
        self._resize_row = direct(resize_row, self._pool, self._rows, 0, 1, 1)

    def _new_tree(self) -> RadixTree:
        return RadixTree(self.block_size, self.eviction_policy, self.protected_threshold)

    def _resize(self, capacity: int) -> None:
        self._rows = self.sequences.rows
        self._held += [Held(self.tree.root, 0) for _ in range(capacity - len(self._held))]
        private = np.zeros((capacity, 2), np.int64)
        private[: len(self._private)] = self._private
        self._private = private
        self._scratch: IntArray = np.empty(self.block_size + capacity, np.int64)

    def _open(self, row: int) -> None:
        request, final = self._rows[row, [REQUEST, FINAL_TOKENS]].tolist()
        self._held[row] = Held(self.tree.root, final - 1)
        self.set_priority(row, -self._content.priority(request))

    def bind_content(self, content: SequenceContent) -> None:
        self._content = content

    # what there is, in tokens

    @property
    def available_size(self) -> int:
        """Tokens in free blocks."""
        return self._pool.item(blocks.NUM_FREE) * self.block_size

    @property
    def evictable_size(self) -> int:
        """Tokens in the tree that nobody holds."""
        return self.tree.evictable

    @property
    def protected_size(self) -> int:
        """Tokens in the tree that somebody holds."""
        return self.tree.protected

    # the steps of the engine

    def match(self, row: int, whole: bool = False) -> int:
        """Look for all but the last of a waiting row's tokens; return how many were found.

        Refreshes what it finds, and may split a node. To order those that wait, the engine looks
        for all tokens, the last one too: with whole, after which the row cannot be held.
        """
        held = self._held[row]
        key = self.key(row, self._rows.item(row, NUM_TOKENS) - (not whole))
        held.node, held.hit = self.tree.match(key)
        return held.hit

    def match_again(self, row: int, num_times: int) -> None:
        """match a row, matched before, so many times, while others decode: the clock ticks."""
        before = self.tree.clock
        self.match(row)
        if num_times > 1 and self.tree.clock > before:
            self.tree.clock += num_times - 2
            self.match(row)

    def hold(self, row: int) -> None:
        """Lock what match has just found for a row, which has computed that much now.

        To refuse the row after all, `release` it.
        """
        held = self._held[row]
        self.tree.lock(held.node)
        held.protected_len = held.hit
        self._in_tree.hold(held.hit)
        self._resize_row(self._pool, self._rows, row, held.hit, held.hit)
        self._pool[TABLE_BLOCKS] += held.hit // self.block_size
        self._in_tree.settle()

    def extend(self, rows: IntArray, counts: IntArray) -> int:
        """Take slots for counts[i] more tokens of rows[i]; return how many rows got them.

        For the prompts and chunks of an iteration. What is short is evicted first, for all that are
        served; a block more for each of them, where blocks hold several tokens, unless memory
        evicts exactly. If nobody is served, nothing has changed.
        """
        size = self.block_size
        pairs = list(zip(rows.tolist(), counts.tolist(), strict=True))
        spare = self._pool.item(blocks.NUM_FREE) + self.tree.evictable // size
        served = demand = 0
        for row, count in pairs:
            held = self._rows.item(row, NUM_SLOTS)
            need = max(0, -(-(self._rows.item(row, NUM_COMPUTED) + count - held) // size))
            spare -= need
            if spare < 0:
                break
            served += 1
            demand += size * need if self.evicts_exactly else count + size * (size > 1)
        self.evict(demand - self.available_size)
        for row, count in pairs[:served]:
            self._extend(self._pool, self._rows, self._blocks, self._private, row, count)
        return served

    def checkpoint(self, rows: IntArray, num_tokens: IntArray) -> None:
        """Give the whole blocks of the first num_tokens[i] tokens of rows[i] to the tree.

        Blocks of tokens that the tree has already are freed, and the row goes on with the tree's.
        After every chunk of a prompt, and in finish.
        """
        for row, count in zip(rows.tolist(), num_tokens.tolist(), strict=True):
            self._checkpoint(row, count)
        self._in_tree.settle()

    def _checkpoint(self, row: int, num_tokens: int) -> None:
        held, tree, size = self._held[row], self.tree, self.block_size
        key = self.key(row, num_tokens // size * size)
        own, begin = self._own_blocks(row), held.protected_len
        node, known = self._insert(row, key, own)
        self._free_blocks(own[: (known - begin) // size])
        tree_slots.drop(self._private, self._blocks, row, (key.length - begin) // size)
        tree.lock(node)
        tree.unlock(held.node)
        held.node, held.protected_len = node, key.length
        self._in_tree.hold(key.length - begin)

    def _insert(self, row: int, key: Key, own: IntArray) -> tuple[Node, int]:
        """Insert whole blocks of a row, its own behind the tree's.

        Returns the node that they end with, and how many of the tokens were known.
        """
        held, tree = self._held[row], self.tree
        begin = held.protected_len
        known = tree.insert(key, own, begin, held.priority, held.inserted_len)
        held.inserted_len = max(held.inserted_len, key.length)
        prompt = self._rows.item(row, PROMPT_TOKENS) // self.block_size * self.block_size
        if self.split_at_prompt and 0 < prompt < key.length:
            tree.insert(key._replace(length=prompt), own, begin, held.priority + 1, prompt)
        return tree.match(key)[0], known

    def finish(self, rows: Iterable[int]) -> None:
        """Sequences end: all that they have computed goes to the tree but what fills no block."""
        for row in rows:
            held = self._held[row]
            computed = self._rows.item(row, NUM_COMPUTED)
            if held.num_computed >= 0:
                computed = held.num_computed
                self._set_idle(row, is_idle=False)
            self._checkpoint(row, min(computed, held.length))
            self._give_back(row)
        self._in_tree.settle()

    def release(self, rows: Iterable[int]) -> None:
        """Sequences lose their memory: what only they hold is freed, and the tree gets nothing."""
        for row in rows:
            self._give_back(row)
        self._in_tree.settle()

    def evict(self, num_tokens: int) -> int:
        """Evict leaves until num_tokens more tokens are free; return how many are."""
        if num_tokens <= 0:
            return 0
        before = self.tree.evictable
        for gone in self.tree.evict(num_tokens):
            self._free_blocks(gone)
            self._num_evicted += len(gone)
        self._in_tree.settle()
        return before - self.tree.evictable

    def make_room(self, rows: IntArray) -> bool:
        """Evict what is short for one more token of every row; whether all would fit then.

        As SGLang's check_decode_mem: only rows at the end of a block need one.
        """
        size = self.block_size
        need = len(rows)
        if size > 1:
            need = size * int(np.count_nonzero(self._rows[rows, NUM_COMPUTED] % size == 0))
        self.evict(need - self.available_size)
        return self.available_size >= need

    def repeats(self, rows: Sequence[int], least: int) -> list[bool]:
        """Which waiting rows begin with least tokens or more that an earlier one begins with."""
        keys = [self.key(row, self._rows.item(row, NUM_TOKENS)) for row in rows]
        return tree_orders.repeated(keys, least)

    def depth_first_order(self, rows: Sequence[int]) -> list[int]:
        """The places of waiting rows, just matched, in depth-first order of what was found."""
        return tree_orders.depth_first(self.tree.root, [self._held[row].node for row in rows])

    def set_priority(self, row: int, priority: int) -> None:
        """The higher, the later policy priority evicts what the row gives to the tree."""
        self._held[row].priority = priority

    def key(self, row: int, num_tokens: int) -> Key:
        """The first num_tokens tokens of what a row consists of."""
        held = self._held[row]
        if held.key is None:
            request, prompt = self._rows[row, [REQUEST, PROMPT_TOKENS]].tolist()
            runs = self._content.runs(request, prompt, held.length)
            held.key = Key.of(runs, held.length, self._content.namespace(request))
        return held.key._replace(length=num_tokens)

    @property
    def num_blocks(self) -> int:
        return self._pool.item(blocks.NUM_BLOCKS)

    def _own_blocks(self, row: int) -> IntArray:
        """The blocks that a row holds beside the tree's, in order."""
        in_tree = self._held[row].protected_len
        count = (self._rows.item(row, NUM_SLOTS) - in_tree) // self.block_size
        own: IntArray = np.empty(count, np.int64)
        tree_slots.gather(self._blocks, self._private, row, own)
        return own

    def _give_back(self, row: int) -> None:
        """Free a row's own blocks, and let go of the tree's."""
        held = self._held[row]
        self._free_blocks(self._own_blocks(row))
        self._private[row] = tree_slots.NONE
        self.tree.unlock(held.node)
        self._in_tree.hold(-held.protected_len)
        held.node = self.tree.root
        held.hit = held.protected_len = held.inserted_len = 0
        self._pool[TABLE_BLOCKS] -= self._rows.item(row, NUM_SLOTS) // self.block_size
        self._resize_row(self._pool, self._rows, row, 0, 0)

    def _free_blocks(self, freed: IntArray) -> None:
        if len(freed):
            self._put_back(self._pool, self._blocks, freed)

    def _set_idle(self, row: int, is_idle: bool) -> None:
        """What a row holds of the tree counts as held by a sequence that is done, or no more."""
        held = self._held[row]
        self.tree.set_idle(held.node, is_idle)
        self._in_tree.hold_idle(held.protected_len if is_idle else -held.protected_len)
        held.num_computed = self._rows.item(row, NUM_COMPUTED) if is_idle else -1
