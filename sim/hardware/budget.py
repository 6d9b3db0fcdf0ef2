"""The KV pool that a model leaves on a GPU, term by term.

The budget is the one that serving engines make at start-up (vLLM's gpu_memory_utilization), for
each of tensor_parallel_size equal GPUs:

    KV pool = floor(memory x gpu_memory_utilization) - weights - activations - non-torch
    slots   = floor(KV pool / KV bytes per token)

Activations are what an engine finds by running its largest batch once, non-torch what CUDA and
NCCL take beside it; public start-up logs of vLLM show 0.2 to 2.4 GiB of the one and 0.1 to 3.6 of
the other (tests/test_start_up_logs.py). Neither is predicted: both are 0 unless given, and so the
slots are an upper bound. For OPT-13B on an A100-40GB at 0.9 that gives 15,090 slots. The 15.7K of
the PagedAttention paper's Table 1 are 0.9 of 40 GiB, of which CUDA reports 39.39: to repeat the
paper, give kv_cache.num_slots: 15728 rather than adjusting a term here.
"""

from __future__ import annotations

from dataclasses import dataclass

from sim.hardware.types import GIB, Device, Model


@dataclass(frozen=True)
class Budget:
    """How a GPU's memory is divided, in bytes, and the KV slots that come of it."""

    total_bytes: int
    gpu_memory_utilization: float
    usable_bytes: int
    weights_bytes: int
    activation_bytes: int
    non_torch_bytes: int
    kv_bytes: int
    kv_bytes_per_token: int
    num_slots: int


def memory_budget(
    model: Model,
    device: Device,
    gpu_memory_utilization: float,
    activation_bytes: int = 0,
    non_torch_bytes: int = 0,
) -> Budget:
    """Divide a GPU's memory between weights, activations and KV; the model is its share of one.

    Raises ValueError if the weights are unknown, or if they leave no room for a single token;
    the message starts with the key at fault.
    """
    if model.weights_bytes is None:
        why = f" ({model.why_no_weights})" if model.why_no_weights else ""
        raise ValueError(
            f"model.weights_bytes: is needed to find the pool that device leaves{why}; "
            "or give kv_cache.num_slots"
        )
    usable = int(device.memory_bytes * gpu_memory_utilization)
    kv_bytes = usable - model.weights_bytes - activation_bytes - non_torch_bytes
    if kv_bytes < model.kv_bytes_per_token:
        others = activation_bytes + non_torch_bytes
        beside = f" and {_gib(others)} of activations and others" if others else ""
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
        non_torch_bytes=non_torch_bytes,
        kv_bytes=kv_bytes,
        kv_bytes_per_token=model.kv_bytes_per_token,
        num_slots=kv_bytes // model.kv_bytes_per_token,
    )


def describe_budget(model: Model, device: Device, budget: Budget) -> list[str]:
    """The budget of one GPU term by term, one line each."""
    given = "" if budget.activation_bytes else "  (not predicted: an upper bound; activation_bytes)"
    size = model.tensor_parallel_size
    beside = f", one of {size} like it" if size > 1 else ""
    terms = [
        ("memory", budget.total_bytes, f"  {device.name}{beside}, {device.memory_source}"),
        ("usable", budget.usable_bytes, f"  x {budget.gpu_memory_utilization:g}"),
        ("- weights", budget.weights_bytes, f"  {_weights(model)}, {model.source}"),
        ("- activations", budget.activation_bytes, given),
        ("- non-torch", budget.non_torch_bytes, ""),
        ("= KV pool", budget.kv_bytes, ""),
    ]
    lines = [
        f"{name:<14}{_gib(count):>12}{note}"
        for name, count, note in terms
        if count or name != "- non-torch"
    ]
    slots = f"{budget.num_slots:,} slots of {budget.kv_bytes_per_token:,} bytes"
    return [*lines, f"{'':<14}{slots}{_kv(model)}"]


def _weights(model: Model) -> str:
    """Whose weights they are, how stored, and which part of them."""
    size = model.tensor_parallel_size
    part = f"1/{size} of " if size > 1 else ""
    kind = f" {model.quantization}" if model.quantization else ""
    return f"{part}{model.name}{kind}"


def _kv(model: Model) -> str:
    """What the KV of a token is made of, where it is not plainly 16 bits on one GPU."""
    parts = [] if model.kv_dtype in {"float16", "bfloat16"} else [model.kv_dtype]
    if model.tensor_parallel_size > 1:
        if model.has_latent_kv:
            parts.append("the latent is copied to every GPU")
        else:
            heads = "head" if model.kv_heads == 1 else "heads"
            parts.append(f"{model.kv_heads} KV {heads} a GPU")
    return f"  ({', '.join(parts)})" if parts else ""


def _gib(count: int) -> str:
    return f"{count / GIB:.2f} GiB"
