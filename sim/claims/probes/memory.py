"""What tokens take in memory, and when loading them beats computing them again."""

from __future__ import annotations

from collections.abc import Mapping

from sim.claims.probes.geometry import model_named
from sim.hardware.by_name import GIB, find_device


def memory_of_tokens(model: str, memory_bytes: int, tokens: int) -> dict[str, float]:
    """Tokens that fit into some bytes, and GiB that some tokens take."""
    per_token = model_named(model).kv_bytes_per_token
    return {"tokens": memory_bytes // per_token, "gb": tokens * per_token / GIB}


def reuse_break_even_gb_s(
    model: str, prompt_tokens: int, devices: Mapping[str, str], count: int
) -> dict[str, float]:
    """The bandwidth above which loading a prompt's KV takes less time than computing it.

    Mooncake (FAST 2025), Eq. 2: a layer takes 4 n² d + 22 n d² operations for n tokens and a width
    of d, on so many GPUs at their peak rate. In 1e9 bytes/s.
    """
    found = model_named(model)
    assert found.layers is not None
    assert found.hidden is not None
    n, d = prompt_tokens, found.hidden
    operations = found.layers * (4 * n * n * d + 22 * n * d * d)
    result = {}
    for name, device in devices.items():
        gpu = find_device(device)
        if gpu is None or gpu.bf16_tflops is None:
            raise ValueError(f"device: {device} is not known, or its rate is not")
        seconds = operations / (count * gpu.bf16_tflops * 1e12)
        result[name] = n * found.kv_bytes_per_token / seconds / 1e9
    return result
