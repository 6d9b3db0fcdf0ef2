"""Compiled operations for iterations that are planned before the tokens of the last are known."""

from __future__ import annotations

from sim.gaps import count_gaps
from sim.jit import compiled
from sim.sequence import (
    FINAL_TOKENS,
    FINISH_NS,
    FINISHED,
    FIRST_TOKEN_NS,
    LAST_TOKEN_NS,
    MAX_FINAL_TOKENS,
    NUM_COMPUTED,
    NUM_GENERATED,
    NUM_PLACEHOLDERS,
    NUM_TOKENS,
    PENDING,
    PROMPT_TOKENS,
    STATUS,
    IntArray,
)


@compiled
def plan_in_flight(
    sequences: IntArray,
    rows: IntArray,
    counts: IntArray,
    budget: int,
    longest: int,
    max_model_len: int,
) -> int:
    """Share a token budget over rows in their order; return what is left of it.

    A row whose tokens in flight are its last ones, by length, computes nothing.
    """
    for i in range(len(rows)):
        row = rows[i]
        computed = sequences[row, NUM_COMPUTED]
        placeholders = sequences[row, NUM_PLACEHOLDERS]
        lacks = sequences[row, NUM_TOKENS] + placeholders - computed
        count = min(lacks, longest, budget, max_model_len - computed - 1)
        if placeholders > 0 and computed + 2 - placeholders >= sequences[row, MAX_FINAL_TOKENS]:
            count = 0
        counts[i] = max(count, 0)
        budget -= counts[i]
    return budget


@compiled
def expect_tokens(sequences: IntArray, rows: IntArray, counts: IntArray, sampling: IntArray) -> int:
    """Note which rows will sample a token; return how many. sampling receives their places."""
    num_sampling = 0
    for i in range(len(rows)):
        row = rows[i]
        known = sequences[row, NUM_TOKENS] + sequences[row, NUM_PLACEHOLDERS]
        if counts[i] > 0 and sequences[row, NUM_COMPUTED] >= known:
            sequences[row, NUM_PLACEHOLDERS] += 1
            sampling[num_sampling] = i
            num_sampling += 1
    return num_sampling


@compiled
def receive_tokens(
    sequences: IntArray,
    requests: IntArray,
    rows: IntArray,
    ids: IntArray,
    span: tuple[int, int],
    known: IntArray,
    gaps: IntArray,
) -> None:
    """Add the tokens that an iteration has sampled, in their order; ids are the rows' requests.

    A request that has ended since gets none, and known says 0 for it. For others known becomes
    the number of tokens whose blocks may be found now, and minus that, less one, if the request
    has finished. One that was preempted has no placeholder any more, and nothing computed.
    """
    end = span[1]
    for i in range(len(rows)):
        row, request = rows[i], ids[i]
        known[i] = 0
        if requests[request, STATUS] != PENDING:
            continue
        num_tokens = sequences[row, NUM_TOKENS]
        if num_tokens == sequences[row, PROMPT_TOKENS]:
            requests[request, FIRST_TOKEN_NS] = end
        else:
            count_gaps(gaps, end - sequences[row, LAST_TOKEN_NS], 1)
        num_tokens += 1
        sequences[row, NUM_TOKENS] = num_tokens
        sequences[row, LAST_TOKEN_NS] = end
        if sequences[row, NUM_PLACEHOLDERS] > 0:
            sequences[row, NUM_PLACEHOLDERS] -= 1
        known[i] = max(sequences[row, NUM_COMPUTED] - sequences[row, NUM_PLACEHOLDERS], 0)
        if num_tokens == sequences[row, FINAL_TOKENS]:
            requests[request, FINISH_NS] = end
            requests[request, NUM_GENERATED] = num_tokens - sequences[row, PROMPT_TOKENS]
            requests[request, STATUS] = FINISHED
            known[i] = -known[i] - 1
