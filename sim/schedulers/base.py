"""The scheduler contract: which sequences compute how many tokens in the next iteration.

A scheduler is plain Python that makes a few batch calls an iteration. It owns the waiting queue
and the running list; it has no clock: the engine tells it the time. Its constructor parameters
are its configuration; `bind` gives it the requests and the memory.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

import numpy as np

from sim.allocators.base import Allocator, BoolArray
from sim.batch import empty_batch, sample_tokens
from sim.branching import Branches
from sim.gaps import new_gaps
from sim.jit import direct
from sim.schedulers.tally import Tally
from sim.sequence import (
    FAILED,
    FINISH_NS,
    NUM_COMPUTED,
    NUM_GENERATED,
    NUM_TOKENS,
    PROMPT_TOKENS,
    REJECTED,
    REQUEST,
    STATUS,
    IntArray,
    SequenceTable,
)

# why a request is still waiting after schedule()
NOTHING, MEMORY, MAX_NUM_SEQS, TOKEN_BUDGET = range(4)
BATCH = 4  # until it has ended
PACE = 5  # until others have decoded for a while, or more requests wait

# why a request that ran fails
OUTGREW = "grew beyond the memory of the whole pool while running alone"


def check_counts(**values: int | None) -> None:
    """Refuse limits below 1; None is no limit. Raises ValueError "name: …"."""
    check_least(*((name, value, 1) for name, value in values.items()))


def check_least(*knobs: tuple[str, float | None, int]) -> None:
    """Refuse a (name, value, least) below its least; None is no limit. Raises ValueError."""
    for name, value, least in knobs:
        if value is not None and value < least:
            raise ValueError(f"{name}: must be at least {least}, got {value}")


class Scheduler(ABC):
    """Base of all schedulers.

    To write one, define `kind`, take the configuration in the constructor (raise ValueError
    with a message that starts with the parameter's name), and implement `add`, `schedule`
    and `head_row`, keeping num_waiting current. running[:num_running] are the rows in service,
    in order; batch describes the iteration that schedule() has made and, after complete(), the
    part of the next one that consists of the sequences that go on decoding; blocked says why a
    request waits; padding are the rows of a static batch that are done but still in service.
    """

    kind: ClassVar[str]
    needs: frozenset[str] = frozenset()
    uses: frozenset[str] = frozenset()
    reorders_queue: bool = False
    """Whether an arrival can overtake others that wait, so that every arrival must be seen.

    Or whether it can decide, now, that others are admitted.
    """
    admits_by_max_tokens: bool = False
    """Whether it must be told how long outputs may become, which no trace's output is."""

    minds_shorter_hits: bool = True
    """Whether it matters to a request refused for memory that less of it is found than before.

    It then has more to compute, which a token budget may not allow. Not where prompts are cut.
    """

    def bind_branches(self, branches: Branches) -> None:  # noqa: B027 - most know no branches
        """Take what says how requests fork, before `bind`; without, none does."""

    def objection(self, allocator: Allocator) -> str:
        """Why it cannot run with an allocator, before that has a pool; empty if it can.

        A sentence, after a parameter's name and a colon where one of its own is to blame.
        """
        return ""

    def bind(self, requests: IntArray, sequences: SequenceTable, allocator: Allocator) -> None:
        """Take the requests of a run, the table of its sequences and its memory.

        Raises ValueError if there is an objection to the allocator.
        """
        objection = self.objection(allocator)
        if objection:
            raise ValueError(objection)
        self.requests = requests
        self.sequences = sequences
        self.allocator = allocator
        self.reasons: dict[int, str] = {}
        self._make_places(64)
        self.num_running = 0
        self.padding: list[int] = []
        self.notes_ends = False  # whether the engine wants to know which requests end
        self.ended: list[int] = []
        self.num_waiting = 0  # preempted requests included
        self.batch = empty_batch()
        self.blocked = NOTHING
        self.gaps = new_gaps()
        self.tally = Tally(allocator.caches_prefixes)
        self.num_finished = 0
        self.num_preemptions = 0
        before = sequences.rows, requests, self.running, 0, self._finished
        self._sample_tokens = direct(
            sample_tokens, *before, np.zeros(2, np.int64), 1, self.gaps, self.batch
        )

    @abstractmethod
    def add(self, request: int) -> None:
        """Queue a request that has arrived, and that `never_fits` did not rule out."""

    @abstractmethod
    def schedule(self, now_ns: int) -> bool:
        """Make the next iteration and write its tokens; False if there is nothing to compute."""

    def widths(self) -> IntArray:
        """How many sequences each request runs at once: int64, one a request."""
        return np.broadcast_to(np.int64(1), len(self.requests))

    @property
    def num_in_service(self) -> int:
        """Requests that run or, in a static batch, are done but still take part."""
        return self.num_running + len(self.padding)

    @property
    @abstractmethod
    def head_row(self) -> int | None:
        """The row of the request that schedule() refused for lack of memory; None without one."""

    def swapped(self) -> dict[int, list[int]]:
        """The requests that are on the host, and their rows."""
        return {}

    def never_fits(self, requests: IntArray) -> BoolArray:
        """Which requests of a run could not be served even by an idle engine: bool, one a request.

        Of all requests at once, after `bind`: asked for each, the time would grow with the square.
        """
        too_long = requests[:, PROMPT_TOKENS] >= self.allocator.max_model_len
        return too_long | self.allocator.never_fits(requests)

    def refusal(self, request: int) -> str:
        """Why never_fits rules a request out: the end of a sentence about it. Asked of each."""
        prompt, limit = self.requests.item(request, PROMPT_TOKENS), self.allocator.max_model_len
        if prompt >= limit:
            return f"has a prompt of {prompt} tokens, max_model_len is {limit}"
        row = self.sequences.open(self.requests, request)
        reason = self.allocator.refusal(row)
        self.sequences.close(row)
        return reason

    def counters(self) -> dict[str, int]:
        """Counts for the summary; which ones there are, sim.metrics.summary says."""
        return {}

    @property
    def is_steady(self) -> bool:
        """Whether schedule() would only let every running sequence decode, memory permitting.

        Then nobody waits and batch describes the iteration already.
        """
        return False

    def max_sleep(self) -> int:
        """After schedule(): how many more iterations would be decided just like this one.

        The iterations meant are those in which every running sequence decodes one token, none
        finishes before the last, memory suffices, and no waiting request can be admitted unless
        something else happens. 0 means: take one iteration, then schedule again.
        """
        return 0

    def complete(self, boundaries: IntArray, num_iterations: int) -> None:
        """End the iterations between boundaries: sample tokens, free what has finished.

        All iterations after the first were found by `max_sleep`; their tokens are appended
        already.
        """
        if self.allocator.caches_computed:
            self._let_find()
        num_finished = self._sample(boundaries, num_iterations)
        if num_finished:
            self._leave(self._finished[:num_finished])

    def _sample(self, boundaries: IntArray, num_iterations: int) -> int:
        """Sample the tokens of iterations; how many rows have ended, which run no more."""
        num_finished = self._sample_tokens(
            self.sequences.rows,
            self.requests,
            self.running,
            self.num_running,
            self._finished,
            boundaries,
            num_iterations,
            self.gaps,
            self.batch,
        )
        self.num_running -= num_finished
        return num_finished

    def _let_find(self) -> None:
        """What the running sequences have computed may be found from now on."""
        if self.allocator.caches_computed:
            rows = self.running[: self.num_running]
            self.allocator.cache_up_to(rows, self.sequences.rows[rows, NUM_COMPUTED])

    def _leave(self, rows: IntArray) -> None:
        """Rows have finished, each a request: free what they hold."""
        self.num_finished += len(rows)
        if self.notes_ends:
            self.ended += self.sequences.rows[rows, REQUEST].tolist()
        self.allocator.free(rows)
        self.sequences.close_all(rows)

    def run_row(self, row: int) -> None:
        """Append a row to the running list."""
        num_places = len(self.running)
        if self.num_running == num_places:
            running = self.running
            self._make_places(2 * num_places)
            self.running[:num_places] = running
        self.running[self.num_running] = row
        self.num_running += 1

    def _make_places(self, num_places: int) -> None:
        """Make an empty running list for so many rows, and what is as long as it is."""
        self.running: IntArray = np.zeros(num_places, np.int64)
        self._finished: IntArray = np.zeros(num_places, np.int64)
        self._ones: IntArray = np.ones(num_places, np.int64)  # a token for each row

    def reject(self, request: int, reason: str, now_ns: int) -> None:
        """End a request that was never admitted."""
        self._end(request, REJECTED, reason, now_ns)

    def fail(self, row: int, reason: str, now_ns: int) -> None:
        """End a request that has run and cannot go on. The row must hold no memory."""
        sequences = self.sequences.rows
        request = sequences.item(row, REQUEST)
        generated = sequences.item(row, NUM_TOKENS) - sequences.item(row, PROMPT_TOKENS)
        self.requests[request, NUM_GENERATED] = generated
        self._end(request, FAILED, reason, now_ns)
        self.sequences.close(row)

    def _end(self, request: int, status: int, reason: str, now_ns: int) -> None:
        self.requests[request, STATUS] = status
        self.requests[request, FINISH_NS] = now_ns
        self.reasons[request] = reason
        if self.notes_ends:
            self.ended.append(request)
