"""Iteration times from measured or fitted kernel times, which know the block size.

    iteration = host
              + layers x (linears and small operations at the batch's tokens, all-reduces)
              + layers x decode attention (sequences, their KV, block size)
              + layers x prefill attention (prompt tokens, their context)
              + output layer and sampler, copies within the pool, swaps over the host link

Times of kernels come from a profile (sim/costs/profiles): closed forms with tables of corrections,
each with its error on rows kept out of the fit. Before anything runs they become tables for the
model's shape, whose cumulative maximum makes time nondecreasing in KV tokens at a fixed batch and
in the batch at a fixed length. A batch is its sums: that lengths differ is worth 2 % at the median
(LLMServingSim's ragged batches). Kernels of one profile are one GPU's: with tensor parallelism each
GPU has its share, and two all-reduces a layer are added.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

import numpy as np

from sim.costs.base import CostModel
from sim.costs.measured_choice import Given, all_reduce, choose, shape_of
from sim.costs.measured_ops import OUTSIDE_KINDS, count_outside, first_s, measured_plan
from sim.costs.measured_tables import build_tables
from sim.costs.profile import Profile, ProfileError, load_profile, profile_digest
from sim.jit import direct
from sim.sequence import IntArray

# profiles that a device's name stands for
DEVICES = {
    "h200-sxm": "h200",
    "h100-sxm": "h100",
    "a100-80gb-sxm": "a100-80",
    "a100-40gb-sxm": "a100-40-2023",
    "rtx-4090": "rtx-4090",
}


class Measured(CostModel):
    """Times of real kernels at the batch's sizes, from a profile of a GPU.

    profile is a name (kvsim list profiles) or the path of a .yaml; the device's own if left out.
    kernel is whose decode kernel, as the profile names it (vllm, sglang, trtllm); its default if
    left out. paging says what paging costs: a preset (equal-prefetch, 2023-kernel,
    page-smaller-than-tile) or profile, its own tables. host_us is added to every iteration; the
    profile's assumption if left out. block_size is the allocator's: None is contiguous memory. All
    else is the experiment's model and device unless it is given here.
    """

    kind: ClassVar[str] = "measured"
    files: ClassVar[tuple[str, ...]] = ("profile",)
    counts_extrapolation: ClassVar[bool] = True
    from_hardware: ClassVar[Mapping[str, str]] = {
        "profile": "device.name",
        "block_size": "allocator.block_size",
        "layers": "model.layers",
        "hidden": "model.hidden",
        "heads": "model.heads",
        "kv_heads": "model.kv_heads",
        "head_dim": "model.head_dim",
        "kv_bytes_per_token": "model.kv_bytes_per_token",
        "kv_dtype": "model.kv_dtype",
        "weights_bytes": "model.weights_bytes",
        "num_params": "model.num_params",
        "num_active_params": "model.num_active_params",
        "num_expert_params": "model.num_expert_params",
        "num_embedding_params": "model.num_embedding_params",
        "vocab": "model.vocab",
        "tensor_parallel_size": "model.tensor_parallel_size",
        "nvlink_gb_s": "device.nvlink_gb_s",
        "pcie_gb_s": "device.pcie_gb_s",
    }

    def __init__(  # noqa: PLR0913 - each is a key of the configuration
        self,
        *,
        profile: str | None = None,
        kernel: str | None = None,
        paging: str | None = None,
        host_us: float | None = None,
        block_size: int | None = None,
        layers: int | None = None,
        hidden: int | None = None,
        heads: int | None = None,
        kv_heads: int | None = None,
        head_dim: int | None = None,
        kv_bytes_per_token: int | None = None,
        kv_dtype: str | None = None,
        weights_bytes: int | None = None,
        num_params: int | None = None,
        num_active_params: int | None = None,
        num_expert_params: int | None = None,
        num_embedding_params: int | None = None,
        vocab: int | None = None,
        tensor_parallel_size: int | None = None,
        nvlink_gb_s: float | None = None,
        pcie_gb_s: float | None = None,
    ) -> None:
        facts = {
            "layers": layers,
            "hidden": hidden,
            "heads": heads,
            "kv_heads": heads if kv_heads is None else kv_heads,
            "head_dim": head_dim,
            "kv_bytes_per_token": kv_bytes_per_token,
            "weights_bytes": weights_bytes,
            "num_params": num_params,
        }
        known = {name: self._known(name, value) for name, value in facts.items()}
        given = Given(kernel, paging, kv_dtype, block_size, host_us, pcie_gb_s)
        size = 1 if tensor_parallel_size is None else tensor_parallel_size
        size = self._known("tensor_parallel_size", size)
        found = _profile(profile)
        optional = (num_active_params, num_expert_params, num_embedding_params, vocab)
        reduced = all_reduce(found, size, (nvlink_gb_s, pcie_gb_s))
        self.shape = shape_of(known, optional, reduced)
        warnings: list[str] = []
        self.chosen = choose(found, self.shape, given, warnings)
        self.warnings = tuple(f"cost profile {found.name}: {line}" for line in warnings)
        self.source = f"{found.name}, {found.kind}: {found.source}"
        self.tables = build_tables(self.chosen, self.shape)
        self.notes = (self._note(),)
        self.errors = tuple(self._errors())
        self._outside = np.zeros(len(OUTSIDE_KINDS), np.int64)
        t, integers = self.tables, np.zeros(1, np.int64)
        self._arrays = (t.tokens, t.seqs, t.decode, t.prefill, t.numbers)
        self._plan = direct(measured_plan, integers, *self._arrays, integers, 1, 0)
        self._count = direct(count_outside, integers, 1, t.limits, self._outside)

    def _note(self) -> str:
        """The kernels, and what making the tables nondecreasing has changed in decode attention."""
        chosen, raised = self.chosen, self.tables.raised["decode"]
        layout = f"blocks of {chosen.block_size}" if chosen.block_size else "contiguous memory"
        return (
            f"{chosen.decode.name}, {layout}, paging {chosen.paging}; made nondecreasing: "
            f"{100 * raised.share:.1f} % of its times raised, {100 * raised.mean:.2f} % on average"
        )

    def _errors(self) -> Iterator[str]:
        """What each kernel is off on rows kept out of its fit, in percent of the time."""
        chosen = self.chosen
        kernels = (chosen.decode, chosen.prefill, chosen.linear, chosen.mixed)
        for kind, kernel in zip(("decode", "prefill", "linear", "mixed"), kernels, strict=True):
            if kernel is None:
                continue
            kept_out = [cell for cell in kernel.errors.values() if isinstance(cell, dict)]
            mapes = [cell["mape"] for cell in kept_out if "mape" in cell]
            known = f"{max(mapes):.1f} % off rows kept out" if mapes else "no rows kept out"
            yield f"{chosen.profile.name}, {kind}, {kernel.name}: {known}"

    @classmethod
    def digest(cls, parameters: Mapping[str, Any]) -> str:
        """A hash of the profile's file: results depend on what is in it."""
        return profile_digest(_profile_name(parameters["profile"]))

    def iteration_s(self, batch: IntArray) -> float:
        return float(first_s(*self._arrays, batch))

    def plan(
        self, batch: IntArray, boundaries: IntArray, num_iterations: int, until_ns: int
    ) -> int:
        return self._plan(batch, *self._arrays, boundaries, num_iterations, until_ns)

    def passed(self, batch: IntArray, count: int) -> None:
        self._count(batch, count, self.tables.limits, self._outside)

    def extrapolated(self) -> dict[str, int]:
        return dict(zip(OUTSIDE_KINDS, self._outside.tolist(), strict=True))


def _profile_name(name: str | None) -> str:
    """The profile that a device's name stands for, or the name itself. Raises ValueError."""
    if name is None:
        raise ValueError(f"profile: is required; accepted: {', '.join(DEVICES.values())}, a path")
    return DEVICES.get(name, name)


def _profile(name: str | None) -> Profile:
    try:
        return load_profile(_profile_name(name))
    except ProfileError as error:
        is_unknown = str(error).startswith("unknown profile")
        hint = " (left out, it is the device's name)" if is_unknown else ""
        raise ValueError(f"profile: {error}{hint}") from None
