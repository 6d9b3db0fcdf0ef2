"""How many slots an experiment's pool has: given, or what model and device leave."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import Field

from sim.hardware import (
    GPU_ALIASES,
    GPUS,
    MODEL_ALIASES,
    MODELS,
    Budget,
    Device,
    Model,
    describe_budget,
    find_device,
    find_model,
    memory_budget,
)
from sim.plugins import Report, Strict, guess, split_key, validate

MAX_SLOTS = 1 << 28  # the free list of so many single slots takes 1 GiB
MAX_MODEL_LEN = 1 << 26

Slots = Annotated[int, Field(ge=1, le=MAX_SLOTS)]
ModelLen = Annotated[int, Field(ge=1, le=MAX_MODEL_LEN)]
Bytes = Annotated[int, Field(ge=0)]


class KvCacheKeys(Strict):
    """kv_cache: {num_slots} or {num_gpu_blocks, block_size}."""

    num_slots: Slots | None = None
    num_gpu_blocks: Slots | None = None
    block_size: Slots | None = None


class ModelKeys(Strict):
    """model: {…} instead of a preset."""

    kv_bytes_per_token: Annotated[int, Field(ge=1)]
    max_len: ModelLen | None = None
    weights_bytes: Bytes | None = None


class DeviceKeys(Strict):
    """device: {…} instead of a preset."""

    memory_bytes: Annotated[int, Field(ge=1)]


def read_model(value: Any, report: Report) -> Model | None:
    """The model that an experiment names or describes; None if there is none or it is wrong."""
    if value is None:
        return None
    if isinstance(value, dict):
        keys = validate(ModelKeys, value, ("model",), report)
        if not isinstance(keys, ModelKeys):
            return None
        return Model("model", keys.kv_bytes_per_token, keys.max_len, keys.weights_bytes)
    found = find_model(value) if isinstance(value, str) else None
    if found is None:
        _report_preset("model", value, (MODELS, MODEL_ALIASES), report)
    return found


def read_device(value: Any, report: Report) -> Device | None:
    """The device that an experiment names or describes; None if there is none or it is wrong."""
    if value is None:
        return None
    if isinstance(value, dict):
        keys = validate(DeviceKeys, value, ("device",), report)
        return Device("device", keys.memory_bytes) if isinstance(keys, DeviceKeys) else None
    found = find_device(value) if isinstance(value, str) else None
    if found is None:
        _report_preset("device", value, (GPUS, GPU_ALIASES), report)
    return found


def _report_preset(
    key: str, value: object, known: tuple[Mapping[str, object], Mapping[str, str]], report: Report
) -> None:
    presets, aliases = known
    fields = {"model": "kv_bytes_per_token", "device": "memory_bytes"}[key]
    near = guess(str(value), [*presets, *aliases]).split("; ", maxsplit=1)[0]
    hint = near if near.startswith(",") else ""
    names = ", ".join(presets)
    report((key,), f"unknown {key} {value!r}{hint}; accepted: {names}, or {{{fields}: …}}")


@dataclass(frozen=True)
class PoolKeys:
    """What decides the size of the pool."""

    model: Model | None
    device: Device | None
    gpu_memory_utilization: float
    activation_bytes: int
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
            keys.model, keys.device, keys.gpu_memory_utilization, keys.activation_bytes
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
