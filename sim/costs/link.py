"""The link between host and GPU: its rate falls off a cliff where blocks are small.

A swap moves each block of each layer, K and V apart, as a copy of its own. Published rates of one
batched call (H100, vllm-project/vllm pull request 42212, the median over 10,000 to 100,000 blocks
a call) are 4 to 7 GB/s up to 24 KiB and 40 GB/s from 28 KiB on.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

PCIE_5_GB_S = 64.0  # what the published rates were measured on

# (KiB of a copy, GB/s)
RATES: tuple[tuple[float, float], ...] = (
    (4, 4.0),
    (8, 5.3),
    (16, 6.3),
    (24, 6.9),
    (28, 39.9),
    (64, 51.4),
)


def link_gb_s(
    copy_bytes: float, pcie_gb_s: float, rates: Sequence[tuple[float, float]] = RATES
) -> float:
    """GB/s at which blocks of copy_bytes cross a link of pcie_gb_s (one way).

    Between the sizes the rate is interpolated on logarithms; smaller copies take as long as the
    smallest one, larger ones have the last rate. Other links than the measured one are scaled: an
    assumption.
    """
    sizes = np.log2([1024 * kib for kib, _ in rates])
    logs = np.log2([rate for _, rate in rates])
    below = min(0.0, float(np.log2(max(copy_bytes, 1))) - float(sizes[0]))
    rate = 2 ** (float(np.interp(np.log2(max(copy_bytes, 1)), sizes, logs)) + below)
    return rate * pcie_gb_s / PCIE_5_GB_S


def block_copy_bytes(block_size: int, kv_heads: int, head_dim: int, kv_width: float) -> float:
    """Bytes of one copy: K or V of one block, one layer."""
    return block_size * kv_heads * head_dim * kv_width
