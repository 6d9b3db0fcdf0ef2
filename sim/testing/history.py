"""The allocator contract as a set of steps, each of which checks what it must not change."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from sim.allocators.base import Admission, Allocator
from sim.allocators.checked import CheckedAllocator, difference, require, visible_state
from sim.allocators.terms import CACHED, FREE, NUM_RECORDED
from sim.sequence import (
    FINAL_TOKENS,
    NUM_COMPUTED,
    NUM_SLOTS,
    NUM_TOKENS,
    REQUEST,
    IntArray,
    Limits,
    SequenceTable,
    new_requests,
)
from workloads.content import Run
from workloads.sequences import SequenceContent


class SharedBeginnings(SequenceContent):
    """Prompts that begin alike, for some tokens, and outputs that continue each other's."""

    def __init__(self) -> None:
        super().__init__()
        self.begin(0, 0)

    def begin(self, source: int, alike: int) -> None:
        """The next sequence has its first tokens, alike of them, from the source."""
        self._source, self._alike, self._own = source, alike, getattr(self, "_own", 1000) + 1

    def runs(self, request: int, prompt_tokens: int, num_tokens: int) -> list[Run]:
        alike = min(self._alike, num_tokens)
        rest = [(self._own, 0, num_tokens - alike)] if num_tokens > alike else []
        return [(self._source + 1, 0, alike), *rest] if alike else rest


def _sum_of(ranges: object) -> int:
    """Slots of ranges as held_ranges gives them, (first, count); -1 if it gives something else."""
    is_table = isinstance(ranges, np.ndarray) and ranges.ndim == 2 and ranges.shape[1] == 2
    return int(ranges[:, 1].sum()) if is_table else -1  # type: ignore[index]


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
        self.contents = SharedBeginnings(), SharedBeginnings()
        self.fast.bind_content(self.contents[0])
        self.slow.bind_content(self.contents[1])
        self.initial = self._idle_state()
        self.running: list[int] = []
        self.steps: list[str] = []  # what has been done, in words
        self.num_requests = 0

    def room(self, row: int) -> int:
        """Tokens that the row has still to write: the last one's KV never is."""
        return self.fast.sequences.rows.item(row, FINAL_TOKENS) - 1 - self._computed(row)

    def arrive(
        self, prompt: int, output: int, extra: int, chunk: int, alike: tuple[int, int] = (0, 0)
    ) -> Admission:
        """A request asks for memory and, if there is some, writes chunk tokens of its prompt.

        alike says with which others it begins, and for how many tokens. What the allocator
        finds of the prompt needs no writing.
        """
        lengths = [np.array([n], np.int64) for n in (0, prompt, output, output + extra)]
        limits = Limits(self.max_model_len, lengths[3])
        self.steps.append(f"arrive(prompt {prompt}, output {output}, chunk {chunk})")
        request = new_requests(lengths[0], lengths[1], lengths[2], limits)
        verdicts = []
        self.num_requests += 1
        for allocator, content in zip((self.fast, self.slow), self.contents, strict=True):
            is_hopeless = bool(allocator.never_fits(request)[0])
            content.begin(*alike)
            row = allocator.sequences.open(request, 0)
            allocator.sequences.rows[row, REQUEST] = self.num_requests
            verdict = allocator.admit(row, min(chunk, prompt - allocator.lookup(row)))
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
                    allocator.refusal(row)
                allocator.sequences.close(row)
        require(verdicts[0] == verdicts[1], f"{self.fast.kind}: twins answer {verdicts}")
        if verdict == Admission.OK:
            self.running.append(row)
        self._end_iteration(self.running)
        self.compare()
        return verdict

    def append(self, rows: list[int], counts: list[int]) -> int:
        """A batch in one call, and row by row; return how many rows were served."""
        counts = [min(count, self.room(row)) for row, count in zip(rows, counts, strict=True)]
        self.steps.append(f"append({counts} to rows {rows})")
        self._sample(rows, counts)
        batch = np.array(rows, np.int64), np.array(counts, np.int64)
        served = self.fast.append(*batch)
        if self.fast.evicts_by_batch:
            self.slow.append(*batch)
        else:
            self._append_singly(rows, counts, served)
        self._end_iteration(rows)
        self.compare()
        return served

    def _append_singly(self, rows: list[int], counts: list[int], served: int) -> None:
        """The twin appends row by row, as many rows as were served and no more."""
        for i in range(min(served + 1, len(rows))):
            single = self.slow.append(np.array(rows[i : i + 1]), np.array(counts[i : i + 1]))
            require(
                single == (i < served),
                f"{self.fast.kind}: a batch serves {served} rows, the twin's row {i}: {single}",
            )

    def decode(self, rows: list[int], num_iterations: int) -> int:
        """Iterations of one token a row, ahead and one by one; return how many succeeded."""
        array = np.array(rows, np.int64)
        num_iterations = min([num_iterations, *(self.room(row) for row in rows)])
        self.steps.append(f"decode({num_iterations} iterations of rows {rows})")
        promised = self.fast.can_append(array, num_iterations)
        self._sample(rows, [1] * len(rows))
        log = np.full((promised, NUM_RECORDED), -1, np.int64)
        self.fast.append_ahead(array, promised, log)
        ones = np.ones(len(rows), np.int64)
        for i in range(promised):
            self._end_iteration(rows, (self.slow,))
            self._sample(rows, ones.tolist(), (self.slow,))
            require(
                self.slow.append(array, ones) == len(rows),
                f"{self.fast.kind}: can_append promised {promised}, iteration {i} fails",
            )
            require(
                np.array_equal(log[i], self.slow.recorded),
                f"{self.fast.kind}: append_ahead logs {log[i]}, iteration {i} {self.slow.recorded}",
            )
        self._sample(rows, [0] * len(rows))
        self._end_iteration(rows)
        self.compare()
        if promised < num_iterations:
            require(
                self.append(rows, [1] * len(rows)) < len(rows),
                f"{self.fast.kind}: can_append promised {promised}, one more succeeds",
            )
        return promised

    def _end_iteration(
        self, rows: list[int], allocators: tuple[Allocator, ...] | None = None
    ) -> None:
        """What rows have computed may be found."""
        array = np.array(rows, np.int64)
        for allocator in allocators or (self.fast, self.slow):
            if allocator.caches_computed:
                allocator.cache_up_to(array, allocator.sequences.rows[array, NUM_COMPUTED])

    def retire(self, row: int) -> None:
        """A sequence is done, but stays with all that it holds, which is of no use now."""
        self.steps.append(f"retire(row {row})")
        held = self.fast.sequences.rows.item(row, NUM_SLOTS)
        before = self.fast.usage()
        for allocator in (self.fast, self.slow):
            allocator.retire(row)
        after, cells = self.fast.usage(), self.fast.sequences.rows[row]
        kind = self.fast.kind
        require(cells.item(NUM_SLOTS) == held, f"{kind}: a retired row holds other memory")
        same = sum(before) == sum(after) and before[3:] == after[3:]
        require(same, f"{kind}: retire moved {before} to {after}; only internal may grow")
        self.compare()

    def free(self, rows: list[int]) -> None:
        """Sequences end and leave the tables."""
        self.steps.append(f"free(rows {rows})")
        for allocator in (self.fast, self.slow):
            allocator.free(np.array(rows, np.int64))
            for row in rows:
                allocator.sequences.close(row)
        self.running = [row for row in self.running if row not in rows]
        self.compare()

    def free_everything(self) -> None:
        """All end: terms and holes are as at first, and every block is free once.

        What stays findable is free in this sense.
        """
        self.free(list(self.running))
        changed = difference(self.initial, self._idle_state())
        require(not changed, f"{self.fast.kind}: freeing everything does not restore {changed}")

    def bind_again(self) -> None:
        """Given a pool anew, an allocator has forgotten the sequences of the old one."""
        self.steps.append("bind again")
        self.slow.bind(self.fast.num_slots, SequenceTable(), self.max_model_len)
        terms, begun = self.slow.terms, self.initial["terms"]
        same = np.array_equal(terms, begun)
        require(
            same, f"{self.fast.kind}: a second bind begins with {terms}, the first with {begun}"
        )

    def _idle_state(self) -> dict[str, IntArray]:
        """What an allocator without sequences looks like, whatever it still caches."""
        state = visible_state(self.fast)
        state.pop("findable", None)
        for name in state.keys() - {"terms"}:
            state[name] = np.sort(state[name], axis=0)
        state["terms"][FREE] += state["terms"][CACHED]
        state["terms"][CACHED] = 0
        return state

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
            slots = [allocator.held_ranges(row) for allocator in (self.fast, self.slow)]
            require(
                not self.fast.shows_slots or _sum_of(slots[0]) == rows[0].item(NUM_SLOTS),
                f"{kind}: held_ranges of row {row} are not its {rows[0].item(NUM_SLOTS)} slots",
            )
            require(
                np.array_equal(slots[0], slots[1]),
                f"{kind}: row {row} holds other slots than its twin",
            )

    def _computed(self, row: int) -> int:
        return self.fast.sequences.rows.item(row, NUM_COMPUTED)

    def _sample(
        self, rows: list[int], counts: list[int], allocators: tuple[Allocator, ...] | None = None
    ) -> None:
        """A sequence knows all the tokens that it has written, and counts more."""
        for allocator in allocators or (self.fast, self.slow):
            for row, count in zip(rows, counts, strict=True):
                cells = allocator.sequences.rows[row]
                cells[NUM_TOKENS] = max(cells[NUM_TOKENS], cells[NUM_COMPUTED] + count)
