"""How many requests fit: the memory budget of models on GPUs, before anything is simulated.

A row is one model on one kind of GPU at one parallel degree: the terms of budget.py, the blocks
they leave, and how many requests of which lengths those hold at a time. Concurrency at
max_model_len is what vLLM prints when it starts: blocks over the blocks of the longest sequence.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from sim.hardware.budget import memory_budget
from sim.hardware.types import GIB, Device, Model, on_one_gpu, with_dtypes

Row = dict[str, Any]
TERMS = ("weights", "activations", "non_torch", "kv", "unused")  # of a GPU's memory, in GiB


@dataclass(frozen=True)
class Serving:
    """How a model is served: what an engine is told, in its own words. Bytes are of each GPU."""

    gpu_memory_utilization: float = 0.9
    block_size: int = 16
    max_model_len: int | None = None
    dtype: str = "auto"
    kv_cache_dtype: str = "auto"
    activation_bytes: int = 0
    non_torch_bytes: int = 0


def capacity_rows(
    models: Sequence[Model],
    devices: Sequence[Device],
    tensor_parallel_sizes: Sequence[int],
    serving: Serving,
    lengths: Sequence[int] = (),
) -> Iterator[Row]:
    """A row for every model, GPU and parallel degree; one that cannot be has a reason.

    lengths are tokens of requests, prompt and output together.
    """
    for model, device, size in itertools.product(models, devices, tensor_parallel_sizes):
        row: Row = {
            "model": model.name,
            "device": device.name,
            "tensor_parallel_size": size,
            "reason": "",
        }
        try:
            share = on_one_gpu(with_dtypes(model, serving.dtype, serving.kv_cache_dtype), size)
            yield row | _fitting(share, device, serving, lengths)
        except ValueError as error:
            yield row | {"reason": str(error)}


def _fitting(model: Model, device: Device, serving: Serving, lengths: Sequence[int]) -> Row:
    """What fits on each GPU. Raises ValueError where nothing does."""
    budget = memory_budget(
        model,
        device,
        serving.gpu_memory_utilization,
        serving.activation_bytes,
        serving.non_torch_bytes,
    )
    longest = serving.max_model_len or model.max_len
    if longest is None:
        raise ValueError(f"max_model_len: {model.name} does not say its own; give one")
    size = serving.block_size
    num_blocks = budget.num_slots // size
    held = {
        f"requests_of_{length}": num_blocks // -(-length // size)
        for length in lengths
        if length <= longest
    }
    return {
        "memory_gib": budget.total_bytes / GIB,
        "weights_gib": budget.weights_bytes / GIB,
        "activations_gib": budget.activation_bytes / GIB,
        "non_torch_gib": budget.non_torch_bytes / GIB,
        "kv_gib": budget.kv_bytes / GIB,
        "unused_gib": (budget.total_bytes - budget.usable_bytes) / GIB,
        "kv_bytes_per_token": budget.kv_bytes_per_token,
        "num_blocks": num_blocks,
        "num_slots": num_blocks * size,
        "max_model_len": longest,
        "max_concurrency": num_blocks / -(-longest // size),
        **held,
    }
