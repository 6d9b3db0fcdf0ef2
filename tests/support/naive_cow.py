"""Blocks that sequences share until they write, the naive way: lists of tokens, no counters."""

from __future__ import annotations

import copy
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field

Token = Hashable
Block = list[Token]
"""block_size tokens; None where nothing was written"""

FREE, INTERNAL, RESERVED, WRITTEN = range(4)


@dataclass
class Naive:
    """A sequence: what it has written or inherited, and the blocks in which that is."""

    request: int
    final: int  # tokens of prompt and output
    words: list[Token] = field(default_factory=list)
    table: list[int] = field(default_factory=list)
    is_away: bool = False  # on the host
    is_done: bool = False  # but still there

    @property
    def room(self) -> int:
        """Tokens that it has still to write."""
        return 0 if self.is_done else self.final - 1 - len(self.words)


class NaiveCow:
    """The rules of vLLM v0's block manager; every question looks at everything.

    Blocks num_blocks to num_blocks + num_host - 1 are the host's. window is the number of entries
    of a table that is a ring, or 0. prefixes are declared: number -> tokens.
    """

    def __init__(self, num_blocks: int, size: int, num_host: int, spare: int, window: int) -> None:
        self.size, self.num_blocks, self.spare, self.window = size, num_blocks, spare, window
        self.free = list(range(num_blocks))  # the last is taken first
        self.host_free = list(range(num_blocks, num_blocks + num_host))
        self.content: dict[int, Block] = {}  # of all blocks that are held or pinned
        self.pinned: dict[int, list[int]] = {}  # by number of the prefix
        self.rows: dict[int, Naive] = {}
        self.num_copied = self.num_out = self.num_in = 0

    def pin(self, number: int, words: Sequence[Token]) -> None:
        """Keep a prefix, of which the last block may be partial."""
        self.pinned[number] = []
        for first in range(0, len(words), self.size):
            block = self._take()
            part = list(words[first : first + self.size])
            self.content[block] = part + [None] * (self.size - len(part))
            self.pinned[number].append(block)

    def num_pinned(self) -> int:
        return sum(len(blocks) for blocks in self.pinned.values())

    def is_pinned(self, block: int) -> bool:
        return any(block in blocks for blocks in self.pinned.values())

    def holders(self, block: int) -> int:
        """How many rows hold a block."""
        return sum(row.table.count(block) for row in self.rows.values())

    def is_shared(self, block: int) -> bool:
        return self.is_pinned(block) or self.holders(block) > 1

    def _take(self) -> int:
        block = self.free.pop()
        self.content[block] = [None] * self.size
        return block

    def _copy(self, block: int) -> int:
        """Take a block with what is in another."""
        mine = self._take()
        self.content[mine] = list(self.content[block])
        self.num_copied += 1
        return mine

    def _let_go(self, block: int) -> None:
        """A row has dropped a block from its table."""
        if self.holders(block) == 0 and not self.is_pinned(block):
            del self.content[block]
            (self.free if block < self.num_blocks else self.host_free).append(block)

    def admits(self, num_tokens: int, found: int) -> str:
        need = self._entries(num_tokens) - found // self.size
        if self.num_blocks - self.num_pinned() - need < self.spare:
            return "NEVER"
        return "OK" if len(self.free) - need >= self.spare else "LATER"

    def _entries(self, num_tokens: int) -> int:
        need = -(-num_tokens // self.size)
        return min(need, self.window) if self.window else need

    def admit(self, row: int, naive: Naive, prefix: int | None, words: Sequence[Token]) -> None:
        """Write words for a new sequence, behind its prefix if it has one."""
        self.rows[row] = naive
        for block in [] if prefix is None else self.pinned[prefix]:
            written = [token for token in self.content[block] if token is not None]
            naive.table.append(block if len(written) == self.size else self._copy(block))
            naive.words += written
        self.write(naive, words)

    def write(self, naive: Naive, words: Sequence[Token]) -> None:
        for word in words:
            entry = self._entry(len(naive.words))
            if entry == len(naive.table):
                naive.table.append(self._take())
            elif self.is_shared(naive.table[entry]):
                naive.table[entry] = self._copy(naive.table[entry])
            self.content[naive.table[entry]][len(naive.words) % self.size] = word
            naive.words.append(word)

    def _entry(self, position: int) -> int:
        entry = position // self.size
        return entry % self.window if self.window else entry

    def demand(self, naive: Naive, count: int) -> int:
        """Free blocks that must be there: one for one token, whether it is needed or not."""
        if count <= 1:
            return count
        places = range(len(naive.words), len(naive.words) + count)
        entries = {(place // self.size, self._entry(place)) for place in places}
        return sum(e >= len(naive.table) or self.is_shared(naive.table[e]) for _, e in entries)

    def append(self, rows: Sequence[int], words: Sequence[Sequence[Token]]) -> int:
        """Request by request; return how many rows were served."""
        first = 0
        while first < len(rows):
            end = first
            while end < len(rows) and self._request(rows[end]) == self._request(rows[first]):
                end += 1
            mine = range(first, end)
            need = sum(self.demand(self.rows[rows[i]], len(words[i])) for i in mine)
            if need > len(self.free):
                return first
            for i in mine:
                self.write(self.rows[rows[i]], words[i])
            first = end
        return len(rows)

    def _request(self, row: int) -> int:
        return self.rows[row].request

    def can_append(self, rows: Sequence[int], num_iterations: int) -> int:
        trial = copy.deepcopy(self)
        for i in range(num_iterations):
            if trial.append(rows, [[None]] * len(rows)) < len(rows):
                return i
        return num_iterations

    def fork(self, parents: Sequence[int], children: Sequence[int]) -> None:
        for parent, child in zip(parents, children, strict=True):
            self.rows[child] = copy.deepcopy(self.rows[parent])

    def release(self, row: int) -> None:
        """The last block first, so that the first is on top."""
        naive = self.rows[row]
        while naive.table:
            self._let_go(naive.table.pop())
        del self.rows[row]

    def distinct(self, rows: Sequence[int]) -> set[int]:
        blocks = {block for row in rows for block in self.rows[row].table}
        return {block for block in blocks if not self.is_pinned(block)}

    def can_swap_out(self, rows: Sequence[int]) -> bool:
        return len(self.distinct(rows)) <= len(self.host_free)

    def can_swap_in(self, rows: Sequence[int]) -> str:
        need = len(self.distinct(rows)) + len(rows) + self.spare
        if need > self.num_blocks - self.num_pinned():
            return "NEVER"
        return "OK" if need <= len(self.free) else "LATER"

    def swap_out(self, rows: Sequence[int]) -> None:
        self.num_out += self._move(rows, self.host_free)

    def swap_in(self, rows: Sequence[int]) -> None:
        self.num_in += self._move(rows, self.free)

    def _move(self, rows: Sequence[int], there: list[int]) -> int:
        """Every block moves once; return how many."""
        moved: dict[int, int] = {}
        for row in rows:
            naive = self.rows[row]
            naive.is_away = not naive.is_away
            for entry, block in enumerate(naive.table):
                if self.is_pinned(block):
                    continue
                if block not in moved:
                    moved[block] = there.pop()
                    self.content[moved[block]] = list(self.content[block])
                naive.table[entry] = moved[block]
                self._let_go(block)
        return len(moved)

    def seen_by(self, row: int) -> list[Token]:
        """What a sequence reads in its blocks; of a ring, what is still there."""
        naive = self.rows[row]
        places = range(len(naive.words))
        if self.window:
            places = places[-self.window * self.size :]
        return [self.content[naive.table[self._entry(i)]][i % self.size] for i in places]

    def terms(self) -> list[int]:
        """token_states, reserved, internal, external (none here), cached, free."""
        use = {block: [FREE] * self.size for block in range(self.num_blocks)}
        for row in self.rows.values():
            for entry, block in enumerate(row.table):
                for i in range(self.size if block < self.num_blocks else 0):
                    kind = self._use_of(row, entry * self.size + i)
                    kind = WRITTEN if self.is_pinned(block) else kind
                    use[block][i] = max(use[block][i], kind)
        cached = 0
        for blocks in self.pinned.values():
            for block in blocks:
                if self.holders(block) == 0:
                    written = sum(token is not None for token in self.content[block])
                    cached += written
                    use[block][written:] = [INTERNAL] * (self.size - written)
        slots = [kind for kinds in use.values() for kind in kinds]
        held = [slots.count(kind) for kind in (WRITTEN, RESERVED, INTERNAL)]
        return [*held, 0, cached, len(self.free) * self.size]

    def held(self) -> list[int]:
        """Blocks in the tables of sequences on the device, and how many different ones."""
        tables = [block for row in self.rows.values() for block in row.table]
        here = [block for block in tables if block < self.num_blocks]
        return [len(here), len(set(here))]

    @staticmethod
    def _use_of(row: Naive, place: int) -> int:
        if row.is_done:
            return INTERNAL
        if place < len(row.words):
            return WRITTEN
        return RESERVED if place < row.final - 1 else INTERNAL
