"""How many slots an experiment's pool has: given, or what model and device leave."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field

from sim.config.plugins import Report, Strict, split_key
from sim.hardware.budget import Budget, describe_budget, memory_budget
from sim.hardware.types import Device, Model, on_one_gpu, with_dtypes

MAX_SLOTS = 1 << 28  # the free list of so many single slots takes 1 GiB

Slots = Annotated[int, Field(ge=1, le=MAX_SLOTS)]
NumGpus = Annotated[int, Field(ge=1, le=1024)]
DType = Literal["auto", "float16", "bfloat16", "float32"]
KvDType = Literal["auto", "float16", "bfloat16", "float32", "fp8", "fp8_e4m3", "fp8_e5m2"]


class KvCacheKeys(Strict):
    """kv_cache: {num_slots} or {num_gpu_blocks, block_size}.

    num_slots is the number of tokens whose KV the pool holds.
    num_gpu_blocks is the number of blocks that an engine reports.
    block_size is how many tokens one of those blocks holds.
    """

    num_slots: Slots | None = None
    num_gpu_blocks: Slots | None = None
    block_size: Slots | None = None


def served_model(
    model: Model | None, dtypes: tuple[str, str], tensor_parallel_size: int, report: Report
) -> Model | None:
    """The model as one GPU serves it; None if there is none or it cannot be served so.

    dtypes are those of weights and KV.
    """
    if model is None:
        keys = ("dtype", "kv_cache_dtype", "tensor_parallel_size")
        for key, value in zip(keys, (*dtypes, tensor_parallel_size), strict=True):
            if value not in {"auto", 1}:
                report((key,), "says how a model is served, but there is no model")
        return None
    try:
        return on_one_gpu(with_dtypes(model, *dtypes), tensor_parallel_size)
    except ValueError as error:
        report(*split_key(str(error)))
        return None


@dataclass(frozen=True)
class PoolKeys:
    """What decides the size of the pool. The model is one GPU's share of it."""

    model: Model | None
    device: Device | None
    gpu_memory_utilization: float
    activation_bytes: int
    non_torch_bytes: int
    kv_cache: KvCacheKeys | None


def find_pool(keys: PoolKeys, report: Report) -> tuple[int | None, list[str]]:
    """Slots of the pool, None if they are wrong; and lines that explain them.

    Without kv_cache there must be a model and a device.
    """
    if keys.kv_cache is not None:
        num_slots = _given_slots(keys.kv_cache, report)
        budget = _budget(keys, lambda where, sentence: None)  # may be larger than life
        shown = f"{num_slots:,}" if num_slots else "?"
        return num_slots, [*_lines(keys, budget), f"kv_cache      {shown} slots, as given"]
    budget = _budget(keys, report)
    if budget is None:
        return None, []
    if budget.num_slots > MAX_SLOTS:
        report(("device",), f"leaves {budget.num_slots:,} slots; accepted: at most {MAX_SLOTS:,}")
        return None, []
    return budget.num_slots, _lines(keys, budget)


def _budget(keys: PoolKeys, report: Report) -> Budget | None:
    if keys.model is None or keys.device is None:
        return None
    try:
        return memory_budget(
            keys.model,
            keys.device,
            keys.gpu_memory_utilization,
            keys.activation_bytes,
            keys.non_torch_bytes,
        )
    except ValueError as error:
        report(*split_key(str(error)))
        return None


def _lines(keys: PoolKeys, budget: Budget | None) -> list[str]:
    if keys.model is None or keys.device is None or budget is None:
        return []
    return describe_budget(keys.model, keys.device, budget)


def _given_slots(keys: KvCacheKeys, report: Report) -> int | None:
    """The slots that kv_cache says; None, and reported, if it does not say it in one way."""
    if keys.num_slots is not None and keys.num_gpu_blocks is None and keys.block_size is None:
        return keys.num_slots
    if keys.num_slots is not None or keys.num_gpu_blocks is None or keys.block_size is None:
        report(
            ("kv_cache",),
            "must say the number of slots in one way; "
            "accepted: {num_slots} or {num_gpu_blocks, block_size}",
        )
        return None
    num_slots = keys.num_gpu_blocks * keys.block_size
    if num_slots > MAX_SLOTS:
        report(("kv_cache",), f"is {num_slots:,} slots; accepted: at most {MAX_SLOTS:,}")
        return None
    return num_slots
