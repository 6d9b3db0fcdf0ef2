"""The requests of a run and the sequences in service, as integer arrays: one row each.

Columns have names (`requests[i, FINISH_NS]`), so that one argument carries all of them into
compiled code. A sequence is in service from the moment it reaches the head of the waiting queue
until it ends; a preempted one keeps its row, because its generated tokens are part of its prompt
when it resumes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sim.jit import compiled, direct

IntArray = NDArray[np.int64]

NEVER_NS = -1  # a time that has not come

# outcome of a request
PENDING, FINISHED, REJECTED, FAILED = range(4)
STATUS_NAMES = ("unfinished", "finished", "rejected", "failed")

# columns that requests and sequences share
PROMPT_TOKENS = 0
FINAL_TOKENS = 1  # prompt and output when it stops
MAX_FINAL_TOKENS = 2  # the most the scheduler must expect

# further columns of requests
ARRIVAL_NS, FIRST_SCHEDULED_NS, FIRST_TOKEN_NS, FINISH_NS = range(3, 7)
NUM_GENERATED, NUM_PREEMPTIONS, STATUS = range(7, 10)
CUT = 10  # what makes its output shorter than the trace's
NOT_CUT, BY_MAX_TOKENS, BY_MAX_MODEL_LEN = range(3)
PRIORITY = 11  # the lower, the sooner
NUM_REQUEST_COLUMNS = 12

# further columns of sequences
REQUEST = 3  # the row of its request
NUM_TOKENS = 4  # prompt and tokens generated so far
NUM_COMPUTED = 5  # tokens whose KV is written
NUM_SLOTS = 6  # slots held, written or not: the allocator's
LAST_TOKEN_NS = 7
NUM_PLACEHOLDERS = 8  # tokens that iterations in flight will sample
NUM_SEQUENCE_COLUMNS = 9


_ONE_REQUEST = np.zeros((1, NUM_REQUEST_COLUMNS), np.int64)


class Limits(NamedTuple):
    """What bounds the length of a request: max_model_len, and max_tokens for each request."""

    max_model_len: int
    max_tokens: IntArray


def new_requests(
    arrival_ns: IntArray, prompt_tokens: IntArray, output_tokens: IntArray, limits: Limits
) -> IntArray:
    """Rows for the requests of a trace: int64, shape (requests, NUM_REQUEST_COLUMNS).

    A request stops after output_tokens, at max_tokens or at max_model_len, whichever comes
    first.
    """
    requests = np.zeros((len(arrival_ns), NUM_REQUEST_COLUMNS), np.int64)
    longest = limits.max_model_len
    generated = np.minimum(output_tokens, limits.max_tokens)
    requests[:, PROMPT_TOKENS] = prompt_tokens
    requests[:, FINAL_TOKENS] = np.minimum(prompt_tokens + generated, longest)
    requests[:, MAX_FINAL_TOKENS] = np.minimum(prompt_tokens + limits.max_tokens, longest)
    requests[:, ARRIVAL_NS] = arrival_ns
    requests[:, [FIRST_SCHEDULED_NS, FIRST_TOKEN_NS, FINISH_NS]] = NEVER_NS
    requests[generated < output_tokens, CUT] = BY_MAX_TOKENS
    requests[prompt_tokens + generated > longest, CUT] = BY_MAX_MODEL_LEN
    return requests


class SequenceTable:
    """Rows for the sequences in service; grows by doubling.

    rows is the array itself, int64, shape (capacity, NUM_SEQUENCE_COLUMNS). It is replaced when
    the table grows, so hold the table, not rows. Who keeps something for every row adds a
    function to when_grown, which is called with the new capacity, or to when_opened, which is
    called with a row that now belongs to another sequence.
    """

    def __init__(self, capacity: int = 64) -> None:
        self.rows: IntArray = np.zeros((capacity, NUM_SEQUENCE_COLUMNS), np.int64)
        self._open_row = direct(open_row, self.rows, 0, _ONE_REQUEST, 0)
        self.when_grown: list[Callable[[int], None]] = []
        self.when_opened: list[Callable[[int], None]] = []
        self._unused = list(range(capacity - 1, -1, -1))

    def open(self, requests: IntArray, request: int) -> int:
        """Take a row for a request that has computed nothing yet; return the row."""
        row = self._take()
        self._open_row(self.rows, row, requests, request)
        for note in self.when_opened:
            note(row)
        return row

    def _take(self) -> int:
        if not self._unused:
            capacity = len(self.rows)
            self.rows = np.concatenate([self.rows, np.zeros_like(self.rows)])
            self._unused = list(range(2 * capacity - 1, capacity - 1, -1))
            for resize in self.when_grown:
                resize(2 * capacity)
        return self._unused.pop()

    def fork(self, row: int) -> int:
        """Take a row for a sequence that has the row's tokens, but no memory yet; return it."""
        child = self._take()
        self.rows[child] = self.rows[row]
        self.rows[child, [NUM_COMPUTED, NUM_SLOTS]] = 0
        return child

    def close(self, row: int) -> None:
        """Give a row back. What it held must have been freed before."""
        self._unused.append(row)

    def close_all(self, rows: IntArray) -> None:
        """Give several rows back, in their order."""
        self._unused.extend(rows.tolist())


@compiled
def open_row(sequences: IntArray, row: int, requests: IntArray, request: int) -> None:
    """Fill a row from its request."""
    for column in (PROMPT_TOKENS, FINAL_TOKENS, MAX_FINAL_TOKENS):
        sequences[row, column] = requests[request, column]
    sequences[row, REQUEST] = request
    sequences[row, NUM_TOKENS] = requests[request, PROMPT_TOKENS]
    sequences[row, NUM_COMPUTED] = 0
    sequences[row, NUM_SLOTS] = sequences[row, NUM_PLACEHOLDERS] = 0
    sequences[row, LAST_TOKEN_NS] = requests[request, ARRIVAL_NS]


@compiled
def plan_counts(
    sequences: IntArray, rows: IntArray, counts: IntArray, budget: int, longest: int
) -> int:
    """Share a token budget over rows in their order; return what is left of it.

    counts[i] becomes the number of tokens that rows[i] computes: all it lacks, but at most
    longest and what the budget still allows.
    """
    for i in range(len(rows)):
        lacks = sequences[rows[i], NUM_TOKENS] - sequences[rows[i], NUM_COMPUTED]
        counts[i] = min(lacks, longest, budget)
        budget -= counts[i]
    return budget
