"""Iteration times from what must be moved and computed, against what the hardware can do.

    time = overhead
         + linears            max(weights read / bandwidth, 2 x parameters x tokens / FLOPS)
         + decode attention   max(KV read / bandwidth, FLOPs / FLOPS)
         + prefill attention  max(KV read / bandwidth, FLOPs / FLOPS)
         + copies within the pool, read and written
         + swaps             bytes / host link, and a time for each copy of K or V of a layer

A roofline (Williams, Waterman and Patterson, CACM 2009) for each kind of kernel: linears read the
weights once an iteration however many tokens there are, attention reads every sequence's own KV.
It knows no tiles, launches, block sizes or collectives, so it is a bound with efficiencies, not a
measurement. The defaults of the efficiencies are what published measurements of H100 and H200
kernels reach at large sizes (perf data of ai-dynamo/aiconfigurator, fitted): linears 4.0 of 4.8
TB/s and 790 of 989 TFLOPS, decode attention 0.81 to 0.92 of the bandwidth above 256 MB of KV,
prefill attention 630 to 675 of 989 TFLOPS. Small sizes reach less, and so do older kernels: A100
decode attention 0.70 to 0.81. overhead_s and copy_efficiency are assumptions.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

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
    SWAPPED_BLOCKS,
    SWAPPED_TOKENS,
)
from sim.costs.base import CostModel, to_ns
from sim.jit import compiled, direct
from sim.sequence import IntArray

FloatArray = NDArray[np.float64]

# seconds, in the order of the coefficients
OVERHEAD, WEIGHTS, EXPERTS, EXPERTS_TOKEN, LINEAR_TOKEN, KV_TOKEN, PAIR, COPY = range(8)
SWAPPED_BLOCK, SWAPPED_TOKEN = range(8, 10)

PCIE_4_GB_S = 31.5  # x16, one direction


class Roofline(CostModel):
    """Bytes over achievable bandwidth and FLOPs over achievable throughput.

    overhead_s is added to every iteration, host_copy_s to every copy of a swap: K or V of one layer
    of a block. The efficiencies are fractions of the device's
    memory_gb_s (1e9 bytes/s) and bf16_tflops (dense, 1e12 operations/s). What follows them is the
    experiment's model and device unless it is given here, for one GPU: weights_bytes, num_params,
    num_active_params (those that a token passes through), num_expert_params (those in experts among
    which tokens are routed), kv_bytes_per_token, layers, heads (of queries), head_dim. In a mixture
    of experts an iteration reads everything outside of them, and as many of them as its tokens can
    touch, at most all; if num_expert_params is not known, all weights count as experts'. Latent
    attention (MLA) is computed on the latent, as decode kernels do; engines compute prompts on
    the shorter heads before compression, so their attention is overestimated here. pcie_gb_s is the
    device's, PCIe 4.0's 31.5 if it has none; host_link_efficiency of it is reached.
    """

    kind: ClassVar[str] = "roofline"
    source = "analytic: datasheet rates times efficiencies, not measured"
    from_hardware: ClassVar[Mapping[str, str]] = {
        "weights_bytes": "model.weights_bytes",
        "num_params": "model.num_params",
        "num_active_params": "model.num_active_params",
        "num_expert_params": "model.num_expert_params",
        "kv_bytes_per_token": "model.kv_bytes_per_token",
        "layers": "model.layers",
        "heads": "model.heads",
        "head_dim": "model.head_dim",
        "memory_gb_s": "device.memory_gb_s",
        "bf16_tflops": "device.bf16_tflops",
        "pcie_gb_s": "device.pcie_gb_s",
    }

    def __init__(  # noqa: PLR0913 - each is a key of the configuration
        self,
        *,
        overhead_s: float = 0.002,
        linear_bandwidth_efficiency: float = 0.83,
        linear_flops_efficiency: float = 0.80,
        attention_bandwidth_efficiency: float = 0.85,
        attention_flops_efficiency: float = 0.65,
        copy_efficiency: float = 0.80,
        host_link_efficiency: float = 0.80,
        host_copy_s: float = 5e-6,
        weights_bytes: int | None = None,
        num_params: int | None = None,
        num_active_params: int | None = None,
        num_expert_params: int | None = None,
        kv_bytes_per_token: int | None = None,
        layers: int | None = None,
        heads: int | None = None,
        head_dim: int | None = None,
        memory_gb_s: float | None = None,
        bf16_tflops: float | None = None,
        pcie_gb_s: float | None = None,
    ) -> None:
        efficiencies = {
            "linear_bandwidth_efficiency": linear_bandwidth_efficiency,
            "linear_flops_efficiency": linear_flops_efficiency,
            "attention_bandwidth_efficiency": attention_bandwidth_efficiency,
            "attention_flops_efficiency": attention_flops_efficiency,
            "copy_efficiency": copy_efficiency,
            "host_link_efficiency": host_link_efficiency,
        }
        facts = {
            "weights_bytes": weights_bytes,
            "num_params": num_params,
            "num_active_params": num_params if num_active_params is None else num_active_params,
            "kv_bytes_per_token": kv_bytes_per_token,
            "layers": layers,
            "heads": heads,
            "head_dim": head_dim,
            "memory_gb_s": memory_gb_s,
            "bf16_tflops": bf16_tflops,
            "pcie_gb_s": PCIE_4_GB_S if pcie_gb_s is None else pcie_gb_s,
        }
        for name, seconds in (("overhead_s", overhead_s), ("host_copy_s", host_copy_s)):
            if not 0 <= seconds < 1e6:
                raise ValueError(f"{name}: must be at least 0 and below 1e6 seconds, got {seconds}")
        for name, fraction in efficiencies.items():
            if not 0 < fraction <= 1:
                raise ValueError(f"{name}: must be above 0 and at most 1, got {fraction}")
        self.facts = {name: self._known(name, value) for name, value in facts.items()}
        self.facts["num_expert_params"] = self._experts(num_expert_params)
        self._coefficients = _coefficients((overhead_s, host_copy_s), efficiencies, self.facts)
        integers = np.zeros(1, np.int64)
        self._plan = direct(roofline_plan, integers, self._coefficients, integers, 1, 0)

    def _experts(self, num_expert_params: int | None) -> float:
        """Parameters in experts; a token passes through all others, and some of these."""
        params, active = self.facts["num_params"], self.facts["num_active_params"]
        if active > params:
            raise ValueError(f"num_active_params: {active} are more than num_params, {params}")
        if num_expert_params is None:
            return params if active < params else 0
        if not params - active <= num_expert_params <= params:
            raise ValueError(
                f"num_expert_params: must be at least what a token passes by, {params - active}, "
                f"and at most num_params, {params}, got {num_expert_params}"
            )
        return num_expert_params

    def iteration_s(self, batch: IntArray) -> float:
        tokens = batch[NUM_DECODE_SEQS] + batch[PREFILL_TOKENS]
        return float(
            tokens_s(self._coefficients, tokens, batch[DECODE_KV_TOKENS])
            + once_s(self._coefficients, batch)
        )

    def plan(
        self, batch: IntArray, boundaries: IntArray, num_iterations: int, until_ns: int
    ) -> int:
        return self._plan(batch, self._coefficients, boundaries, num_iterations, until_ns)


def _coefficients(
    times_s: tuple[float, float], efficiency: Mapping[str, float], known: Mapping[str, float]
) -> FloatArray:
    """Seconds of each thing that an iteration does, by the names above."""
    memory, flops = known["memory_gb_s"] * 1e9, known["bf16_tflops"] * 1e12
    weights_s = known["weights_bytes"] / (memory * efficiency["linear_bandwidth_efficiency"])
    params, active, experts = (known[f"num_{name}params"] for name in ("", "active_", "expert_"))
    attention = efficiency["attention_bandwidth_efficiency"]
    pair_flops = 4 * known["layers"] * known["heads"] * known["head_dim"]
    cells = np.empty(10)
    cells[OVERHEAD], host_copy_s = times_s
    cells[WEIGHTS] = weights_s * (params - experts) / params
    cells[EXPERTS] = weights_s * experts / params
    cells[EXPERTS_TOKEN] = weights_s * (active - (params - experts)) / params
    cells[LINEAR_TOKEN] = 2 * active / (flops * efficiency["linear_flops_efficiency"])
    cells[KV_TOKEN] = known["kv_bytes_per_token"] / (memory * attention)
    cells[PAIR] = pair_flops / (flops * efficiency["attention_flops_efficiency"])
    cells[COPY] = 2 * known["kv_bytes_per_token"] / (memory * efficiency["copy_efficiency"])
    link = known["pcie_gb_s"] * 1e9 * efficiency["host_link_efficiency"]
    cells[SWAPPED_BLOCK] = 2 * known["layers"] * host_copy_s
    cells[SWAPPED_TOKEN] = known["kv_bytes_per_token"] / link
    return cells


@compiled
def tokens_s(coefficients: FloatArray, tokens: int, decode_kv_tokens: int) -> float:
    """Seconds of overhead, linears and decode attention."""
    experts = min(coefficients[EXPERTS], tokens * coefficients[EXPERTS_TOKEN])
    weights = coefficients[WEIGHTS] + experts
    linears = max(weights, tokens * coefficients[LINEAR_TOKEN])
    decode = decode_kv_tokens * max(coefficients[KV_TOKEN], coefficients[PAIR])
    seconds: float = coefficients[OVERHEAD] + linears + decode
    return seconds


@compiled
def once_s(coefficients: FloatArray, batch: IntArray) -> float:
    """Seconds of what only the first of several iterations does: prompts, copies and swaps."""
    context = batch[KV_TOKENS] - batch[DECODE_KV_TOKENS]
    prefill = max(context * coefficients[KV_TOKEN], batch[PREFILL_PAIRS] * coefficients[PAIR])
    swaps = batch[SWAPPED_BLOCKS] * coefficients[SWAPPED_BLOCK]
    swaps += batch[SWAPPED_TOKENS] * coefficients[SWAPPED_TOKEN]
    seconds: float = prefill + batch[COPIED_TOKENS] * coefficients[COPY] + swaps
    return seconds


@compiled
def roofline_plan(
    batch: IntArray,
    coefficients: FloatArray,
    boundaries: IntArray,
    num_iterations: int,
    until_ns: int,
) -> int:
    """CostModel.plan for tokens_s and once_s."""
    num_seqs = batch[NUM_SEQS]
    tokens = batch[NUM_DECODE_SEQS] + batch[PREFILL_TOKENS]
    decode_kv_tokens = batch[DECODE_KV_TOKENS]
    kv_tokens = batch[KV_TOKENS]
    once = once_s(coefficients, batch)
    end = boundaries[0]
    num_iterations = min(num_iterations, len(boundaries) - 1)
    for i in range(num_iterations):
        end += to_ns(tokens_s(coefficients, tokens, decode_kv_tokens) + once)
        boundaries[i + 1] = end
        if end >= until_ns:
            return i + 1
        tokens = num_seqs
        kv_tokens += num_seqs
        decode_kv_tokens = kv_tokens
        once = 0.0
    return num_iterations
