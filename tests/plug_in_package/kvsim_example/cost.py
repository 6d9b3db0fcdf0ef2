"""Time that grows with the square root of the batch: no machine, but a shape to try."""

from __future__ import annotations

import math
from typing import ClassVar

from sim.parts import KV_TOKENS, NUM_SEQS, PREFILL_TOKENS, CostModel, IntArray


class SquareRoot(CostModel):
    """base_s, and per_root_s times the square root of the sequences; per_token_s a token of KV."""

    kind: ClassVar[str] = "square_root"
    source = "assumed: a square root"

    def __init__(
        self, base_s: float = 0.01, per_root_s: float = 0.001, per_token_s: float = 1e-7
    ) -> None:
        for name, value in {"base_s": base_s, "per_root_s": per_root_s}.items():
            if value < 0:
                raise ValueError(f"{name}: must be at least 0 seconds, got {value}")
        self.base_s, self.per_root_s, self.per_token_s = base_s, per_root_s, per_token_s

    def iteration_s(self, batch: IntArray) -> float:
        tokens = batch.item(KV_TOKENS) + batch.item(PREFILL_TOKENS)
        roots = self.per_root_s * math.sqrt(batch.item(NUM_SEQS))
        return self.base_s + roots + self.per_token_s * tokens
