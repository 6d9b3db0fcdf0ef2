"""What paging costs an attention kernel against contiguous memory: named presets, with sources.

A preset is two tables over the block size, of decode and of prefill attention: factors on the time
of the same kernel with contiguous keys and values. A profile measured with several block sizes has
tables of its own instead.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sim.costs.forms import Floats
from sim.costs.grid import Axis, Grid

OWN_PAGING = "profile"  # instead of a preset: the profile's own tables
BLOCK_AXIS = Axis("block_size", 0, 1, 9)  # 1 to 256 tokens


@dataclass(frozen=True)
class Preset:
    """Factors at block sizes 1, 2, 4, … 256, and where they are from."""

    decode: tuple[float, ...]
    prefill: tuple[float, ...]
    source: str

    def grids(self) -> dict[str, Grid]:
        """The preset as a profile's own tables are kept."""
        return {
            "decode": Grid((BLOCK_AXIS,), np.log(np.array(self.decode))),
            "prefill": Grid((BLOCK_AXIS,), np.log(np.array(self.prefill))),
        }


def _flat(factor: float) -> tuple[float, ...]:
    return (factor,) * BLOCK_AXIS.count


# page 1, 8, 32 and 128 of a kernel whose threads each compute an address: 2.32, 3.90, 4.37 and 5.26
# TB/s; the others are interpolated over the logarithm of the page
_PER_THREAD_TB_S = np.interp(np.arange(9), [0, 3, 5, 7, 8], [2.32, 3.90, 4.37, 5.26, 5.26])
_SHAPE_2023 = (_PER_THREAD_TB_S[4] / _PER_THREAD_TB_S) * 1.23

PRESETS: dict[str, Preset] = {
    "equal-prefetch": Preset(
        _flat(1.015),
        _flat(1.015),
        "0 to 3 % where bandwidth limits and as many tiles are in flight as without paging: FA3 at "
        "page 64 and at page 1 are 1 % apart above 1 GB of KV (H200, bf16), FlashInfer issue 637 "
        "has 1 to 2 %",
    ),
    "2023-kernel": Preset(
        tuple(np.maximum(1.0, _SHAPE_2023).round(3).tolist()),
        _flat(1.0),
        "PagedAttention paper, Fig. 18a: 20 to 26 % at block 16 against FasterTransformer; other "
        "block sizes are an assumption: the shape of FlashAttention pull request 2104's kernel "
        "with an address a thread. Prompts ran on contiguous memory",
    ),
    "page-smaller-than-tile": Preset(
        (*(1.25,) * 7, 1.005, 1.005),
        (*(1.25,) * 7, 1.005, 1.005),
        "15 to 25 % of the rate where arithmetic limits and a block is smaller than the kernel's "
        "tile of 128 keys (FlashAttention pull request 2468: 16 and 64 lose 17 to 24 %, 128 at "
        "most 1 %); kernels that read a tile as one block",
    ),
}


def paging_factor(grid: Grid, block_size: int | None, kv_mb: Floats) -> Floats:
    """Time against contiguous memory, at a block size (None: contiguous) and MB of KV a call."""
    if block_size is None:
        return np.ones(np.shape(kv_mb))
    sizes = {"block_size": np.full(np.shape(kv_mb), float(block_size)), "kv_mb": kv_mb}
    return grid.factor([sizes[axis.name] for axis in grid.axes])
