"""Requests of several sequences: they fork, end one by one, and move to the host and back."""

from __future__ import annotations

import random
from collections.abc import Callable

import numpy as np

from sim.allocators.base import Admission, Allocator
from sim.allocators.checked import CheckedAllocator, require
from sim.sequence import (
    FINAL_TOKENS,
    NUM_COMPUTED,
    NUM_SLOTS,
    NUM_TOKENS,
    IntArray,
    Limits,
    SequenceTable,
    new_requests,
)
from sim.testing.slots import SOURCE, Slots

NUM_REQUESTS = 40
LONGEST = 24


class Families:
    """Random steps in the life of forked requests, each checked slot by slot.

    families are the rows of each request in the pool, away those of requests on the host; all rows
    of one have as many tokens.
    """

    def __init__(self, factory: Callable[[], Allocator], num_slots: int, seed: int) -> None:
        self._rng = random.Random(seed)
        self.allocator = CheckedAllocator(factory())
        self.sequences = SequenceTable(capacity=2)
        self.allocator.bind(num_slots, self.sequences, LONGEST)
        self.families: dict[int, list[int]] = {}
        self.away: dict[int, list[int]] = {}
        lengths = [self._rng.choices(range(1, 12), k=NUM_REQUESTS) for _ in range(2)]
        prompts, outputs = np.array(lengths, np.int64)
        limits = Limits(LONGEST, outputs)
        self.requests = new_requests(np.zeros_like(prompts), prompts, outputs, limits)
        self.slots = Slots(self.allocator)
        self._texts: dict[int, IntArray] = {}
        self._num_texts = self._num_requests = self._num_copied = 0
        self.initial = self.allocator.terms.copy()

    def step(self) -> None:
        """Somebody comes, or a family writes, forks, moves or goes."""
        family = self._rng.choice(sorted(self.families)) if self.families else None
        steps: list[Callable[[int], None]] = [self.write, self.write, self.fork, self.end]
        if self.allocator.can_swap:
            steps += [self.swap_out, self.swap_out]
        if family is None or self._rng.random() < 0.3:
            self.arrive()
        else:
            self._rng.choice(steps)(family)
        if self.away and self._rng.random() < 0.1:
            self.swap_in(self._rng.choice(sorted(self.away)))
        self._look()

    def _look(self) -> None:
        self.slots.look([row for rows in self.families.values() for row in rows])
        spent, needed = self.allocator.copied_tokens(), self.slots.num_moved + self._num_copied
        self._require(spent >= needed, f"copied_tokens is {spent}, at least {needed} were copied")

    def arrive(self) -> None:
        """A request of one to three sequences, which begin alike."""
        number = self._num_requests % NUM_REQUESTS
        if number in self.families or number in self.away:
            return
        self._num_requests += 1
        row, width = self.sequences.open(self.requests, number), self._rng.randint(1, 3)
        prompt = self.sequences.rows.item(row, NUM_TOKENS)
        copies = [self.sequences.fork(row) for _ in range(width - 1)]
        if self.allocator.forks == "copied":
            verdict = self.allocator.admit_copies(row, np.array(copies, np.int64), prompt)
            copied = prompt * len(copies)
        else:
            verdict, copied = self.allocator.admit(row, prompt - self.allocator.lookup(row)), 0
            if verdict is Admission.OK and copies:
                self._fork([row] * len(copies), copies, [])
        if verdict is not Admission.OK:
            self.sequences.close_all(np.array([row, *copies][::-1]))
            return
        self.families[number] = [row, *copies]
        self._num_copied += copied
        text = self._new_text()
        for mine in self.families[number]:
            self._enter(mine, np.concatenate([text[:prompt], self._new_text()[prompt:]]))

    def _new_text(self) -> IntArray:
        self._num_texts += 1
        return self._num_texts * SOURCE + np.arange(LONGEST)

    def _enter(self, row: int, text: IntArray) -> None:
        self._texts[row] = text
        self.slots.enter(row, text, 0)

    def _leave(self, rows: list[int]) -> None:
        self.slots.leave(rows)
        self.sequences.close_all(np.array(rows, np.int64))

    def write(self, number: int) -> None:
        """All sequences of a request write a token; without memory it goes."""
        rows = self.families[number]
        cells = self.sequences.rows[rows]
        if (cells[:, NUM_COMPUTED] >= cells[:, FINAL_TOKENS] - 1).any():
            self.end(number)
            return
        self.sequences.rows[rows, NUM_TOKENS] += 1
        served = self.allocator.append(np.array(rows), np.ones(len(rows), np.int64))
        if served < len(rows):
            self.end(number)

    def end(self, number: int) -> None:
        """A request leaves with all its sequences."""
        rows = self.families.pop(number)
        self.allocator.free(np.array(rows))
        self._leave(rows)

    def fork(self, number: int) -> None:
        """Some sequences continue twice, others end, as in a beam search."""
        rows = self.families[number]
        parents = self._rng.choices(rows, k=self._rng.randint(1, 3))
        ending = self._rng.sample(rows, self._rng.randint(0, len(rows)))
        children = [self.sequences.fork(parent) for parent in parents]
        taken_over = len(set(parents) & set(ending))
        length = self.sequences.rows.item(rows[0], NUM_COMPUTED)
        if not self._fork(parents, children, ending):
            self.sequences.close_all(np.array(children[::-1]))
            return
        self.families[number] = [row for row in rows if row not in ending] + children
        if self.allocator.forks == "copied":
            self._num_copied += (len(children) - taken_over) * length
        for parent, child in zip(parents, children, strict=True):
            text = np.concatenate([self._texts[parent][:length], self._new_text()[length:]])
            self._enter(child, text)
        self._leave(ending)

    def _fork(self, parents: list[int], children: list[int], ending: list[int]) -> bool:
        groups = (np.array(rows, np.int64) for rows in (parents, children, ending))
        has_room = self.allocator.fork(*groups)
        is_bool = isinstance(has_room, bool | np.bool_)
        self._require(is_bool, f"fork answers {has_room!r}; accepted: whether there was memory")
        return has_room

    def swap_out(self, number: int) -> None:
        """All that a request holds moves to the host, if that has room."""
        rows = np.array(self.families[number])
        if not self.allocator.can_swap_out(rows):
            return
        self.allocator.swap_out(rows)
        self.away[number] = self.families.pop(number)
        self.slots.leave(self.away[number])
        for row in rows.tolist():
            held = self.sequences.rows.item(row, NUM_SLOTS)
            here, there = self.allocator.held_ranges(row), self.allocator.host_ranges(row)
            is_away = not len(here) and there[:, 1].sum() == held
            self._require(is_away, f"swap_out leaves row {row} where it was")

    def swap_in(self, number: int) -> None:
        """A request comes back, if there is room."""
        rows = np.array(self.away[number])
        verdict = self.allocator.can_swap_in(rows)
        held = self.sequences.rows[rows, NUM_SLOTS].sum()
        is_small = not self.families and 4 * held <= self.allocator.num_slots
        is_let_in = verdict is Admission.OK or not is_small
        self._require(is_let_in, f"can_swap_in answers {verdict!r} in an empty pool of {held} x 4")
        if verdict is Admission.OK:
            self.allocator.swap_in(rows)
            self.families[number] = self.away.pop(number)
            for row in self.families[number]:
                self._enter(row, self._texts[row])

    def finish(self) -> None:
        """All go, and the pool is as at first."""
        for number in list(self.families):
            self.end(number)
        for number in list(self.away):
            self.swap_in(number)
        for rows in self.away.values():
            self.allocator.drop_swapped(np.array(rows))
            self.sequences.close_all(np.array(rows))
        for number in list(self.families):
            self.end(number)
        is_whole = np.array_equal(self.initial, self.allocator.terms)
        self._require(is_whole, f"forks and swaps leave {self.allocator.usage()} behind")

    def _require(self, condition: bool, sentence: str) -> None:
        require(condition, f"{self.allocator.kind}: {sentence}")
