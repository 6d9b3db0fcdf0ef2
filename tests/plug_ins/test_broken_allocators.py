"""check_allocator finds what is wrong with memory, also where its own `check` says nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np
import pytest

from sim.allocators.base import Admission, Allocator
from sim.allocators.paged import Paged
from sim.allocators.paged_cow import PagedCow
from sim.allocators.prefix import Prefix
from sim.allocators.terms import CACHED, EXTERNAL, FREE, INTERNAL, RESERVED, recount, resize_row
from sim.parts import check_terms
from sim.sequence import MAX_FINAL_TOKENS, NUM_COMPUTED, NUM_SLOTS, NUM_TOKENS, IntArray
from sim.testing import ContractError, check_allocator

OK, LATER, NEVER = Admission
NONE = np.empty(0, np.int64)


class Plain(Allocator):
    """Blocks in plain Python, and nothing wrong with them."""

    kind = "plain"

    def __init__(self, block_size: int = 3) -> None:
        self.block_size = block_size

    def bind(self, num_slots: int, sequences: Any, max_model_len: int) -> None:
        super().bind(num_slots, sequences, max_model_len)
        self.total = num_slots // self.block_size
        self.unused = list(range(self.total))
        self.tables: dict[int, list[int]] = {}
        self.terms[EXTERNAL] = num_slots % self.block_size
        self.terms[FREE] -= self.terms[EXTERNAL]

    @property
    def num_blocks(self) -> int:
        return self.total

    def blocks_of(self, tokens: int) -> int:
        return -(-tokens // self.block_size)

    def cell(self, row: int, column: int) -> int:
        return self.sequences.rows.item(row, column)

    def can_allocate(self, row: int) -> Admission:
        need = self.blocks_of(self.cell(row, NUM_TOKENS))
        if need > self.total:
            return NEVER
        return OK if need <= len(self.unused) else LATER

    def refusal(self, row: int) -> str:
        return f"needs more than {self.total} blocks"

    def append(self, rows: IntArray, counts: IntArray) -> int:
        for i, (row, count) in enumerate(zip(rows.tolist(), counts.tolist(), strict=True)):
            if not self.write(row, count):
                return i
        return len(rows)

    def write(self, row: int, count: int) -> bool:
        table, tokens = self.tables.get(row, []), self.cell(row, NUM_COMPUTED) + count
        missing = max(0, self.blocks_of(tokens) - len(table))
        if missing > len(self.unused):
            return False
        self.tables[row] = table + [self.unused.pop() for _ in range(missing)]
        self.resize(row, tokens)
        return True

    def resize(self, row: int, tokens: int) -> None:
        held = len(self.tables.get(row, [])) * self.block_size
        resize_row(self.terms, self.sequences.rows, row, tokens, held)

    def free(self, rows: IntArray) -> None:
        for row in rows.tolist():
            self.give(self.tables.pop(row, []))
            self.resize(row, 0)

    def give(self, blocks: list[int]) -> None:
        self.unused += reversed(blocks)

    def can_append(self, rows: IntArray, num_iterations: int) -> int:
        left, rooms = len(self.unused), []
        for row in rows.tolist():
            held = len(self.tables.get(row, [])) * self.block_size
            rooms.append(held - self.cell(row, NUM_COMPUTED))
        for i in range(1, num_iterations + 1):
            left -= sum(
                (i - room) % self.block_size == 1 % self.block_size for room in rooms if i > room
            )
            if left < 0:
                return i - 1
        return num_iterations

    def held_ranges(self, row: int) -> IntArray:
        starts = np.array(self.tables.get(row, []), np.int64) * self.block_size
        return np.stack([starts, np.full_like(starts, self.block_size)], axis=1)

    def check(self, rows: IntArray) -> None:
        external, free = self.num_slots % self.block_size, len(self.unused) * self.block_size
        check_terms(self.terms, recount(self.sequences.rows[rows], external, free), self.kind)


class Blind(Plain):
    def check(self, rows: IntArray) -> None:
        pass


class Cow(PagedCow):
    def __init__(self) -> None:
        super().__init__(block_size=3, watermark=0.0, num_cpu_blocks=20)

    def check(self, rows: IntArray) -> None:
        pass


class Cache(Prefix):
    def __init__(self) -> None:
        super().__init__(block_size=3)

    def check(self, rows: IntArray) -> None:
        pass


class Copies(Paged):
    def __init__(self) -> None:
        super().__init__(block_size=3)


class Keeps(Blind):
    """Takes block by block, and keeps those of an append that fails."""

    def write(self, row: int, count: int) -> bool:
        table, tokens = self.tables.setdefault(row, []), self.cell(row, NUM_COMPUTED) + count
        while len(table) < self.blocks_of(tokens):
            if not self.unused:
                return False
            table.append(self.unused.pop())
        self.resize(row, tokens)
        return True

    def held_ranges(self, row: int) -> IntArray:
        return super().held_ranges(row)[: self.cell(row, NUM_SLOTS) // self.block_size]


class Unseen(Keeps):
    held_ranges = Allocator.held_ranges


class FreesLate(Blind):
    def bind(self, *given: Any) -> None:
        known = getattr(self, "unused", None)
        super().bind(*given)
        self.unused = known[1:] if known else self.unused


class StaleRows(Blind):
    """Holds the array of sequences, which is another one when it has grown."""

    def bind(self, *given: Any) -> None:
        super().bind(*given)
        self.cells = self.sequences.rows

    def cell(self, row: int, column: int) -> int:
        return self.cells.item(row, column) if row < len(self.cells) else super().cell(row, column)


class OneForAll(Blind):
    shared: ClassVar[dict[int, list[int]]] = {}

    def bind(self, *given: Any) -> None:
        super().bind(*given)
        self.tables = OneForAll.shared


class Same:
    """Content that is alike for all."""

    def __init__(self, content: Any) -> None:
        self.content = content

    def __getattr__(self, name: str) -> Any:
        return getattr(self.content, name)

    def runs(self, request: int, prompt_tokens: int, num_tokens: int) -> Any:
        return [(7, 0, num_tokens)]


def moved(term: int, other: int) -> Callable[..., Any]:
    """A write after which all of a term is counted as another."""

    def write(self: Any, row: int, count: int) -> bool:
        done = Blind.write(self, row, count)
        self.terms[other] += self.terms[term]
        self.terms[term] = 0
        return done

    return write


def after(name: str, act: Callable[..., Any]) -> dict[str, Any]:
    """A method that does what it should, and then something more."""

    def method(self: Any, *given: Any) -> Any:
        answer = getattr(super(type(self), self), name)(*given)
        other = act(self, answer, *given)
        return answer if other is None else other

    return {name: method}


def put(array: IntArray, where: Any, value: Any) -> None:
    array[where] = value


def said(value: Any) -> Callable[..., Any]:
    return lambda self, *given: value


PROPERTY = property(lambda self: self.total + 1)
# what is wrong, in which allocator, and the sentence that says so
BROKEN: list[tuple[str, type, dict[str, Any], str]] = [
    ("check looks at nothing", Blind, {}, "check says nothing when a slot is counted elsewhere"),
    ("keeps blocks of 1", Keeps, {"size": 1}, "can_append of row|a failed append of 100"),
    ("keeps blocks of 3", Keeps, {}, "can_append of row"),
    ("keeps blocks of 16", Keeps, {"size": 16}, "a failed append of 100 tokens keeps memory"),
    ("keeps unseen blocks of 3", Unseen, {}, "can_append of row"),
    ("keeps unseen blocks of 16", Unseen, {"size": 16}, "a failed append of 100 tokens keeps"),
    ("leaks", Blind, {"give": lambda self, b: Plain.give(self, b[:-1])}, "an emptied pool takes"),
    (
        "leaks rarely",
        Blind,
        {"give": lambda self, b: Plain.give(self, b[len(b) == 5 :])},
        "an emptied",
    ),
    (
        "frees twice",
        Blind,
        {"give": lambda self, b: Plain.give(self, b + b[:1])},
        "is not in its slot",
    ),
    (
        "frees some twice",
        Blind,
        {"give": lambda self, b: Plain.give(self, b + b[: len(b) == 4])},
        ".",
    ),
    (
        "external is free",
        Blind,
        after(
            "bind",
            lambda s, a, *g: (
                moved(EXTERNAL, FREE) and put(s.terms, [EXTERNAL, FREE], [0, s.num_slots])
            ),
        ),
        "external is 0, and",
    ),
    (
        "internal is reserved",
        Blind,
        {"write": moved(INTERNAL, RESERVED)},
        "reserved is .*, the slots say",
    ),
    (
        "reserved is internal",
        Blind,
        {"write": moved(RESERVED, INTERNAL)},
        "reserved is 0, the slots say",
    ),
    (
        "free is cached",
        Blind,
        {"write": moved(FREE, CACHED)},
        "something is cached, and caches_prefixes",
    ),
    (
        "promises more",
        Blind,
        after("can_append", lambda s, a, rows, n: min(n, a + 1)),
        "can_append promised",
    ),
    (
        "promises less",
        Blind,
        after("can_append", lambda s, a, *g: max(0, a - 1)),
        "one more succeeds",
    ),
    ("one table for all", OneForAll, {}, "."),
    (
        "changes counts",
        Blind,
        after("append", lambda s, a, rows, counts: put(counts, slice(None), 0)),
        "append changed an array that",
    ),
    ("sorts rows", Blind, after("free", lambda s, a, rows: rows.sort()), "."),
    (
        "turns rows",
        Blind,
        after("free", lambda s, a, rows: put(rows, slice(None), rows[::-1].copy())),
        "free changed an array that",
    ),
    (
        "asks into rows",
        Blind,
        after("can_append", lambda s, a, rows, n: put(rows, slice(None), rows[0])),
        "can_append changed an array",
    ),
    (
        "changes requests",
        Blind,
        after("never_fits", lambda s, a, requests: put(requests, (0, MAX_FINAL_TOKENS), 1)),
        "never_fits changed an array",
    ),
    ("knows old rows", StaleRows, {}, "twins answer|advanced by another"),
    (
        "NEVER when full",
        Blind,
        after("can_allocate", lambda s, a, row: NEVER if a is LATER and len(s.unused) < 2 else a),
        "never_fits depends on who is in the pool",
    ),
    (
        "LATER when empty",
        Blind,
        after(
            "can_allocate",
            lambda s, a, row: (
                LATER if a is OK and s.blocks_of(s.cell(row, NUM_TOKENS)) == s.total else a
            ),
        ),
        "an empty pool answers LATER",
    ),
    (
        "other never_fits",
        Blind,
        {"never_fits": lambda s, requests: requests[:, 0] > s.num_slots},
        "never_fits says False where admit answers",
    ),
    (
        "refusal changes",
        Blind,
        after("refusal", lambda s, a, row: s.unused.reverse()),
        "row .* holds other slots than its twin",
    ),
    ("asking changes", Blind, after("can_allocate", lambda s, a, row: s.unused.reverse()), "."),
    (
        "looking changes",
        Blind,
        after("held_ranges", lambda s, a, row: s.tables.get(row, []).reverse()),
        ".",
    ),
    (
        "slots beyond",
        Blind,
        after("held_ranges", lambda s, a, row: np.add(a, [s.block_size, 0])),
        "is not in its slot|outside",
    ),
    (
        "slots of others",
        Blind,
        after("held_ranges", lambda s, a, row: a * 0 + [0, s.block_size]),
        ".",
    ),
    (
        "slots in a list",
        Blind,
        after("held_ranges", lambda s, a, row: a.tolist()),
        "are not whole numbers",
    ),
    (
        "slots in floats",
        Blind,
        after("held_ranges", lambda s, a, row: a / 1),
        "are not whole numbers",
    ),
    ("bound again, lacks one", FreesLate, {}, "bound again, a pool takes"),
    (
        "changes tokens",
        Blind,
        after("write", lambda s, a, row, n: put(s.sequences.rows, (row, NUM_TOKENS), 9)),
        "a row has changed beyond num_computed",
    ),
    (
        "free changes tokens",
        Blind,
        after("free", lambda s, a, rows: put(s.sequences.rows, (rows, NUM_TOKENS), 0)),
        "free changed more than what",
    ),
    (
        "no tokens fail",
        Blind,
        after("write", lambda s, a, row, n: a and n > 0),
        "an append of no tokens finds no memory|advanced",
    ),
    (
        "copies fall",
        Blind,
        {"copied_tokens": lambda s: -len(s.tables)},
        "copied_tokens falls from 0 to -1",
    ),
    ("copies a half", Blind, {"copied_tokens": said(0.5)}, "copied_tokens answers 0.5"),
    (
        "counts apples",
        Blind,
        {"counters": said({"num_apples": 0})},
        r"counters says \['num_apples'\]",
    ),
    (
        "counts in text",
        Blind,
        {"counters": said({"num_copied_tokens": "7"})},
        "counters of num_copied",
    ),
    ("counts nothing", Blind, {"counters": said(None)}, "counters answers None"),
    ("counts from one", Blind, {"counters": said({"num_copied_tokens": 1})}, "do not begin with 0"),
    (
        "finds and says not",
        Blind,
        {"lookup": lambda s, row: min(1, s.cell(row, NUM_TOKENS) - 1)},
        "lookup finds 1 tokens, and caches_prefixes",
    ),
    ("num_blocks", Blind, {"num_blocks": PROPERTY}, "more blocks of 3 than the pool has"),
    (
        "free_ranges",
        Blind,
        {"free_ranges": lambda s: np.array([[0, s.num_slots // 2]])},
        "free is .*, the slots",
    ),
    (
        "cached_ranges",
        Blind,
        {"cached_ranges": lambda s: np.array([[s.num_slots - 3, 3, 3]])},
        "cached is 0, the slots say 3",
    ),
    (
        "always fragmented",
        Blind,
        {"fragmented_for": said(True)},
        "fragmented_for a row that can_allocate takes",
    ),
    ("cannot finish", Blind, {"can_finish": said(False)}, "can_finish says no in an empty pool"),
    ("retire does nothing", Blind, {"retire": said(None)}, "a retired row still counts its tokens"),
    (
        "admit_all keeps some",
        Blind,
        {
            "admit_all": lambda s, rows, counts: next(
                (v for v in map(s.admit, rows.tolist(), counts.tolist()) if v is not OK), OK
            )
        },
        "a refused admit_all leaves",
    ),
    ("forks and does not", Blind, {"forks": "shared"}, "blocks in tables"),
    ("fork does, says no", Cow, after("fork", lambda s, a, *g: False), "a refused fork changed"),
    (
        "fork forgets ends",
        Cow,
        {"fork": lambda s, p, c, ending: PagedCow.fork(s, p, c, NONE)},
        "a row that ended still holds",
    ),
    (
        "fork forgets a child",
        Cow,
        {"fork": lambda s, p, c, ending: PagedCow.fork(s, p[:1], c[:1], ending)},
        "a child has other tokens",
    ),
    ("fork answers None", Cow, after("fork", lambda s, a, *g: 0), "fork answers 0|a refused fork"),
    (
        "reference counts",
        Cow,
        {"ref_counts": lambda s: PagedCow.ref_counts(s) * 0 + 1},
        "ref_counts of blocks",
    ),
    ("copies uncounted", Cow, {"copied_tokens": said(0)}, "copied_tokens is 0, at least"),
    ("forks uncounted", Copies, {"copied_tokens": said(0)}, "copied_tokens is 0, at least"),
    ("swap_out stays", Cow, {"swap_out": said(None)}, "swap_out leaves row"),
    (
        "never swaps in",
        Cow,
        {"can_swap_in": said(NEVER)},
        "can_swap_in answers .* in an empty pool",
    ),
    (
        "takes all for alike",
        Cache,
        {"bind_content": lambda s, content: Prefix.bind_content(s, Same(content))},
        "is said to be found, and is not in its slot",
    ),
    (
        "cached is free",
        Cache,
        after(
            "free",
            lambda s, a, rows: put(s.terms, [FREE, CACHED], [s.terms[FREE] + s.terms[CACHED], 0]),
        ),
        "cached is 0, the slots say",
    ),
    ("finds less", Cache, after("lookup", lambda s, a, row: max(0, a - 3)), "advanced by another"),
    (
        "shows nothing cached",
        Cache,
        {"cached_ranges": said(np.empty((0, 3), np.int64))},
        "cached is .*, the slots say 0",
    ),
    ("reuse in words", Cache, {"reuse_distances": said("far")}, "reuse_distances answers 'far'"),
]


@pytest.mark.parametrize("broken", BROKEN, ids=lambda entry: entry[0])
def test_one_thing_that_is_wrong_is_found_and_named(
    broken: tuple[str, type, dict[str, Any], str],
) -> None:
    _, base, changes, sentence = broken
    size = changes.get("size")
    mutant = type(base.__name__, (base,), {k: v for k, v in changes.items() if k != "size"})
    with pytest.raises((AssertionError, ContractError), match=sentence):
        check_allocator(
            mutant if size is None else lambda: mutant(size), seeds=range(6), num_steps=45
        )


@pytest.mark.parametrize("factory", [Plain, lambda: Plain(1), lambda: Plain(16)])
def test_what_they_are_made_from_is_right(factory: Callable[[], Allocator]) -> None:
    """Guards the test above: it is their fault that is found."""
    check_allocator(factory, seeds=range(4))
