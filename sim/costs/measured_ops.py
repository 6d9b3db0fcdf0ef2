"""The compiled part of the measured cost model: one iteration from tables, and many in a row.

Tables are in seconds. `tokens` and `seqs` are read at a count; `decode` and `prefill` at a count of
sequences (the row) and the length of each, between two nodes. Row 0 of those holds the lengths of
the nodes. Beyond the last row or node the time grows in proportion. Interpolation between values
that nowhere fall cannot fall either.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from sim.batch import (
    COPIED_TOKENS,
    DECODE_KV_TOKENS,
    KV_TOKENS,
    NUM_DECODE_SEQS,
    NUM_SEQS,
    PREFILL_PAIRS,
    PREFILL_TOKENS,
    SWAPPED_TOKENS,
)
from sim.costs.base import to_ns
from sim.jit import compiled
from sim.sequence import IntArray

FloatArray = NDArray[np.float64]

NODES_PER_OCTAVE = 8

# numbers beside the tables: seconds, but for those that say otherwise
HOST, COPIED_TOKEN = 0, 1
PAIR_S, BLOCK_S, POWER, LOST_KEYS, CONTEXT_TOKEN_S = 2, 3, 4, 5, 6  # prefill with context
IS_UNIFIED = 7  # 1: chunks and decodes share a launch
U_BASE, U_PAIR_S, U_KEY_S, U_BLOCK_S, U_WAVE_S, U_POWER, U_LOST, U_TILES = range(8, 16)
SWAPPED_TOKEN = 16
NUM_NUMBERS = 17

# limits of what was seen: an iteration outside is counted under one of the kinds
MIN_LENGTH, MAX_LENGTH, MAX_BATCH, MAX_DECODE_TOKENS = 0, 1, 2, 3
MIN_QUERIES, MAX_QUERIES, MAX_CHUNKS, MAX_CONTEXT, MAX_TOKENS = 4, 5, 6, 7, 8
MAX_MIXED_DECODES, MIN_BATCH = 9, 10
NUM_LIMITS = 11
OUTSIDE_KINDS = ("decode", "prefill", "context of a prompt", "tokens", "prompts with decodes")

TILE = 128


@compiled
def counted(table: FloatArray, count: int) -> float:
    """table[count], in proportion beyond its end."""
    last = len(table) - 1
    if count <= last:
        value: float = table[max(count, 0)]
        return value
    beyond: float = table[last] * (count / last)
    return beyond


@compiled
def looked_up(table: FloatArray, count: int, length: float) -> float:
    """The table at a count of sequences and the length of each."""
    last_row, last = table.shape[0] - 1, table.shape[1] - 1
    scale = 1.0
    if count > last_row:
        scale = count / last_row
        count = last_row
    length = max(length, 1.0)
    if length >= table[0, last]:
        at_end: float = scale * (length / table[0, last]) * table[count, last]
        return at_end
    i = min(int(math.log2(length) * NODES_PER_OCTAVE), last - 1)
    while table[0, i] > length:
        i -= 1
    while table[0, i + 1] <= length:
        i += 1
    low, high = table[count, i], table[count, i + 1]
    share = (length - table[0, i]) / (table[0, i + 1] - table[0, i])
    value: float = scale * min(low + share * (high - low), high)
    return value


@compiled
def power_sum(left: float, right: float, p: float) -> float:
    """(left^p + right^p)^(1/p)."""
    larger = max(left, right)
    if larger <= 0.0:
        return 0.0
    total: float = larger * ((left / larger) ** p + (right / larger) ** p) ** (1.0 / p)
    return total


@compiled
def prompts_s(prefill: FloatArray, numbers: FloatArray, batch: IntArray) -> float:
    """Prefill attention: the table without context, and what the context adds."""
    chunks = max(batch[NUM_SEQS] - batch[NUM_DECODE_SEQS], 1)
    queries = batch[PREFILL_TOKENS] / chunks
    keys = max((batch[KV_TOKENS] - batch[DECODE_KV_TOKENS]) / chunks, queries)
    seconds = looked_up(prefill, chunks, queries)
    own_pairs = batch[PREFILL_TOKENS] * (queries + 1.0) / 2.0
    lost = numbers[LOST_KEYS] * batch[PREFILL_TOKENS]
    power = numbers[POWER]
    own = power_sum(
        numbers[PAIR_S] * (own_pairs + lost), numbers[BLOCK_S] * math.ceil(queries / TILE), power
    )
    pairs = max(float(batch[PREFILL_PAIRS]), own_pairs)
    whole = power_sum(
        numbers[PAIR_S] * (pairs + lost), numbers[BLOCK_S] * math.ceil(keys / TILE), power
    )
    context = numbers[CONTEXT_TOKEN_S] * chunks * (keys - queries)
    total: float = seconds + max(whole - own, 0.0) + context
    return total


@compiled
def unified_s(numbers: FloatArray, batch: IntArray) -> float:
    """Attention of chunks and decodes in one launch."""
    decodes, chunks = batch[NUM_DECODE_SEQS], max(batch[NUM_SEQS] - batch[NUM_DECODE_SEQS], 1)
    queries = batch[PREFILL_TOKENS] / chunks
    keys = (batch[KV_TOKENS] - batch[DECODE_KV_TOKENS]) / chunks
    longest = max(keys, batch[DECODE_KV_TOKENS] / decodes)
    waves = max(1.0, (chunks * math.ceil(queries / TILE) + decodes) * numbers[U_TILES])
    pairs = batch[PREFILL_PAIRS] + numbers[U_LOST] * batch[PREFILL_TOKENS]
    load = numbers[U_PAIR_S] * pairs + numbers[U_KEY_S] * batch[DECODE_KV_TOKENS]
    work = power_sum(load, numbers[U_BLOCK_S] * math.ceil(longest / TILE), numbers[U_POWER])
    total: float = numbers[U_BASE] + work + numbers[U_WAVE_S] * waves
    return total


@compiled
def decoding_s(
    tokens: FloatArray, seqs: FloatArray, decode: FloatArray, num_seqs: int, kv_tokens: int
) -> float:
    """An iteration in which every sequence decodes, without the host's part."""
    seconds = counted(tokens, num_seqs) + counted(seqs, num_seqs)
    if num_seqs > 0:
        seconds += looked_up(decode, num_seqs, kv_tokens / num_seqs)
    return seconds


@compiled
def first_s(
    tokens: FloatArray,
    seqs: FloatArray,
    decode: FloatArray,
    prefill: FloatArray,
    numbers: FloatArray,
    batch: IntArray,
) -> float:
    """Any iteration: prompts, decodes, copies and swaps."""
    copies: float = numbers[HOST] + numbers[COPIED_TOKEN] * batch[COPIED_TOKENS]
    copies += numbers[SWAPPED_TOKEN] * batch[SWAPPED_TOKENS]
    decodes, prompt = batch[NUM_DECODE_SEQS], batch[PREFILL_TOKENS]
    if prompt <= 0:
        own: float = decoding_s(tokens, seqs, decode, batch[NUM_SEQS], batch[DECODE_KV_TOKENS])
        return copies + own
    attention = prompts_s(prefill, numbers, batch)
    if decodes > 0:
        apart = looked_up(decode, decodes, batch[DECODE_KV_TOKENS] / decodes)
        if numbers[IS_UNIFIED] > 0:
            attention = max(attention, apart, unified_s(numbers, batch))
        else:
            attention += apart
    linears = counted(tokens, decodes + prompt) + counted(seqs, batch[NUM_SEQS])
    total: float = copies + linears + attention
    return total


@compiled
def measured_plan(
    batch: IntArray,
    tokens: FloatArray,
    seqs: FloatArray,
    decode: FloatArray,
    prefill: FloatArray,
    numbers: FloatArray,
    boundaries: IntArray,
    num_iterations: int,
    until_ns: int,
) -> int:
    """CostModel.plan."""
    num_seqs, kv_tokens = batch[NUM_SEQS], batch[KV_TOKENS]
    end = boundaries[0]
    num_iterations = min(num_iterations, len(boundaries) - 1)
    seconds = first_s(tokens, seqs, decode, prefill, numbers, batch)
    for i in range(num_iterations):
        if i > 0:
            kv_tokens += num_seqs
            seconds = numbers[HOST] + decoding_s(tokens, seqs, decode, num_seqs, kv_tokens)
        end += to_ns(seconds)
        boundaries[i + 1] = end
        if end >= until_ns:
            return i + 1
    return num_iterations


@compiled
def count_outside(batch: IntArray, count: int, limits: IntArray, counts: IntArray) -> None:
    """Add the iterations outside the limits to counts, by OUTSIDE_KINDS.

    The batch's own, and count - 1 in which its sequences go on decoding.
    """
    decodes, kv_tokens = batch[NUM_DECODE_SEQS], batch[DECODE_KV_TOKENS]
    prompt, chunks = batch[PREFILL_TOKENS], batch[NUM_SEQS] - batch[NUM_DECODE_SEQS]
    if prompt > 0 and chunks > 0:
        queries = prompt // chunks
        context = (batch[KV_TOKENS] - kv_tokens) // chunks - queries
        if (
            queries < limits[MIN_QUERIES]
            or queries > limits[MAX_QUERIES]
            or chunks > limits[MAX_CHUNKS]
        ):
            counts[1] += 1
        if context > limits[MAX_CONTEXT]:
            counts[2] += 1
        if decodes > limits[MAX_MIXED_DECODES]:
            counts[4] += 1
    tokens = decodes + prompt
    for i in range(count):
        if i > 0:
            decodes = tokens = batch[NUM_SEQS]
            kv_tokens = batch[KV_TOKENS] + i * decodes
        if tokens > limits[MAX_TOKENS]:
            counts[3] += 1
        if decodes > 0:
            length = kv_tokens // decodes
            is_long = length < limits[MIN_LENGTH] or length > limits[MAX_LENGTH]
            is_wide = decodes < limits[MIN_BATCH] or decodes > limits[MAX_BATCH]
            if is_long or is_wide or kv_tokens > limits[MAX_DECODE_TOKENS]:
                counts[0] += 1
