"""The cost contract: times that are numbers, never fall when there is more to do, and add up."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterable

import numpy as np

from sim.batch import (
    COPIED_TOKENS,
    DECODE_KV_TOKENS,
    KV_TOKENS,
    NUM_DECODE_SEQS,
    NUM_SEQS,
    PREFILL_PAIRS,
    PREFILL_TOKENS,
    empty_batch,
    next_decode,
)
from sim.costs.base import CostModel, to_ns
from sim.engine.arrivals import FOREVER_NS
from sim.sequence import IntArray
from sim.testing.rules import made, require


def check_cost(factory: Callable[[], CostModel], seeds: Iterable[int] = range(40)) -> None:
    """Run the cost contract over random batches.

    factory makes a cost model: the class itself, if it needs no parameters. Raises ContractError
    with the rule that is broken.

    >>> import sim.testing
    >>> from sim.costs import COST_MODELS
    >>> sim.testing.check_cost(lambda: COST_MODELS["constant"](seconds=0.02))
    """
    cost = made(factory, CostModel)
    is_said = isinstance(cost.source, str) and cost.source not in {"", CostModel.source}
    require(is_said, cost, "source does not say where the times come from")
    for seed in seeds:
        rng = random.Random(seed)
        _check_order(cost, rng)
        _check_plan(factory(), rng)


def batch_of(num_seqs: int, kv_tokens: int, prefill_tokens: int = 0) -> IntArray:
    """num_seqs sequences; they all decode unless there is something to prefill."""
    batch = empty_batch()
    batch[[NUM_SEQS, KV_TOKENS, PREFILL_TOKENS]] = (num_seqs, kv_tokens, prefill_tokens)
    batch[PREFILL_PAIRS] = prefill_tokens * (prefill_tokens + 1) // 2
    batch[COPIED_TOKENS] = prefill_tokens // 3
    if not prefill_tokens:
        batch[[NUM_DECODE_SEQS, DECODE_KV_TOKENS]] = (num_seqs, kv_tokens)
    return batch


def _check_order(cost: CostModel, rng: random.Random) -> None:
    """More KV at a fixed batch, and more sequences of one length, never take less time."""
    num_seqs, length = rng.randint(1, 256), rng.randint(1, 20_000)
    more_kv, more_seqs = rng.randint(1, 10_000), rng.randint(1, 64)
    base = _seconds(cost, batch_of(num_seqs, num_seqs * length))
    longer = _seconds(cost, batch_of(num_seqs, num_seqs * length + more_kv))
    what = f"{num_seqs} sequences of {length} tokens"
    rule = f"iteration_s falls from {base:g} to {longer:g} s when {what} get {more_kv} tokens more"
    require(base <= longer, cost, rule)
    larger = num_seqs + more_seqs
    wider = _seconds(cost, batch_of(larger, larger * length))
    rule = f"iteration_s falls from {base:g} to {wider:g} s when {what} become {larger}"
    require(base <= wider, cost, rule)
    _seconds(cost, batch_of(1, length, length))


def _seconds(cost: CostModel, batch: IntArray) -> float:
    """The time of a batch, which must be a number, and leave the batch alone."""
    before = batch.tolist()
    seconds = cost.iteration_s(batch)
    is_time = isinstance(seconds, float | int) and math.isfinite(seconds) and seconds >= 0
    rule = f"iteration_s gives {seconds!r}; accepted: a number of seconds, at least 0"
    require(is_time, cost, rule)
    require(batch.tolist() == before, cost, "iteration_s changes the batch")
    return seconds


def _check_plan(cost: CostModel, rng: random.Random) -> None:
    """A plan is single iterations one after another, and ends where it is told to."""
    num_seqs, count, start = rng.randint(1, 64), rng.randint(1, 20), 10**15
    batch = batch_of(num_seqs, 7 * num_seqs + 30, rng.choice([0, 30]))
    expected, single = [start], batch.copy()
    for i in range(count):
        if i > 0:
            next_decode(single)
        expected.append(expected[-1] + to_ns(cost.iteration_s(single)))
    boundaries = np.full(count + 1, start, np.int64)
    before = batch.tolist()
    planned = cost.plan(batch, boundaries, count, FOREVER_NS)
    require(planned == count, cost, f"plan gives {planned} of {count} iterations, without a limit")
    require(batch.tolist() == before, cost, "plan changes the batch")
    rule = "plan gives other times than iteration_s, iteration by iteration"
    require(boundaries.tolist() == expected, cost, rule)
    stop = rng.randint(1, count)
    planned = cost.plan(batch, boundaries, count, expected[stop])
    rule = f"plan goes on behind until_ns: {planned} iterations where {stop} reach it"
    require(planned == stop, cost, rule)
