"""Checks for allocators: one that verifies every operation, and a suite for plug-ins.

`CheckedAllocator` stands in for the allocator it holds, also inside the engine. `History` is the
contract as a set of steps; `check_allocator` takes them at random, with fixed seeds.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable, Iterable
from typing import Any, ClassVar, TypeVar

import numpy as np

from sim.allocators.base import (
    TOKEN_STATES,
    Admission,
    Allocator,
    BoolArray,
    ConservationError,
    KVUsage,
)
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

Answer = TypeVar("Answer")


def require(condition: bool, sentence: str) -> None:
    """Raise ConservationError with the sentence unless the condition holds."""
    if not condition:
        raise ConservationError(sentence)


def visible_state(allocator: Allocator) -> dict[str, IntArray]:
    """The terms and, where the allocator shows them, its free blocks and holes in their order."""
    state = {"terms": allocator.terms.copy()}
    for name in ("free_list", "holes"):
        method = getattr(allocator, name, None)
        if method is not None:
            state[name] = method()
    return state


def difference(before: dict[str, IntArray], after: dict[str, IntArray]) -> str:
    """The names of what differs between two states; empty if nothing does."""
    return ", ".join(name for name in before if not np.array_equal(before[name], after[name]))


class CheckedAllocator(Allocator):
    """Delegates to another allocator and raises ConservationError when it breaks the contract.

    Every attribute that is not part of the contract is the other allocator's.
    """

    kind: ClassVar[str] = "checked"

    def __init__(self, inner: Allocator) -> None:
        self.inner = inner
        vars(self).update(kind=inner.kind, needs=inner.needs)

    def __getattr__(self, name: str) -> Any:
        if name == "inner":
            raise AttributeError(name)
        return getattr(self.inner, name)

    def bind(self, num_slots: int, sequences: SequenceTable, max_model_len: int) -> None:
        self.inner.bind(num_slots, sequences, max_model_len)
        self._check_now("bind")

    def can_allocate(self, row: int) -> Admission:
        return self._ask("can_allocate", lambda: self.inner.can_allocate(row))

    def can_append(self, rows: IntArray, num_iterations: int) -> int:
        answer = self._ask("can_append", lambda: self.inner.can_append(rows, num_iterations))
        self._require(
            0 <= answer <= num_iterations, f"can_append answers {answer} of {num_iterations}"
        )
        return answer

    def never_fits(self, requests: IntArray) -> BoolArray:
        return self._ask("never_fits", lambda: self.inner.never_fits(requests), rows=False)

    def fragmented_for(self, row: int) -> bool:
        return self._ask("fragmented_for", lambda: self.inner.fragmented_for(row))

    def refusal(self, row: int) -> str:
        return self.inner.refusal(row)

    def admit(self, row: int, count: int) -> Admission:
        expected = self.can_allocate(row)
        before, rows_before = visible_state(self.inner), self.sequences.rows.copy()
        verdict = self.inner.admit(row, count)
        self._require(verdict == expected, f"admit answers {verdict!r} after {expected!r}")
        if verdict == Admission.OK:
            self._require_advance(rows_before, np.array([row]), np.array([count]))
            self._check_now("admit")
        else:
            self._require_unchanged("a refused admit", before, rows_before)
        return verdict

    def append(self, rows: IntArray, counts: IntArray) -> int:
        before, rows_before = visible_state(self.inner), self.sequences.rows.copy()
        served = self.inner.append(rows, counts)
        self._require(0 <= served <= len(rows), f"append served {served} of {len(rows)} rows")
        advance = counts.copy()
        advance[served:] = 0
        self._require_advance(rows_before, rows, advance)
        if served < len(rows):
            late = rows[served:]
            is_same = np.array_equal(self.sequences.rows[late], rows_before[late])
            self._require(is_same, "append changed a row that it did not serve")
        if served == 0:
            self._require_unchanged("an append that served nobody", before, rows_before)
        self._check_now("append")
        return served

    def append_ahead(self, rows: IntArray, num_iterations: int, log: IntArray) -> None:
        rows_before = self.sequences.rows.copy()
        self.inner.append_ahead(rows, num_iterations, log)
        self._require_advance(rows_before, rows, np.full(len(rows), num_iterations))
        self._require_totals(log[:num_iterations], "append_ahead")
        if num_iterations:
            is_current = np.array_equal(log[num_iterations - 1], self.terms)
            self._require(is_current, "append_ahead logs other terms than it leaves")
        self._check_now("append_ahead")

    def free(self, rows: IntArray) -> None:
        self.inner.free(rows)
        held = self.sequences.rows[rows][:, [NUM_COMPUTED, NUM_SLOTS]]
        self._require(not held.any(), "a freed row still holds memory")
        self._check_now("free")

    def held_ranges(self, row: int) -> IntArray:
        return self.inner.held_ranges(row)

    @property
    def num_blocks(self) -> int | None:
        return self.inner.num_blocks

    def usage(self) -> KVUsage:
        return self.inner.usage()

    def check(self, rows: IntArray) -> None:
        self.inner.check(rows)
        self._require_totals(self.terms[np.newaxis], "check")

    def _check_now(self, operation: str) -> None:
        self._require_totals(self.terms[np.newaxis], operation)
        self.inner.check(np.flatnonzero(self.sequences.rows[:, NUM_SLOTS]))

    def _require(self, condition: bool, sentence: str) -> None:
        require(condition, f"{self.kind}: {sentence}")

    def _require_totals(self, log: IntArray, operation: str) -> None:
        """No term is negative and all add to the pool, or to what unlimited memory has written."""
        self._require(not (log < 0).any(), f"a term is negative after {operation}")
        totals = np.maximum(self.num_slots, log[:, TOKEN_STATES])
        are_right = np.array_equal(log.sum(axis=1), totals)
        self._require(are_right, f"the terms do not add to the pool after {operation}")

    def _require_advance(self, before: IntArray, rows: IntArray, counts: IntArray) -> None:
        """Each row has computed so many more tokens, and no other row has changed."""
        now = self.sequences.rows
        written = now[rows, NUM_COMPUTED] - before[rows, NUM_COMPUTED]
        self._require(np.array_equal(written, counts), "num_computed advanced by another count")
        others = np.ones(len(now), np.bool_)
        others[rows] = False
        self._require(np.array_equal(now[others], before[others]), "another row has changed")

    def _require_unchanged(
        self, operation: str, before: dict[str, IntArray], rows: IntArray | None
    ) -> None:
        changed = difference(before, visible_state(self.inner))
        self._require(not changed, f"{operation} changed {changed}")
        if rows is not None:
            is_same = np.array_equal(self.sequences.rows, rows)
            self._require(is_same, f"{operation} changed the sequences")

    def _ask(self, name: str, question: Callable[[], Answer], rows: bool = True) -> Answer:
        """The answer to a question, which must change nothing."""
        before = visible_state(self.inner)
        rows_before = self.sequences.rows.copy() if rows else None
        answer = question()
        self._require_unchanged(name, before, rows_before)
        return answer


class History:
    """Steps in the life of an allocator, taken by it and by a twin that goes the slow way.

    The twin appends row by row and iteration by iteration where the first one appends in batches
    and ahead; after every step both must look alike. running lists the rows that hold memory.
    """

    def __init__(
        self, factory: Callable[[], Allocator], num_slots: int, max_model_len: int
    ) -> None:
        self.max_model_len = max_model_len
        self.fast, self.slow = CheckedAllocator(factory()), CheckedAllocator(factory())
        for allocator in (self.fast, self.slow):
            allocator.bind(num_slots, SequenceTable(), max_model_len)
        self.initial = visible_state(self.fast)
        for name in self.initial.keys() - {"terms"}:
            self.initial[name] = np.sort(self.initial[name], axis=0)
        self.running: list[int] = []

    def room(self, row: int) -> int:
        """Tokens that the row has still to write: the last one's KV never is."""
        return self.fast.sequences.rows.item(row, FINAL_TOKENS) - 1 - self._computed(row)

    def arrive(self, prompt: int, output: int, extra: int, chunk: int) -> Admission:
        """A request asks for memory and, if there is some, writes chunk tokens of its prompt."""
        lengths = [np.array([n], np.int64) for n in (0, prompt, output, output + extra)]
        limits = Limits(self.max_model_len, lengths[3])
        request = new_requests(lengths[0], lengths[1], lengths[2], limits)
        verdicts = []
        for allocator in (self.fast, self.slow):
            is_hopeless = bool(allocator.never_fits(request)[0])
            row = allocator.sequences.open(request, 0)
            verdict = allocator.admit(row, chunk)
            verdicts.append((row, verdict))
            kind = allocator.kind
            require(
                is_hopeless == (verdict == Admission.NEVER),
                f"{kind}: never_fits says {is_hopeless} where admit answers {verdict!r}",
            )
            if verdict != Admission.OK:
                require(
                    verdict == Admission.NEVER or len(self.running) > 0,
                    f"{kind}: an empty pool answers LATER, so the request would wait for ever",
                )
                if verdict == Admission.NEVER:
                    require(allocator.refusal(row) != "", f"{kind}: a refusal without a reason")
                allocator.sequences.close(row)
        require(verdicts[0] == verdicts[1], f"{self.fast.kind}: twins answer {verdicts}")
        if verdict == Admission.OK:
            self.running.append(row)
        self.compare()
        return verdict

    def append(self, rows: list[int], counts: list[int]) -> int:
        """A batch in one call, and row by row; return how many rows were served."""
        counts = [min(count, self.room(row)) for row, count in zip(rows, counts, strict=True)]
        served = self.fast.append(np.array(rows, np.int64), np.array(counts, np.int64))
        for i in range(min(served + 1, len(rows))):
            single = self.slow.append(np.array(rows[i : i + 1]), np.array(counts[i : i + 1]))
            require(
                single == (i < served),
                f"{self.fast.kind}: a batch serves {served} rows, the twin's row {i}: {single}",
            )
        self._grow(rows)
        self.compare()
        return served

    def decode(self, rows: list[int], num_iterations: int) -> int:
        """Iterations of one token a row, ahead and one by one; return how many succeeded."""
        array = np.array(rows, np.int64)
        num_iterations = min([num_iterations, *(self.room(row) for row in rows)])
        promised = self.fast.can_append(array, num_iterations)
        log = np.full((promised, len(self.fast.terms)), -1, np.int64)
        self.fast.append_ahead(array, promised, log)
        ones = np.ones(len(rows), np.int64)
        for i in range(promised):
            require(
                self.slow.append(array, ones) == len(rows),
                f"{self.fast.kind}: can_append promised {promised}, iteration {i} fails",
            )
            require(
                np.array_equal(log[i], self.slow.terms),
                f"{self.fast.kind}: append_ahead logs {log[i]}, iteration {i} {self.slow.terms}",
            )
        self.compare()
        if promised < num_iterations:
            require(
                self.append(rows, [1] * len(rows)) < len(rows),
                f"{self.fast.kind}: can_append promised {promised}, one more succeeds",
            )
        self._grow(rows)
        return promised

    def free(self, rows: list[int]) -> None:
        """Sequences end and leave the tables."""
        for allocator in (self.fast, self.slow):
            allocator.free(np.array(rows, np.int64))
            for row in rows:
                allocator.sequences.close(row)
        self.running = [row for row in self.running if row not in rows]
        self.compare()

    def free_everything(self) -> None:
        """All end: terms and holes are as at first, and every block is free once."""
        self.free(list(self.running))
        final = visible_state(self.fast)
        for name in final.keys() - {"terms"}:
            final[name] = np.sort(final[name], axis=0)
        changed = difference(self.initial, final)
        require(not changed, f"{self.fast.kind}: freeing everything does not restore {changed}")

    def compare(self) -> None:
        """Both allocators look alike: state, sequences and block tables."""
        kind = self.fast.kind
        unlike = difference(visible_state(self.fast), visible_state(self.slow))
        require(not unlike, f"{kind}: batch and single operations differ in {unlike}")
        for row in self.running:
            rows = [allocator.sequences.rows[row] for allocator in (self.fast, self.slow)]
            require(
                np.array_equal(rows[0], rows[1]),
                f"{kind}: row {row} differs between batch and single",
            )
            with contextlib.suppress(NotImplementedError):
                slots = [allocator.held_ranges(row) for allocator in (self.fast, self.slow)]
                require(
                    np.array_equal(slots[0], slots[1]),
                    f"{kind}: row {row} holds other slots than its twin",
                )

    def _computed(self, row: int) -> int:
        return self.fast.sequences.rows.item(row, NUM_COMPUTED)

    def _grow(self, rows: Iterable[int]) -> None:
        """A sequence has sampled every token that it has written beyond its prompt."""
        for allocator in (self.fast, self.slow):
            for row in rows:
                cells = allocator.sequences.rows[row]
                cells[NUM_TOKENS] = max(cells[NUM_TOKENS], cells[NUM_COMPUTED])


def check_allocator(
    factory: Callable[[], Allocator], seeds: Iterable[int] = range(20), num_steps: int = 60
) -> None:
    """Run the allocator contract over random histories.

    factory makes an allocator that is not bound yet. Raises ConservationError with a sentence.
    """
    for seed in seeds:
        rng = random.Random(seed)
        history = History(factory, rng.choice([20, 61, 150, 400]), rng.choice([16, 40]))
        for _ in range(num_steps):
            random_step(history, rng)
        history.free_everything()


def random_step(history: History, rng: random.Random) -> None:
    """One step: half of them arrivals."""
    rows = [row for row in history.running if history.room(row) > 0 and rng.random() < 0.8]
    step = rng.randrange(6)
    if step < 3:
        prompt = rng.randint(1, history.max_model_len - 1)
        if rng.random() < 0.5:
            prompt = min(prompt, 3)
        history.arrive(prompt, rng.randint(1, 20), rng.randint(0, 9), rng.randint(1, prompt))
    elif step == 3 and rows:
        history.append(rows, [rng.randint(0, 9) for _ in rows])
    elif step == 4 and rows:
        history.decode(rows, rng.randint(1, 20))
    elif step == 5 and history.running:
        count = rng.randint(1, len(history.running))
        history.free(rng.sample(history.running, count))
