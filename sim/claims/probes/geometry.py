"""Sizes that follow from a model's shape and a GPU's memory."""

from __future__ import annotations

from pathlib import Path

from sim.allocators.base import Admission
from sim.allocators.contiguous import Contiguous
from sim.allocators.paged import Paged
from sim.claims.probes.pools import Pool
from sim.config.engine_presets import read_engine
from sim.hardware.budget import memory_budget
from sim.hardware.by_name import GPUS, MODELS, find_device, find_model
from sim.hardware.types import GIB, Device, Model, on_one_gpu

GB = 1e9


def kv_bytes_per_token(model: str) -> int:
    """Bytes of keys and values that a token takes, all layers."""
    return model_named(model).kv_bytes_per_token


def kv_of_sequence(
    model: str, tokens: int, units: tuple[str, ...] = ("GB", "GiB")
) -> dict[str, float]:
    """What the KV of a sequence takes, in units of 1e9 bytes (GB) and of 2**30 (GiB)."""
    size = model_named(model).kv_bytes_per_token * tokens
    return {unit: size / {"GB": GB, "GiB": GIB}[unit] for unit in units}


def requests_of_max_length(model: str, memory_gib: list[float], tokens: int) -> dict[str, int]:
    """How many reservations of so many tokens contiguous memory of each size takes."""
    found = {}
    for size in memory_gib:
        num_slots = int(size * GIB) // model_named(model).kv_bytes_per_token
        pool = Pool(Contiguous("max"), num_slots, tokens)
        while pool.admit(pool.open(1, 1)) is Admission.OK:
            pass
        found[f"{size:g} GiB"] = pool.num_admitted
    return found


def memory_layout(
    model: str,
    device: str,
    gpu_memory_utilization: float = 0.9,
    total_gb: float | None = None,
) -> dict[str, float]:
    """What a model's weights take of a GPU, and what vLLM's start-up leaves to KV.

    weights_gb is in 1e9 bytes, the fractions are of the GPU's memory; total_gb, in 1e9 bytes,
    stands in for that in weights_frac.
    """
    served, gpu = model_named(model), device_named(device)
    budget = memory_budget(served, gpu, gpu_memory_utilization)
    total = gpu.memory_bytes if total_gb is None else total_gb * GB
    return {
        "weights_gb": budget.weights_bytes / GB,
        "weights_frac": budget.weights_bytes / total,
        "kv_frac": budget.kv_bytes / gpu.memory_bytes,
    }


def kv_slots(model: str, kv_gib: float, block_size: int = 16) -> int:
    """Slots in whole blocks of a KV memory of that many GiB."""
    num_slots = int(kv_gib * GIB) // model_named(model).kv_bytes_per_token
    pool = Pool(Paged(block_size), num_slots, 1)
    return pool.num_blocks * block_size


def budget_slots(
    model: str, device: str, tensor_parallel_size: int = 1, gpu_memory_utilization: float = 0.9
) -> int:
    """Slots that the weights leave in that fraction of the memory CUDA reports, nothing else."""
    share = on_one_gpu(model_named(model), tensor_parallel_size)
    return memory_budget(share, device_named(device), gpu_memory_utilization).num_slots


def weights_and_kv_frac(
    rows: dict[str, dict[str, float]], mixed_units: bool = False
) -> dict[str, float]:
    """Which fraction of the GPUs' memory a model's weights and its KV are together.

    rows maps models to total_gib and kv_gib, both of all GPUs. With mixed_units the weights count
    in 1e9 bytes, the other two in 2**30, and the numbers are taken for one unit.
    """
    found = {}
    for model, row in rows.items():
        weights = (model_named(model).weights_bytes or 0) / (GB if mixed_units else GIB)
        found[model] = (weights + row["kv_gib"]) / row["total_gib"]
    return found


def default_block_size(engine: str) -> int:
    """Tokens a block where nobody says otherwise: the engine's preset."""
    block_size: int = read_engine(engine, Path()).part("allocator", None)["block_size"]
    return block_size


def model_named(name: str) -> Model:
    """The preset of a name or an alias. Raises ValueError."""
    found = find_model(name)
    if found is None:
        raise ValueError(f"unknown model {name!r}; accepted: {', '.join(MODELS)}")
    return found


def device_named(name: str) -> Device:
    """The preset of a name or an alias. Raises ValueError."""
    found = find_device(name)
    if found is None:
        raise ValueError(f"unknown device {name!r}; accepted: {', '.join(GPUS)}")
    return found
