"""The allocator contract as a set of steps, each of which checks what it must not change."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from sim.allocators.base import Admission, Allocator
from sim.allocators.checked import CheckedAllocator, difference, require, visible_state
from sim.allocators.terms import CACHED, FREE, NUM_RECORDED
from sim.metrics.summary import COUNTERS
from sim.sequence import (
    FINAL_TOKENS,
    NUM_COMPUTED,
    NUM_REQUEST_COLUMNS,
    NUM_SLOTS,
    NUM_TOKENS,
    IntArray,
    Limits,
    SequenceTable,
    new_requests,
)
from sim.testing.beginnings import SharedBeginnings
from sim.testing.slots import Slots, tokens_of


class History:
    """Steps in the life of an allocator, taken by it and by a twin that goes the slow way.

    The twin appends row by row and iteration by iteration where the first one appends in batches
    and ahead, is asked nothing that need not be asked, and tries every second time only what
    cannot succeed; after every step both must look alike, and the slots must hold the tokens
    that were written there. running lists the rows that hold memory.
    """

    def __init__(
        self, factory: Callable[[], Allocator], num_slots: int, max_model_len: int
    ) -> None:
        self.max_model_len = max_model_len
        self.factory = factory
        self.fast, self.slow = CheckedAllocator(factory()), CheckedAllocator(factory())
        self.fast.bind(num_slots, SequenceTable(), max_model_len)
        self.slow.bind(num_slots, SequenceTable(capacity=2), max_model_len)  # it must grow
        self.unused = factory()  # what an allocator without a past says
        self.unused.bind(num_slots, SequenceTable(), max_model_len)
        self.slots = Slots(self.fast)
        self.requests = np.zeros((1, NUM_REQUEST_COLUMNS), np.int64)  # by number, from 1 on
        self.contents = SharedBeginnings(), SharedBeginnings()
        self.fast.bind_content(self.contents[0])
        self.slow.bind_content(self.contents[1])
        self.initial = self._idle_state()
        self._check_counts(is_new=True)
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
        longest = self.max_model_len
        limits = Limits(longest, lengths[3])
        self.steps.append(f"arrive(prompt {prompt}, output {output}, chunk {chunk})")
        request = new_requests(lengths[0], lengths[1], lengths[2], limits)
        self.requests = np.concatenate([self.requests, request])
        self.num_requests += 1
        number, verdicts, found = self.num_requests, [], 0
        for allocator, content in zip((self.fast, self.slow), self.contents, strict=True):
            content.begin(*alike, request=number)
            is_hopeless = bool(allocator.never_fits(request)[0])
            row = allocator.sequences.open(self.requests, number)
            if allocator is self.fast:
                self._ask(row)
            found = allocator.lookup(row)
            verdict = allocator.admit(row, min(chunk, prompt - found))
            verdicts.append((row, verdict))
            self._require(
                is_hopeless == (verdict == Admission.NEVER),
                f"never_fits says {is_hopeless} where admit answers {verdict!r}",
            )
            if verdict != Admission.OK:
                self._require(
                    verdict == Admission.NEVER or len(self.running) > 0,
                    "an empty pool answers LATER, so the request would wait for ever",
                )
                if verdict == Admission.NEVER and allocator is self.fast:
                    allocator.refusal(row)
                allocator.sequences.close(row)
        self._require(verdicts[0] == verdicts[1], f"twins answer {verdicts}")
        self._require(
            bool(self.unused.never_fits(request)[0]) == (verdict == Admission.NEVER),
            f"never_fits depends on who is in the pool: admit answers {verdict!r}",
        )
        if verdict == Admission.OK:
            self.running.append(row)
            self.slots.enter(row, tokens_of(self.contents[0].runs(number, prompt, longest)), found)
        self._end_iteration(self.running)
        self.compare()
        return verdict

    def arrive_together(self, prompts: list[int]) -> Admission:
        """Requests that share nothing ask for memory for all of their prompts, or for none."""
        self.steps.append(f"arrive_together(prompts {prompts})")
        first = len(self.requests)
        columns = np.zeros_like(prompts), np.array(prompts), np.ones_like(prompts)
        limits = Limits(self.max_model_len, columns[2])
        self.requests = np.concatenate([self.requests, new_requests(*columns, limits)])
        self.num_requests += len(prompts)
        answers = []
        for allocator, content in zip((self.fast, self.slow), self.contents, strict=True):
            rows = []
            for number in range(first, len(self.requests)):
                content.begin(0, 0, request=number)
                rows.append(allocator.sequences.open(self.requests, number))
            # where nothing forks, it may give back in another order what it took
            asked = allocator.inner if allocator.forks == "no" else allocator
            verdict = asked.admit_all(np.array(rows), np.array(prompts))
            answers.append((rows, verdict))
            if verdict != Admission.OK:
                held = allocator.sequences.rows[rows][:, [NUM_COMPUTED, NUM_SLOTS]]
                self._require(not held.any(), "a refused admit_all leaves rows with memory")
                allocator.sequences.close_all(np.array(rows[::-1]))
        self._require(answers[0] == answers[1], f"twins answer {answers} to admit_all")
        if verdict == Admission.OK:
            self.running += rows
            for number, row in enumerate(rows, first):
                text = self.contents[0].runs(number, prompts[number - first], self.max_model_len)
                self.slots.enter(row, tokens_of(text), 0)
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
        self._require(
            served == len(rows) or counts[served] > 0, "an append of no tokens finds no memory"
        )
        if self.fast.evicts_by_batch:
            self.slow.append(*batch)
        else:
            tried = min(served + len(self.steps) % 2, len(rows))
            self._append_singly(rows[:tried], counts, served)
        self._end_iteration(rows)
        self.compare()
        return served

    def _append_singly(self, rows: list[int], counts: list[int], served: int) -> None:
        """The twin appends row by row, which must succeed where the batch was served."""
        for i in range(len(rows)):
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
        is_done = cells.item(NUM_COMPUTED) == 0
        require(is_done, f"{kind}: a retired row still counts its tokens")
        self.compare()

    def free(self, rows: list[int]) -> None:
        """Sequences end and leave the tables."""
        self.steps.append(f"free(rows {rows})")
        for allocator in (self.fast, self.slow):
            allocator.free(np.array(rows, np.int64))
            for row in rows:
                allocator.sequences.close(row)
        self.running = [row for row in self.running if row not in rows]
        self.slots.leave(rows)
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
        self.slots.look(self.running)
        for row in self.running:
            rows = [allocator.sequences.rows[row] for allocator in (self.fast, self.slow)]
            require(
                np.array_equal(rows[0], rows[1]),
                f"{kind}: row {row} differs between batch and single",
            )
            slots = [allocator.held_ranges(row) for allocator in (self.fast, self.slow)]
            require(
                np.array_equal(slots[0], slots[1]),
                f"{kind}: row {row} holds other slots than its twin",
            )
            single = np.array([row])
            ahead = min(9, self.room(row))
            promises = [twin.can_append(single, ahead) for twin in (self.fast, self.slow)]
            require(
                promises[0] == promises[1],
                f"{kind}: can_append of row {row} promises {promises[0]}, its twin {promises[1]}: "
                "a question, or what failed, has changed something",
            )

    def _ask(self, waiting: int) -> None:
        """Ask the first of the twins what there is to ask, of a row that waits and all others."""
        running = np.array(self.running, np.int64)
        is_lost = self.fast.fragmented_for(waiting)
        verdict = self.fast.can_allocate(waiting)
        self._require(
            not is_lost or verdict != Admission.OK, "fragmented_for a row that can_allocate takes"
        )
        can_finish = self.fast.can_finish(waiting, running)
        may_outgrow = bool(self.fast.never_finishes(self.requests[-1:])[0])
        self._require(
            can_finish or may_outgrow or len(self.running) > 0 or verdict != Admission.OK,
            "can_finish says no in an empty pool, and never_finishes does not",
        )
        for row in self.running:
            self.fast.held_ranges(row)
        self.fast.table_entries(running)
        self.fast.free_ranges()
        self.fast.cached_ranges()
        self._check_counts()

    def _check_counts(self, is_new: bool = False) -> None:
        """What is counted is counted from 0 on, and has a column in the summary."""
        counts = self.fast.counters()
        unknown = sorted(counts.keys() - set(COUNTERS))
        self._require(not unknown, f"counters says {unknown}; accepted: {', '.join(COUNTERS)}")
        copied = self.fast.copied_tokens()
        self._require(
            not is_new or not any([copied, *counts.values()]),
            f"counters and copied_tokens do not begin with 0, but {counts} and {copied}",
        )
        moved = 0 if is_new else self.slots.num_moved
        self._require(copied >= moved, f"copied_tokens is {copied}, and {moved} are elsewhere now")
        self.fast.reuse_distances()

    def _require(self, condition: bool, sentence: str) -> None:
        require(condition, f"{self.fast.kind}: {sentence}")

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
