"""What an iteration computes, as cost models see it, and the end of one: compiled."""

from __future__ import annotations

import numpy as np

from sim.gaps import count_gaps
from sim.jit import compiled
from sim.sequence import (
    FINAL_TOKENS,
    FINISH_NS,
    FINISHED,
    FIRST_SCHEDULED_NS,
    FIRST_TOKEN_NS,
    LAST_TOKEN_NS,
    NEVER_NS,
    NUM_COMPUTED,
    NUM_GENERATED,
    NUM_TOKENS,
    PROMPT_TOKENS,
    REQUEST,
    STATUS,
    IntArray,
)

# cells of a batch
NUM_SEQS = 0
NUM_DECODE_SEQS = 1  # sequences that compute one token after their prompt
KV_TOKENS = 2  # KV of all sequences, the tokens of this iteration included
DECODE_KV_TOKENS = 3  # the decoding sequences' part of it
PREFILL_TOKENS = 4  # prompt tokens computed, recomputed ones included
NUM_PENDING = 5  # sequences whose prompt is not complete after this iteration
FIRST_FINISH = 6  # iterations, this one included, until a sequence can finish
PREFILL_PAIRS = 7  # pairs of a computed prompt token and a token that it attends to
COPIED_TOKENS = 8  # tokens whose KV is copied within the pool before anything is computed
SWAPPED_BLOCKS = 9  # blocks that move between device and host before anything is computed
SWAPPED_TOKENS = 10  # the slots of these blocks
NUM_BATCH_CELLS = 11

_FAR = 1 << 62


def empty_batch() -> IntArray:
    """A batch without sequences."""
    batch = np.zeros(NUM_BATCH_CELLS, np.int64)
    batch[FIRST_FINISH] = _FAR
    return batch


@compiled
def describe(batch: IntArray, sequences: IntArray, rows: IntArray, counts: IntArray) -> None:
    """Fill batch for an iteration that computes counts[i] tokens of rows[i].

    The tokens must have been appended already: NUM_COMPUTED includes them.
    """
    batch[:] = 0
    batch[FIRST_FINISH] = _FAR
    for i in range(len(rows)):
        describe_row(batch, sequences, rows[i], counts[i])


@compiled
def describe_row(batch: IntArray, sequences: IntArray, row: int, count: int) -> None:
    """Add a row that computes count tokens to the batch."""
    computed = sequences[row, NUM_COMPUTED]
    num_tokens = sequences[row, NUM_TOKENS]
    if computed < num_tokens:
        batch[NUM_PENDING] += 1
    batch[FIRST_FINISH] = min(batch[FIRST_FINISH], sequences[row, FINAL_TOKENS] - num_tokens)
    if count > 0:
        batch[NUM_SEQS] += 1
        batch[KV_TOKENS] += computed
        if count == 1 and computed > sequences[row, PROMPT_TOKENS]:
            batch[NUM_DECODE_SEQS] += 1
            batch[DECODE_KV_TOKENS] += computed
        else:
            batch[PREFILL_TOKENS] += count
            batch[PREFILL_PAIRS] += count * computed - count * (count - 1) // 2


@compiled
def start_row(
    batch: IntArray, sequences: IntArray, requests: IntArray, row: int, count: int, now_ns: int
) -> None:
    """Add a row that has just been admitted to the batch, and note when that was."""
    describe_row(batch, sequences, row, count)
    request = sequences[row, REQUEST]
    if requests[request, FIRST_SCHEDULED_NS] == NEVER_NS:
        requests[request, FIRST_SCHEDULED_NS] = now_ns


@compiled
def next_decode(batch: IntArray) -> None:
    """Turn a batch into the one that follows when every sequence decodes one more token."""
    batch[NUM_DECODE_SEQS] = batch[NUM_SEQS]
    batch[PREFILL_TOKENS] = batch[PREFILL_PAIRS] = batch[COPIED_TOKENS] = 0
    batch[SWAPPED_BLOCKS] = batch[SWAPPED_TOKENS] = 0
    batch[KV_TOKENS] += batch[NUM_SEQS]
    batch[DECODE_KV_TOKENS] = batch[KV_TOKENS]


@compiled
def count_tokens(
    sequences: IntArray, requests: IntArray, rows: IntArray, end: int, gaps: IntArray
) -> None:
    """Give each row the token that its iteration, which ends at end, has sampled."""
    for i in range(len(rows)):
        row = rows[i]
        if sequences[row, NUM_TOKENS] == sequences[row, PROMPT_TOKENS]:
            requests[sequences[row, REQUEST], FIRST_TOKEN_NS] = end
        else:
            count_gaps(gaps, end - sequences[row, LAST_TOKEN_NS], 1)
        sequences[row, NUM_TOKENS] += 1
        sequences[row, LAST_TOKEN_NS] = end


@compiled
def sample_tokens(
    sequences: IntArray,
    requests: IntArray,
    running: IntArray,
    num_running: int,
    finished: IntArray,
    boundaries: IntArray,
    num_iterations: int,
    gaps: IntArray,
    batch: IntArray,
) -> int:
    """End num_iterations iterations: every sequence that computed all its tokens gets the next.

    boundaries[i] and boundaries[i + 1] are start and end of iteration i. With several
    iterations every running sequence decodes in each, and none finishes before the last.
    Finished rows move from running, which keeps its order, to finished. batch becomes the next
    iteration's, as far as it consists of the sequences that go on decoding.

    Returns the number of finished rows.
    """
    ahead = num_iterations - 1
    first_end = boundaries[1]
    end = boundaries[num_iterations]
    num_finished = 0
    num_kept = 0
    num_sampled = 0
    num_pending = 0
    kv_tokens = 0
    first_finish = _FAR
    last_gap = -1
    num_equal = 0
    for i in range(num_running):
        row = running[i]
        num_tokens = sequences[row, NUM_TOKENS]
        if sequences[row, NUM_COMPUTED] != num_tokens + ahead:
            # not all of its tokens were computed: it has more prompt, or no budget was left
            num_pending += 1
            running[num_kept] = row
            num_kept += 1
            continue
        num_sampled += 1
        if num_tokens == sequences[row, PROMPT_TOKENS]:
            requests[sequences[row, REQUEST], FIRST_TOKEN_NS] = first_end
        else:
            gap = first_end - sequences[row, LAST_TOKEN_NS]
            if gap != last_gap and num_equal > 0:
                count_gaps(gaps, last_gap, num_equal)
                num_equal = 0
            last_gap = gap
            num_equal += 1
        num_tokens += num_iterations
        sequences[row, NUM_TOKENS] = num_tokens
        sequences[row, LAST_TOKEN_NS] = end
        remaining = sequences[row, FINAL_TOKENS] - num_tokens
        if remaining == 0:
            request = sequences[row, REQUEST]
            requests[request, FINISH_NS] = end
            requests[request, NUM_GENERATED] = num_tokens - sequences[row, PROMPT_TOKENS]
            requests[request, STATUS] = FINISHED
            finished[num_finished] = row
            num_finished += 1
        else:
            kv_tokens += num_tokens
            first_finish = min(first_finish, remaining)
            running[num_kept] = row
            num_kept += 1
    if num_equal > 0:
        count_gaps(gaps, last_gap, num_equal)
    for i in range(1, num_iterations):
        count_gaps(gaps, boundaries[i + 1] - boundaries[i], num_sampled)
    batch[NUM_SEQS] = batch[NUM_DECODE_SEQS] = num_kept
    batch[KV_TOKENS] = batch[DECODE_KV_TOKENS] = kv_tokens
    batch[PREFILL_TOKENS] = batch[PREFILL_PAIRS] = batch[COPIED_TOKENS] = 0
    batch[SWAPPED_BLOCKS] = batch[SWAPPED_TOKENS] = 0
    batch[NUM_PENDING] = num_pending
    batch[FIRST_FINISH] = first_finish
    return num_finished
