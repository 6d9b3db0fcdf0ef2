"""Which decode kernel an engine launches: it can depend on how many query heads share a KV head.

Seen in the published tables as jumps of up to twenty times between neighbouring numbers of heads,
and in line with what the engines say of their kernels:

- TensorRT-LLM has tensor-core kernels (XQA) for tiles of 16 and of 32 query heads, and a masked
  multi-head attention kernel without packing for one head a KV head and for more than 32, where
  every query head reads the keys and values for itself.
- FlashAttention-2 splits the keys of a sequence among SMs only when query heads share a KV head.

One closed form and one table of corrections cannot follow such a jump, so each has its own.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

AxisSpec = tuple[str, float, float, int]
MANY = 4096  # query heads a KV head: more than any model has


@dataclass(frozen=True)
class Launch:
    """A kernel for groups of first to last query heads a KV head.

    tile_rows: query rows of a tile. packs_heads: False where every query head is a tile that reads
    for itself. tables: corrections over base-2 logarithms, as (axis, low, step, count), in place of
    the usual ones; chosen by leave-one-out on the rows that are fitted to.
    """

    first: int
    last: int
    tile_rows: int
    packs_heads: bool = True
    tables: tuple[tuple[AxisSpec, ...], ...] = ()

    @property
    def suffix(self) -> str:
        """What it adds to the kernel's name."""
        if self.first == self.last:
            return f"group {self.first}"
        return f"group {self.first}+" if self.last == MANY else f"group {self.first}-{self.last}"

    def facts(self) -> dict[str, object]:
        """What a profile keeps of it."""
        found: dict[str, object] = {"groups": [self.first, self.last]}
        return found if self.packs_heads else {**found, "packs_heads": False}


_BY_HEAD = (("query_heads", 0, 0.5, 36), ("kv_len", 1, 1, 17))
_BY_KV_HEADS = (("batch", 0, 1, 12), ("kv_len", 4, 1, 14), ("kv_heads", 0, 0.5, 14))
_BY_TILE = (("tiles", 0, 1, 15), ("kv_len", 4, 1, 14))
_BY_GROUP = (*_BY_TILE, ("group", 0, 1, 7))
_BY_ALL = (("batch", 0, 1, 12), ("kv_len", 4, 1, 14), ("kv_heads", 0, 1, 5), ("group", 0, 1, 7))

LAUNCHES: dict[str, tuple[Launch, ...]] = {
    "trtllm trtllm_fmha": (
        Launch(1, 1, 1, tables=(_BY_HEAD, _BY_KV_HEADS)),
        Launch(2, 16, 16),
        Launch(17, 32, 32, tables=(_BY_TILE,)),
        Launch(33, MANY, 1, packs_heads=False, tables=(_BY_HEAD,)),
    ),
    "vllm fa2": (
        Launch(1, 1, 64, tables=(_BY_HEAD, _BY_KV_HEADS)),
        Launch(2, MANY, 64, tables=(_BY_GROUP, _BY_ALL)),
    ),
}


def names_of(kernels: pd.Series, rows: pd.DataFrame) -> pd.Series:
    """The kernels' names, with the launch that a row's heads get where an engine has several."""
    names = kernels.copy()
    group = np.ceil((rows["heads"] / rows["kv_heads"]).to_numpy(np.float64))
    for kernel, launches in LAUNCHES.items():
        is_own = kernels.str.startswith(f"{kernel} ").to_numpy()
        for launch in launches:
            at = is_own & (group >= launch.first) & (group <= launch.last)
            names[at] = kernels[at] + f" {launch.suffix}"
    return names


def launched(name: str) -> Launch | None:
    """The launch in a kernel's name; None for a kernel that all numbers of heads share."""
    for kernel, launches in LAUNCHES.items():
        for launch in launches:
            if name.startswith(f"{kernel} ") and name.endswith(f" {launch.suffix}"):
                return launch
    return None


def kernel_of(name: str) -> str:
    """The kernel's name without its launch."""
    launch = launched(name)
    return name.removesuffix(f" {launch.suffix}") if launch else name
