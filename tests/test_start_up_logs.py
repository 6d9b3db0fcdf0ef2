"""The budget beside what real engines said when they started, in public threads.

Each log has the memory that CUDA reports, what the engine found its activations and the rest of
the process (NCCL, CUDA's context) to take, and the blocks that it made of what was left. Given the
same terms, what remains is the weights and the bytes of a block.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from sim.hardware.budget import Budget, memory_budget
from sim.hardware.by_name import GIB, MODELS, Device, Model, find_device
from sim.hardware.hf_config import model_from_config
from sim.hardware.types import on_one_gpu

BLOCK = 16  # tokens

QWEN_32B: dict[str, Any] = {
    "model_type": "qwen2",
    "hidden_size": 5120,
    "intermediate_size": 27648,
    "num_hidden_layers": 64,
    "num_attention_heads": 40,
    "num_key_value_heads": 8,
    "vocab_size": 152064,
    "max_position_embeddings": 32768,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
}


@dataclass(frozen=True)
class Log:
    """What an engine printed: GiB of each term, on one GPU, and blocks of 16 tokens."""

    source: str
    model: Model
    memory: float
    activations: float
    non_torch: float
    weights: float
    kv: float
    blocks: int | None
    num_gpus: int = 1
    gpu_memory_utilization: float = 0.9


LLAMA_2_7B = Log(
    # the model is that of the repository's config/manifests/vllm/deployment.yaml
    source="kubernetes-sigs/gateway-api-inference-extension pull request 550, March 2025",
    model=MODELS["llama-2-7b"],
    memory=79.19,
    activations=2.38,
    non_torch=0.16,
    weights=12.55,
    kv=56.18,
    blocks=7191,
)
LLAMA_3_8B = Log(
    source="vllm-project/vllm pull request 10511, December 2024",
    model=MODELS["llama-3-8b"],
    memory=79.22,
    activations=1.26,
    non_torch=1.79,
    weights=14.96,
    kv=53.29,
    blocks=None,  # not quoted
)
QWEN_2_5_32B = Log(
    source="vllm-project/vllm issue 15815, vLLM 0.7.1 on two L40S, April 2025",
    model=model_from_config("qwen2.5-32b", QWEN_32B, "Hugging Face config.json"),
    memory=44.42,
    activations=1.26,
    non_torch=0.30,
    weights=30.71,
    kv=7.71,
    blocks=3947,
    num_gpus=2,
)


def budget_of(log: Log, more_bytes: int = 0) -> Budget:
    share = on_one_gpu(log.model, log.num_gpus)
    device = Device("as reported", int(log.memory * GIB))
    activations = int(log.activations * GIB) + more_bytes
    non_torch = int(log.non_torch * GIB)
    return memory_budget(share, device, log.gpu_memory_utilization, activations, non_torch)


@pytest.mark.parametrize("log", [LLAMA_2_7B, LLAMA_3_8B], ids=lambda log: log.model.name)
def test_given_the_same_terms_the_pool_is_the_engines(log: Log) -> None:
    """Within 0.05 %: the log's terms are rounded to 0.01 GiB."""
    budget = budget_of(log)
    assert budget.weights_bytes / GIB == pytest.approx(log.weights, abs=0.005)
    assert budget.kv_bytes / GIB == pytest.approx(log.kv, rel=5e-4)
    if log.blocks is not None:
        assert budget.num_slots // BLOCK == pytest.approx(log.blocks, rel=5e-4)


def test_half_a_model_on_each_of_two_gpus_is_what_the_engine_loaded() -> None:
    """vllm-project/vllm pull request 10511: 7.48 GiB with tensor_parallel_size 2."""
    share = on_one_gpu(MODELS["llama-3-8b"], 2)
    assert share.weights_bytes is not None
    assert share.weights_bytes / GIB == pytest.approx(7.48, abs=0.005)


def test_loaded_weights_may_take_more_than_their_bytes() -> None:
    """0.197 GiB of 30.7 more here, 2.5 % of the small pool beside them.

    Three of the four matrices of each of 64 layers are an odd number of MiB on each GPU; PyTorch
    takes large pieces in steps of 2 MiB and leaves a last MiB unused. That and the table of
    rotary positions (32,768 x 128 values) are 0.195 GiB; it is not part of the budget.
    """
    log = QWEN_2_5_32B
    plain = budget_of(log)
    assert plain.weights_bytes / GIB == pytest.approx(30.513, abs=0.001)
    assert plain.num_slots // BLOCK / log.blocks - 1 == pytest.approx(0.026, abs=0.001)
    matrices = (27648 * 5120, 2560 * 5120, 3584 * 5120)  # down, output, qkv: of one GPU's half
    halves = (matrices[0] // 2, matrices[1], matrices[2])
    lost = 64 * sum(-(2 * values) % (2 << 20) for values in halves)
    assert lost == 64 * 3 << 20
    filled = budget_of(log, lost + 2 * 32768 * 128)
    assert filled.num_slots // BLOCK == pytest.approx(log.blocks, rel=2e-3)


@pytest.mark.parametrize(
    ("model", "num_gpus", "blocks", "above"),
    [("llama-2-7b", 1, 7351, 0.02), ("llama-2-70b", 4, 20865, 0.54)],
)
def test_without_activations_the_pool_is_an_upper_bound(
    model: str, num_gpus: int, blocks: int, above: float
) -> None:
    """vllm-project/vllm pull request 2031, A100-80GB: blocks, and no other term.

    With four GPUs the engine took 14 GiB of each for itself; the release before it counted less
    and made 31,615 blocks of the same memory.
    """
    device = find_device("a100-80gb")
    assert device is not None
    budget = memory_budget(on_one_gpu(MODELS[model], num_gpus), device, 0.9)
    assert budget.num_slots // BLOCK / blocks - 1 == pytest.approx(above, abs=0.01)
