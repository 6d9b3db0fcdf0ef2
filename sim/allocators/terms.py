"""The six terms of conservation: where the slots of a pool are, and a row's share of them."""

from __future__ import annotations

from typing import NamedTuple

from sim.jit import compiled
from sim.sequence import FINAL_TOKENS, NUM_COMPUTED, NUM_SLOTS, IntArray

TERM_NAMES = ("token_states", "reserved", "internal", "external", "cached", "free")
TOKEN_STATES, RESERVED, INTERNAL, EXTERNAL, CACHED, FREE = range(6)
NUM_TERMS = 6
# what is recorded behind the terms; both stay 0 in memory that never shares a block
TABLE_BLOCKS = 6  # blocks in the tables of sequences: one that n of them hold counts n times
HELD_BLOCKS = 7  # the same, each block once
NUM_RECORDED = 8


class KVUsage(NamedTuple):
    """Where the slots of the pool are. The six add to the pool."""

    token_states: int  # written, and held by a sequence in service
    reserved: int  # held, not written yet, and the sequence will reach it
    internal: int  # held and never to be written
    external: int  # in no block or hole that the allocator could give away
    cached: int  # held by nobody, but findable by content
    free: int


class ConservationError(AssertionError):
    """The bookkeeping contradicts itself; found by `Allocator.check`."""


@compiled
def row_terms(num_computed: int, num_slots: int, final_tokens: int) -> tuple[int, int, int]:
    """A row's (token_states, reserved, internal) when it shares nothing.

    The last token's KV is never written, so the row reaches final_tokens - 1 slots at most.
    """
    reach = max(num_computed, min(num_slots, final_tokens - 1))
    return num_computed, reach - num_computed, num_slots - reach


@compiled
def resize_row(
    terms: IntArray, sequences: IntArray, row: int, num_computed: int, num_slots: int
) -> None:
    """Let a row hold num_slots slots, num_computed of them written, and move the terms along.

    terms is the state of an allocator, whose first cells are its terms.
    """
    final = sequences[row, FINAL_TOKENS]
    old_slots = sequences[row, NUM_SLOTS]
    before = row_terms(sequences[row, NUM_COMPUTED], old_slots, final)
    after = row_terms(num_computed, num_slots, final)
    terms[TOKEN_STATES] += after[0] - before[0]
    terms[RESERVED] += after[1] - before[1]
    terms[INTERNAL] += after[2] - before[2]
    terms[FREE] -= num_slots - old_slots
    sequences[row, NUM_COMPUTED] = num_computed
    sequences[row, NUM_SLOTS] = num_slots


@compiled
def retire_row(terms: IntArray, sequences: IntArray, row: int) -> None:
    """Move all that a row holds to internal: it looks like a sequence that will write nothing."""
    final = sequences[row, FINAL_TOKENS]
    parts = row_terms(sequences[row, NUM_COMPUTED], sequences[row, NUM_SLOTS], final)
    terms[TOKEN_STATES] -= parts[0]
    terms[RESERVED] -= parts[1]
    terms[INTERNAL] += parts[0] + parts[1]
    sequences[row, NUM_COMPUTED] = 0
    sequences[row, FINAL_TOKENS] = 1


def recount(sequences: IntArray, external: int, free: int) -> KVUsage:
    """The terms of memory that shares nothing, from its sequences one by one.

    Raises ConservationError if a sequence has written more than it holds.
    """
    totals = [0, 0, 0]
    for computed, slots, final in sequences[:, [NUM_COMPUTED, NUM_SLOTS, FINAL_TOKENS]].tolist():
        if computed > slots:
            raise ConservationError(f"{computed} tokens are written in {slots} slots")
        for i, part in enumerate(row_terms(computed, slots, final)):
            totals[i] += part
    return KVUsage(totals[0], totals[1], totals[2], external, 0, free)


def check_terms(terms: IntArray, expected: KVUsage, kind: str) -> None:
    """Compare the running terms with a recount.

    Raises ConservationError if they differ or one of them is negative.
    """
    current = KVUsage(*terms.tolist())
    if current != expected:
        raise ConservationError(f"{kind}: terms are {current}, a recount gives {expected}")
    if min(current) < 0:
        raise ConservationError(f"{kind}: a term is negative: {current}")
