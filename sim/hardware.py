"""Models, GPUs, and the KV pool that one leaves on the other.

The numbers are data with their sources: presets/models.yaml and presets/gpus.yaml. Bytes are bytes;
GB is 1e9 of them and GiB 2**30, and nothing here uses one for the other.

The budget is the one that serving engines make at start-up (vLLM's gpu_memory_utilization):

    KV pool = floor(memory x gpu_memory_utilization) - weights - activations
    slots   = floor(KV pool / KV bytes per token)

Weights are 2 bytes a parameter. Activations are what an engine finds by running its largest
batch once; public start-up logs of vLLM show from a tenth of a GiB to a few. That is not
predicted: activation_bytes is 0 unless given, and so the slots are an upper bound. For OPT-13B
on an A100-40GB at 0.9 that gives 15,098 slots; the PagedAttention paper's Table 1 has 12 GiB for
KV, 15.7K slots, because its weights and KV together are 95 % of 40 GiB. To repeat the paper, give
kv_cache.num_slots: 15728 rather than adjusting a term here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

BYTES_PER_VALUE = 2  # fp16 and bf16, weights and KV alike
GIB = 1 << 30

_PRESETS = Path(__file__).parent / "presets"


@dataclass(frozen=True)
class Model:
    """What memory needs to know of a model.

    max_len is in tokens; None where the user gave no number. geometry holds what the preset
    says beyond that (layers, hidden, heads, …), for cost models.
    """

    name: str
    kv_bytes_per_token: int
    max_len: int | None = None
    weights_bytes: int | None = None
    source: str = "given by the user"
    geometry: Mapping[str, int] | None = None

    def __str__(self) -> str:
        parts = [f"{self.kv_bytes_per_token:,} KV bytes a token"]
        if self.weights_bytes is not None:
            parts.append(f"weights {self.weights_bytes / 1e9:.4g} GB")
        if self.max_len is not None:
            parts.append(f"max_len {self.max_len}")
        return ", ".join(parts)


@dataclass(frozen=True)
class Device:
    """A GPU: memory in bytes, bandwidth in 1e9 bytes/s, dense BF16 in 1e12 operations/s."""

    name: str
    memory_bytes: int
    memory_source: str = "given by the user"
    memory_gb_s: float | None = None
    bf16_tflops: float | None = None
    nvlink_gb_s: float | None = None
    pcie_gb_s: float | None = None
    source: str = "given by the user"

    def __str__(self) -> str:
        parts = [f"{self.memory_bytes / GIB:.2f} GiB"]
        if self.memory_gb_s is not None:
            parts.append(f"{self.memory_gb_s:,} GB/s")
        if self.bf16_tflops is not None:
            parts.append(f"{self.bf16_tflops:g} TFLOPS")
        return ", ".join(parts)


@dataclass(frozen=True)
class Budget:
    """How a GPU's memory is divided, in bytes, and the KV slots that come of it."""

    total_bytes: int
    gpu_memory_utilization: float
    usable_bytes: int
    weights_bytes: int
    activation_bytes: int
    kv_bytes: int
    kv_bytes_per_token: int
    num_slots: int


def kv_bytes_per_token(geometry: Mapping[str, int]) -> int:
    """Bytes that one token's KV takes over all layers, at 2 bytes a value.

    With latent attention (kv_lora_rank) a layer keeps one latent and one rotary key; otherwise a
    key and a value for each KV head.
    """
    if "kv_lora_rank" in geometry:
        values = geometry["kv_lora_rank"] + geometry["qk_rope_head_dim"]
    else:
        values = 2 * geometry["kv_heads"] * geometry["head_dim"]
    return geometry["layers"] * values * BYTES_PER_VALUE


def memory_budget(
    model: Model, device: Device, gpu_memory_utilization: float, activation_bytes: int = 0
) -> Budget:
    """Divide a GPU's memory between weights, activations and KV.

    Raises ValueError if the weights are unknown, or if they leave no room for a single token;
    the message starts with the key at fault.
    """
    if model.weights_bytes is None:
        raise ValueError(
            "model.weights_bytes: is needed to find the pool that device leaves; "
            "or give kv_cache.num_slots"
        )
    usable = int(device.memory_bytes * gpu_memory_utilization)
    kv_bytes = usable - model.weights_bytes - activation_bytes
    if kv_bytes < model.kv_bytes_per_token:
        beside = f" and {_gib(activation_bytes)} of activations" if activation_bytes else ""
        raise ValueError(
            f"device: {_gib(model.weights_bytes)} of weights ({model.name}){beside} leave no KV "
            f"memory in {gpu_memory_utilization:g} of {_gib(device.memory_bytes)} ({device.name})"
        )
    return Budget(
        total_bytes=device.memory_bytes,
        gpu_memory_utilization=gpu_memory_utilization,
        usable_bytes=usable,
        weights_bytes=model.weights_bytes,
        activation_bytes=activation_bytes,
        kv_bytes=kv_bytes,
        kv_bytes_per_token=model.kv_bytes_per_token,
        num_slots=kv_bytes // model.kv_bytes_per_token,
    )


def describe_budget(model: Model, device: Device, budget: Budget) -> list[str]:
    """The budget term by term, one line each."""
    given = "" if budget.activation_bytes else "  (not predicted: an upper bound; activation_bytes)"
    terms = [
        ("memory", budget.total_bytes, f"  {device.name}, {device.memory_source}"),
        ("usable", budget.usable_bytes, f"  x {budget.gpu_memory_utilization:g}"),
        ("- weights", budget.weights_bytes, f"  {model.name}, {model.source}"),
        ("- activations", budget.activation_bytes, given),
        ("= KV pool", budget.kv_bytes, ""),
    ]
    lines = [f"{name:<14}{_gib(count):>12}{note}" for name, count, note in terms]
    slots = f"{budget.num_slots:,} slots of {budget.kv_bytes_per_token:,} bytes"
    return [*lines, f"{'':<14}{slots}"]


def _gib(count: int) -> str:
    return f"{count / GIB:.2f} GiB"


def _read(name: str) -> dict[str, dict[str, Any]]:
    text = (_PRESETS / name).read_text(encoding="utf-8")
    entries: dict[str, dict[str, Any]] = yaml.safe_load(text)
    return entries


def _model(name: str, entry: Mapping[str, Any]) -> Model:
    geometry = {key: value for key, value in entry.items() if isinstance(value, int)}
    return Model(
        name=name,
        kv_bytes_per_token=kv_bytes_per_token(geometry),
        max_len=entry["max_len"],
        weights_bytes=entry["num_params"] * BYTES_PER_VALUE,
        source=entry["source"],
        geometry=geometry,
    )


def _device(name: str, entry: Mapping[str, Any]) -> Device:
    return Device(name, **{key: value for key, value in entry.items() if key != "aliases"})


def _aliases(entries: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
    return {alias.lower(): name for name, entry in entries.items() for alias in entry["aliases"]}


_MODEL_ENTRIES = _read("models.yaml")
_GPU_ENTRIES = _read("gpus.yaml")

MODELS: dict[str, Model] = {name: _model(name, entry) for name, entry in _MODEL_ENTRIES.items()}
GPUS: dict[str, Device] = {name: _device(name, entry) for name, entry in _GPU_ENTRIES.items()}
MODEL_ALIASES: dict[str, str] = _aliases(_MODEL_ENTRIES)
GPU_ALIASES: dict[str, str] = _aliases(_GPU_ENTRIES)


def find_model(name: str) -> Model | None:
    """The preset of that name or alias, upper or lower case; None if there is none."""
    return MODELS.get(MODEL_ALIASES.get(name.lower(), name.lower()))


def find_device(name: str) -> Device | None:
    """The preset of that name or alias, upper or lower case; None if there is none."""
    return GPUS.get(GPU_ALIASES.get(name.lower(), name.lower()))
