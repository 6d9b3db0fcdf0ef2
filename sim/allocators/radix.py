"""Blocks in a radix tree: what sequences have computed stays, to be found by what begins alike.

Models SGLang's RadixCache; tree_memory.py has the engine's steps, tree.py the tree. Here they serve
schedulers that know nothing of trees.
Differs on purpose for those: a prompt is admitted if all of it would fit, evicting what nobody
holds, so that no eviction turns a refusal into an admission; what is written is found at once, not
when the iteration ends; and a single token is taken for a decode, which gives nothing to the tree.
As in the engine, at least one token of a prompt is computed; a sequence that ends leaves all that
it has computed, one that is preempted leaves what its prompt's chunks have given. If free blocks
are short, some are evicted for every sequence of the batch, even where it needs none yet.
"""

from __future__ import annotations

from typing import ClassVar, Literal

import numpy as np

from sim.allocators import blocks, entries, tree_slots
from sim.allocators.base import Admission, BoolArray
from sim.allocators.cached_check import check_tables
from sim.allocators.terms import check_terms, retire_row
from sim.allocators.tree import Node
from sim.allocators.tree_check import Holder, check_tree, recount_tree, state_of_tree
from sim.allocators.tree_memory import TreeMemory
from sim.allocators.tree_policies import EVICTION_POLICIES
from sim.jit import STRIDED, direct
from sim.sequence import (
    FINAL_TOKENS,
    MAX_FINAL_TOKENS,
    NUM_COMPUTED,
    NUM_SLOTS,
    NUM_TOKENS,
    PROMPT_TOKENS,
    IntArray,
    SequenceTable,
)

PolicyName = Literal["lru", "lfu", "fifo", "mru", "filo", "priority", "slru"]

_ONE: IntArray = np.ones(1, np.int64)
_NO_BLOCKS: IntArray = np.empty(0, np.int64)


class Radix(TreeMemory):
    """Blocks of block_size tokens (SGLang: page_size) in a radix tree.

    eviction_policy says which leaf that nobody holds goes first; with slru those that were hit
    protected_threshold times or more go last. split_at_prompt cuts what a request leaves in the
    tree where its prompt ends, so that its output can be evicted alone (SGLang 0.5.23, not 0.5.3).
    eviction_policy priority evicts what the least urgent requests have left; the trace must say
    priorities, of which the lower is more urgent, unlike SGLang's. Nobody is served sooner for it.
    """

    kind: ClassVar[str] = "radix"
    needs: frozenset[str] = frozenset({"prefix identity"})
    caches_prefixes: bool = True
    has_prefix_tree: bool = True
    caches_chunks: ClassVar[bool] = True
    """Whether a chunk of a prompt can be found before the prompt is complete."""

    def __init__(
        self,
        block_size: int = 1,
        eviction_policy: PolicyName = "lru",
        protected_threshold: int = 2,
        split_at_prompt: bool = True,
    ) -> None:
        blocks.check_knobs(block_size, 0.0)
        if eviction_policy not in EVICTION_POLICIES:
            raise ValueError(
                f"eviction_policy: unknown value {eviction_policy!r}; "
                f"accepted: {', '.join(EVICTION_POLICIES)}"
            )
        if protected_threshold < 1:
            raise ValueError(f"protected_threshold: must be at least 1, got {protected_threshold}")
        self.block_size = block_size
        self.eviction_policy = eviction_policy
        if eviction_policy == "priority":
            self.needs = Radix.needs | {"priority"}
        self.protected_threshold = protected_threshold
        self.split_at_prompt = split_at_prompt
        self.evicts_by_batch = block_size > 1

    def bind(self, num_slots: int, sequences: SequenceTable, max_model_len: int) -> None:
        super().bind(num_slots, sequences, max_model_len)
        # the tree's blocks that each row held when it was last asked, with node and protected_len
        self._paths: dict[int, tuple[Node | None, int, IntArray]] = {}
        state = self._pool, self._rows, self._blocks, self._private
        log: IntArray = np.zeros((1, 1), np.int64)
        self._decode = direct(tree_slots.decode, *state, STRIDED, STRIDED)
        self._ahead = direct(tree_slots.append_ahead, *state, STRIDED, 0, 1, self._scratch, log)
        ahead = STRIDED, 1, self._scratch
        self._can_append = direct(blocks.can_append, self._pool, self._rows, *ahead)
        self._until_short = direct(tree_slots.until_short, self._pool, self._rows, *ahead)

    def _peek(self, row: int) -> tuple[int, int]:
        """Tokens of a waiting row that are known, and how many of them nobody holds."""
        return self.tree.peek(self.key(row, self._rows.item(row, NUM_TOKENS) - 1))

    def lookup(self, row: int) -> int:
        return self._peek(row)[0]

    def until_lost(self, row: int, rows: IntArray, num_iterations: int) -> int:
        if self._peek(row)[1] == 0:
            return num_iterations
        return self._until_short(self._pool, self._rows, rows, num_iterations, self._scratch)

    def can_allocate(self, row: int) -> Admission:
        return self.can_admit(row, 0)

    def can_admit(self, row: int, count: int) -> Admission:
        size = self.block_size
        longest = min(self._rows.item(row, NUM_TOKENS), self.max_model_len)
        if longest > self.num_blocks * size:
            return Admission.NEVER
        hit, unlocked = self._peek(row)
        need = -(-max(longest, hit + count) // size) * size - hit
        fits = need <= self.available_size + self.tree.evictable - unlocked
        return Admission.OK if fits else Admission.LATER

    def never_fits(self, requests: IntArray) -> BoolArray:
        need = -(-requests[:, PROMPT_TOKENS] // self.block_size)
        return np.greater(need, self.num_blocks)

    def can_finish(self, row: int, rows: IntArray) -> bool:
        size = self.block_size
        hit, unlocked = self._peek(row)
        need = -(-self._rows.item(row, MAX_FINAL_TOKENS) // size) * size - hit + unlocked
        others = size * int(blocks.outstanding(self._pool, self._rows, rows))
        return need <= self.available_size + self.tree.evictable - others

    def never_finishes(self, requests: IntArray) -> BoolArray:
        need = -(-requests[:, MAX_FINAL_TOKENS] // self.block_size)
        return np.greater(need, self.num_blocks)

    def admit(self, row: int, count: int) -> Admission:
        verdict = self.can_admit(row, count)
        if verdict is Admission.OK:
            self.match(row)
            self.hold(row)
            self._extend_and_cache(row, count)
        return verdict

    def _extend_and_cache(self, row: int, count: int) -> bool:
        """Write a chunk and let it be found; False, and nothing changed, if memory is short."""
        one_row = np.array([row])
        if not self.extend(one_row, np.array([count])):
            return False
        computed = self._rows.item(row, NUM_COMPUTED)
        if self.caches_chunks or computed >= self._rows.item(row, NUM_TOKENS):
            self.checkpoint(one_row, np.array([min(computed, self._held[row].length)]))
        return True

    def append(self, rows: IntArray, counts: IntArray) -> int:
        state = self._pool, self._rows, self._blocks, self._private, rows, counts
        served = self._decode(*state)
        while served == tree_slots.SHORT:
            self._evict_for(len(rows))
            served = self._decode(*state)
        return self._append_chunks(rows, counts) if served == tree_slots.MIXED else served

    def _append_chunks(self, rows: IntArray, counts: IntArray) -> int:
        """append for chunks of any length, and decodes among them, one row after the other."""
        for i, (row, count) in enumerate(zip(rows.tolist(), counts.tolist(), strict=True)):
            if count == 1:
                is_served = self.append(np.array([row]), _ONE) == 1
            else:
                is_served = count == 0 or self._extend_and_cache(row, count)
            if not is_served:
                return i
        return len(rows)

    def can_append(self, rows: IntArray, num_iterations: int) -> int:
        most_blocks = len(rows) * (num_iterations // self.block_size + 1)
        spare = (self.available_size + self.tree.evictable) // self.block_size
        if most_blocks <= spare:
            return num_iterations  # enough even if every row is at a boundary: the common case
        pool = self._pool.copy()
        pool[blocks.NUM_FREE] = spare
        return self._can_append(pool, self._rows, rows, num_iterations, self._scratch)

    def append_ahead(self, rows: IntArray, num_iterations: int, log: IntArray) -> None:
        state = self._pool, self._rows, self._blocks, self._private, rows
        done = self._ahead(*state, -1, num_iterations, self._scratch, log)
        while done < num_iterations:
            self._evict_for(len(rows))
            done = self._ahead(*state, done, num_iterations, self._scratch, log)

    def _evict_for(self, num_rows: int) -> None:
        """Blocks are short for so many rows that decode: a leaf goes, or as many as that takes."""
        size = self.block_size
        self.evict(size if self.evicts_exactly else num_rows * size - self.available_size)

    def free(self, rows: IntArray) -> None:
        """Take back all that the rows hold; those that have ended leave what they computed."""
        for row in rows.tolist():
            has_ended = self._rows.item(row, NUM_TOKENS) >= self._rows.item(row, FINAL_TOKENS)
            if has_ended and self._rows.item(row, NUM_SLOTS):
                self.finish((row,))
            else:
                self.release((row,))

    def retire(self, row: int) -> None:
        if self._held[row].num_computed < 0:
            self._set_idle(row, is_idle=True)
            retire_row(self.terms, self._rows, row)
            self._in_tree.settle()

    def counters(self) -> dict[str, int]:
        return {"num_evicted_blocks": self._num_evicted}

    def block_table(self, row: int) -> IntArray:
        """Ids of the row's blocks in logical order, from 1 on: the tree's, then its own."""
        in_tree = [node.blocks for node in self._held[row].node.path()]
        return np.concatenate([*reversed(in_tree), self._own_blocks(row)])

    def protected_len(self, row: int) -> int:
        """Tokens of the row that are in the tree."""
        return self._held[row].protected_len

    def held_ranges(self, row: int) -> IntArray:
        if not self._rows.item(row, NUM_SLOTS):
            return np.empty((0, 2), np.int64)
        table = self.block_table(row)
        firsts = np.flatnonzero(np.diff(table, prepend=table[0] - 2) != 1)
        lengths = np.diff(firsts, append=len(table))
        return np.stack([table[firsts] - 1, lengths], axis=1) * self.block_size

    def table_entries(self, rows: IntArray) -> IntArray:
        size = self.block_size
        counts = self._rows[rows, NUM_SLOTS] // size
        found: IntArray = np.zeros((int(counts.sum()), entries.NUM_COLUMNS), np.int64)
        found[:, entries.SIZE] = size
        first = 0
        for row, count in zip(rows.tolist(), counts.tolist(), strict=True):
            in_tree = self._blocks_in_tree(row)
            found[first : first + len(in_tree), entries.START] = (in_tree - 1) * size
            own: IntArray = found[first + len(in_tree) : first + count, entries.START]
            tree_slots.gather(self._blocks, self._private, row, own)
            own -= 1
            own *= size
            first += count
        entries.fill(self._rows, rows, counts, found)
        return found

    def _blocks_in_tree(self, row: int) -> IntArray:
        """Ids of the blocks that a row holds of the tree; the same as long as its node is."""
        held = self._held[row]
        node, length, blocks_ = self._paths.get(row, (None, 0, _NO_BLOCKS))
        if node is not held.node or length != held.protected_len:
            path = [node.blocks for node in held.node.path()]
            blocks_ = np.concatenate([_NO_BLOCKS, *reversed(path)])
            self._paths[row] = held.node, held.protected_len, blocks_
        return blocks_

    def free_ranges(self) -> IntArray:
        return np.array([[0, self.num_blocks * self.block_size]], np.int64)

    def cached_ranges(self) -> IntArray:
        """All that is not free: what rows do not hold of it is the tree's."""
        is_used = np.ones(self.num_blocks, np.bool_)
        ring = self._blocks[: self.num_blocks, tree_slots.FREE_RING]
        head = self._pool.item(tree_slots.HEAD)
        end = head + self._pool.item(blocks.NUM_FREE)
        is_used[ring[head:end] - 1] = False
        is_used[ring[: max(0, end - self.num_blocks)] - 1] = False
        found: IntArray = np.empty((int(is_used.sum()), 3), np.int64)
        found[:, 0] = np.flatnonzero(is_used) * self.block_size
        found[:, 1:] = self.block_size
        return found

    def free_blocks(self) -> IntArray:
        """Ids of free blocks, the next one to be handed out first."""
        head, count = self._pool.item(tree_slots.HEAD), self._pool.item(blocks.NUM_FREE)
        places = (head + np.arange(count)) % self.num_blocks
        free: IntArray = self._blocks[places, tree_slots.FREE_RING]
        return free

    def free_list(self) -> IntArray:
        """Ids of blocks that can be had: free ones in their order, then those nobody holds."""
        unheld = [node.blocks for node in self.tree.nodes() if node.lock_ref == 0]
        return np.concatenate([self.free_blocks(), *unheld])

    def findable(self) -> IntArray:
        """The clock, and every node with its counts, times and blocks, depth first, as one list."""
        return state_of_tree(self.tree)

    def refusal(self, row: int) -> str:
        need = -(-self._rows.item(row, NUM_TOKENS) // self.block_size)
        return f"needs {need} blocks of {self.block_size} slots, the pool has {self.num_blocks}"

    def check(self, rows: IntArray) -> None:
        holders = {row: self._holder(row) for row in rows.tolist()}
        check_tree(self.tree, holders.values())
        expected = recount_tree(self._rows, self.tree, holders, self.free_blocks())
        remainder = self.num_slots % self.block_size
        check_terms(self.terms, expected._replace(external=remainder), self.kind)
        check_tables(self.recorded, [self.block_table(row) for row in rows.tolist()], self.kind)

    def _holder(self, row: int) -> Holder:
        held = self._held[row]
        own = self._own_blocks(row)
        return Holder(held.node, held.protected_len, own, held.num_computed >= 0)
