"""Iteration times that are constant, or linear in what the batch contains.

Neither models a machine: they are the plainest assumptions under which memory behaviour can be
studied, and their coefficients are the user's.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from sim.costs.base import CostModel, to_ns
from sim.jit import compiled, direct
from sim.sequence import KV_TOKENS, NUM_SEQS, PREFILL_TOKENS, IntArray

FloatArray = NDArray[np.float64]


class Linear(CostModel):
    """base_s + per_seq_s·sequences + per_kv_token_s·KV tokens + per_prefill_token_s·prompt tokens.

    KV tokens are all those that the batch's sequences hold, the ones written in this iteration
    included; prompt tokens are those computed in it. All four are seconds.
    """

    kind: ClassVar[str] = "linear"
    source: ClassVar[str] = "assumed coefficients"

    def __init__(
        self,
        base_s: float = 0.02,
        per_seq_s: float = 0.0001,
        per_kv_token_s: float = 2e-7,
        per_prefill_token_s: float = 2e-5,
    ) -> None:
        values = {
            "base_s": base_s,
            "per_seq_s": per_seq_s,
            "per_kv_token_s": per_kv_token_s,
            "per_prefill_token_s": per_prefill_token_s,
        }
        for name, value in values.items():
            if not 0 <= value < 1e6:
                raise ValueError(f"{name}: must be at least 0 and below 1e6 seconds, got {value}")
        self.base_s = base_s
        self.per_seq_s = per_seq_s
        self.per_kv_token_s = per_kv_token_s
        self.per_prefill_token_s = per_prefill_token_s
        self._coefficients = np.array(list(values.values()))
        integers = np.zeros(1, np.int64)
        self._plan = direct(linear_plan, integers, self._coefficients, integers, 1, 0)

    def iteration_s(self, batch: IntArray) -> float:
        cells = batch[NUM_SEQS], batch[KV_TOKENS], batch[PREFILL_TOKENS]
        return linear_s(self._coefficients, *cells)

    def plan(
        self, batch: IntArray, boundaries: IntArray, num_iterations: int, until_ns: int
    ) -> int:
        return self._plan(batch, self._coefficients, boundaries, num_iterations, until_ns)


class Constant(Linear):
    """Every iteration takes the same number of seconds."""

    kind: ClassVar[str] = "constant"
    source: ClassVar[str] = "assumed constant"

    def __init__(self, seconds: float = 0.02) -> None:
        if not 0 <= seconds < 1e6:
            raise ValueError(f"seconds: must be at least 0 and below 1e6, got {seconds}")
        super().__init__(seconds, 0.0, 0.0, 0.0)
        self.seconds = seconds


@compiled
def linear_s(coefficients: FloatArray, num_seqs: int, kv_tokens: int, prefill_tokens: int) -> float:
    """Seconds of one iteration."""
    seconds: float = (
        coefficients[0]
        + coefficients[1] * num_seqs
        + coefficients[2] * kv_tokens
        + coefficients[3] * prefill_tokens
    )
    return seconds


@compiled
def linear_plan(
    batch: IntArray,
    coefficients: FloatArray,
    boundaries: IntArray,
    num_iterations: int,
    until_ns: int,
) -> int:
    """CostModel.plan for linear_s."""
    num_seqs = batch[NUM_SEQS]
    kv_tokens = batch[KV_TOKENS]
    prefill_tokens = batch[PREFILL_TOKENS]
    end = boundaries[0]
    num_iterations = min(num_iterations, len(boundaries) - 1)
    for i in range(num_iterations):
        end += to_ns(linear_s(coefficients, num_seqs, kv_tokens, prefill_tokens))
        boundaries[i + 1] = end
        if end >= until_ns:
            return i + 1
        kv_tokens += num_seqs
        prefill_tokens = 0
    return num_iterations
