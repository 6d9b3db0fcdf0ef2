"""Iteration times that are constant, or linear in what the batch contains.

Neither models a machine: they are the plainest assumptions under which memory behaviour can be
studied, and their coefficients are the user's.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from sim.batch import (
    COPIED_TOKENS,
    KV_TOKENS,
    NUM_SEQS,
    PREFILL_TOKENS,
    SWAPPED_BLOCKS,
    SWAPPED_TOKENS,
)
from sim.costs.base import CostModel, to_ns
from sim.jit import compiled, direct
from sim.sequence import IntArray

FloatArray = NDArray[np.float64]


class Linear(CostModel):
    """A sum of seven terms, each a number of seconds times what the iteration contains of it.

    base_s once, per_seq_s a sequence, per_kv_token_s a token of KV that the batch's sequences hold
    (the ones written in this iteration included), per_prefill_token_s a prompt token computed in
    it, per_copied_token_s a token whose KV is copied within the pool; per_swapped_block_s is for a
    block that moves between device and host, and per_swapped_token_s for each of its slots. The
    defaults of the last three are OPT-13B's 819,200 bytes a token, copied at 1.6 TB/s, swapped at
    25 GB/s, and 80 copies a block, K and V of 40 layers, of 5 us each.
    """

    kind: ClassVar[str] = "linear"
    source = "assumed coefficients"

    def __init__(  # noqa: PLR0913, PLR0917 - one for each term
        self,
        base_s: float = 0.02,
        per_seq_s: float = 0.0001,
        per_kv_token_s: float = 2e-7,
        per_prefill_token_s: float = 2e-5,
        per_copied_token_s: float = 1e-6,
        per_swapped_block_s: float = 4e-4,
        per_swapped_token_s: float = 3.3e-5,
    ) -> None:
        values = {
            "base_s": base_s,
            "per_seq_s": per_seq_s,
            "per_kv_token_s": per_kv_token_s,
            "per_prefill_token_s": per_prefill_token_s,
            "per_copied_token_s": per_copied_token_s,
            "per_swapped_block_s": per_swapped_block_s,
            "per_swapped_token_s": per_swapped_token_s,
        }
        for name, value in values.items():
            if not 0 <= value < 1e6:
                raise ValueError(f"{name}: must be at least 0 and below 1e6 seconds, got {value}")
        self.base_s = base_s
        self.per_seq_s = per_seq_s
        self.per_kv_token_s = per_kv_token_s
        self.per_prefill_token_s = per_prefill_token_s
        self.per_copied_token_s = per_copied_token_s
        self.per_swapped_block_s = per_swapped_block_s
        self.per_swapped_token_s = per_swapped_token_s
        self._coefficients = np.array(list(values.values()))
        integers = np.zeros(1, np.int64)
        self._plan = direct(linear_plan, integers, self._coefficients, integers, 1, 0)

    def iteration_s(self, batch: IntArray) -> float:
        seconds = linear_s(self._coefficients, batch[NUM_SEQS], batch[KV_TOKENS])
        return float(seconds + once_s(self._coefficients, batch))

    def plan(
        self, batch: IntArray, boundaries: IntArray, num_iterations: int, until_ns: int
    ) -> int:
        return self._plan(batch, self._coefficients, boundaries, num_iterations, until_ns)


class Constant(Linear):
    """Every iteration takes the same number of seconds."""

    kind: ClassVar[str] = "constant"
    source = "assumed constant"

    def __init__(self, seconds: float = 0.02) -> None:
        if not 0 <= seconds < 1e6:
            raise ValueError(f"seconds: must be at least 0 and below 1e6, got {seconds}")
        super().__init__(seconds, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0)
        self.seconds = seconds


@compiled
def linear_s(coefficients: FloatArray, num_seqs: int, kv_tokens: int) -> float:
    """Seconds that every iteration takes."""
    seconds: float = coefficients[0] + coefficients[1] * num_seqs + coefficients[2] * kv_tokens
    return seconds


@compiled
def once_s(coefficients: FloatArray, batch: IntArray) -> float:
    """Seconds of what only the first of several iterations does: prompts, copies and swaps."""
    prompts = coefficients[3] * batch[PREFILL_TOKENS]
    copies = coefficients[4] * batch[COPIED_TOKENS]
    swaps = coefficients[5] * batch[SWAPPED_BLOCKS] + coefficients[6] * batch[SWAPPED_TOKENS]
    seconds: float = prompts + copies + swaps
    return seconds


@compiled
def linear_plan(
    batch: IntArray,
    coefficients: FloatArray,
    boundaries: IntArray,
    num_iterations: int,
    until_ns: int,
) -> int:
    """CostModel.plan for linear_s and once_s."""
    num_seqs = batch[NUM_SEQS]
    kv_tokens = batch[KV_TOKENS]
    once = once_s(coefficients, batch)
    end = boundaries[0]
    num_iterations = min(num_iterations, len(boundaries) - 1)
    for i in range(num_iterations):
        end += to_ns(linear_s(coefficients, num_seqs, kv_tokens) + once)
        boundaries[i + 1] = end
        if end >= until_ns:
            return i + 1
        kv_tokens += num_seqs
        once = 0.0
    return num_iterations
