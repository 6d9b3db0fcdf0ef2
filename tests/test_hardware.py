"""Presets against known facts, and what is published of their KV and their pools."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import yaml

from sim.hardware.budget import memory_budget
from sim.hardware.by_name import (
    GIB,
    GPU_ALIASES,
    GPUS,
    MODEL_ALIASES,
    MODELS,
    Device,
    Model,
    find_device,
    find_model,
)
from sim.hardware.types import on_one_gpu

ROOT = Path(__file__).parent.parent
CLAIMS = Path(os.environ.get("KVSIM_SHARED") or ROOT.parent / "shared") / "claims"
needs_claims = pytest.mark.skipif(
    not (CLAIMS / "claims.yaml").exists(), reason=f"{CLAIMS} has nothing to compare with"
)


def preset_model(name: str) -> Model:
    found = find_model(name)
    assert found is not None
    return found


def preset_device(name: str) -> Device:
    found = find_device(name)
    assert found is not None
    return found


def presets() -> dict[str, Any]:
    facts: dict[str, Any] = yaml.safe_load((CLAIMS / "presets.yaml").read_text(encoding="utf-8"))
    return facts


def claim(name: str) -> Any:
    """The expected value of a published claim."""
    listed = yaml.safe_load((CLAIMS / "claims.yaml").read_text(encoding="utf-8"))["claims"]
    return next(entry["expected"]["value"] for entry in listed if entry["id"] == name)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("opt-13b", 819_200),  # 2 x 40 layers x 5120 x 2 bytes: 800 KB, PagedAttention paper §3
        ("opt-175b", 4_718_592),
        ("llama-2-70b", 327_680),  # grouped-query attention: 8 of 64 heads keep KV
        ("qwen2.5-7b", 57_344),
        ("deepseek-v3", 70_272),  # latent attention: (512 + 64) x 61 x 2
    ],
)
def test_kv_bytes_per_token_follow_from_the_geometry(name: str, expected: int) -> None:
    assert preset_model(name).kv_bytes_per_token == expected


@needs_claims
def test_every_model_agrees_with_the_collected_facts() -> None:
    facts = presets()["models"]
    assert set(facts) == set(MODELS)
    for name, fact in facts.items():
        model = MODELS[name]
        assert model.kv_bytes_per_token == fact["kv_bytes_per_token"], name
        assert model.max_len == fact["max_len"], name
        assert (model.layers, model.hidden) == (fact["layers"], fact["hidden"]), name
        assert model.heads == fact["heads"], name
        # the facts are rounded to three digits or more
        assert model.num_params == pytest.approx(fact["params_b"] * 1e9, rel=2e-3), name
        bytes_each = 1 if model.quantization == "fp8" else 2
        assert model.weights_bytes == pytest.approx(fact["params_b"] * 1e9 * bytes_each, rel=5e-3)
        if fact["kv_heads"] != "MLA":
            assert (model.kv_heads, model.head_dim) == (fact["kv_heads"], fact["head_dim"]), name
    assert MODELS["deepseek-v3"].num_active_params == pytest.approx(37e9, rel=0.02)


@needs_claims
def test_every_gpu_agrees_with_the_collected_facts() -> None:
    facts = presets()["gpus"]
    assert set(facts) <= set(GPUS)
    for name, fact in facts.items():
        device = GPUS[name]
        assert device.memory_gb_s == fact["bw_gb_s"], name
        assert device.bf16_tflops == fact["bf16_tflops"], name
        assert device.nvlink_gb_s == fact["nvlink_gb_s_bidir"], name
        assert device.pcie_gb_s == fact["pcie_gb_s_per_dir"], name
        # "40 GB" is 40 GiB for some, 1e9 for others, and the driver keeps some: within 8 %
        assert device.memory_bytes == pytest.approx(fact["hbm_gb"] * 1e9, rel=0.08), name


def test_every_number_of_a_preset_has_a_source() -> None:
    for thing in (*MODELS.values(), *GPUS.values()):
        assert thing.source
        assert "recalled" not in thing.source
    for device in GPUS.values():
        assert device.memory_source.startswith(("cuda: ", "nvidia-smi: "))
        assert None not in {device.memory_gb_s, device.bf16_tflops, device.pcie_gb_s}


@pytest.mark.parametrize(
    ("alias", "name"),
    [("a100-40gb", "a100-40gb-sxm"), ("A100-80GB", "a100-80gb-sxm"), ("rtx-4090", "rtx-4090")],
)
def test_a_device_has_aliases_in_any_case(alias: str, name: str) -> None:
    assert preset_device(alias).name == name


def test_a_model_is_found_by_its_hugging_face_name() -> None:
    assert preset_model("facebook/opt-13b").name == "opt-13b"
    assert find_model("gpt-5") is None
    assert find_device("abacus") is None


def test_no_alias_hides_a_preset_or_another_alias() -> None:
    for entries, aliases in ((MODELS, MODEL_ALIASES), (GPUS, GPU_ALIASES)):
        assert not set(entries) & set(aliases)
        assert set(aliases.values()) <= set(entries)


def test_a_preset_with_a_window_warns() -> None:
    assert preset_model("mistral-7b").warnings == (
        "is treated as full attention: it has a sliding window of 4,096 tokens",
    )
    assert [name for name, model in MODELS.items() if model.warnings] == ["mistral-7b"]


@needs_claims
def test_kv_bytes_are_those_of_the_papers() -> None:
    opt, llama = preset_model("opt-13b"), preset_model("llama-3-70b")
    assert opt.kv_bytes_per_token == claim("vllm-kv-token-opt13b")
    assert opt.kv_bytes_per_token * 2048 / GIB == pytest.approx(
        claim("vllm-kv-seq-opt13b"), rel=0.05
    )
    blog = preset_model("llama-13b").kv_bytes_per_token * 2048 / 1e9
    assert blog == pytest.approx(claim("vllm-kv-seq-llama13b-blog"), rel=0.03)
    assert 32_768 * preset_model("llama-2-70b").kv_bytes_per_token / 1e9 > claim(
        "seed-reserve-32k-70b"
    )
    mooncake = claim("mooncake-1tb-3m")
    assert 1e12 / llama.kv_bytes_per_token == pytest.approx(mooncake["tokens"], rel=0.03)
    assert (128 << 10) * llama.kv_bytes_per_token / GIB == pytest.approx(mooncake["gb"], rel=0.03)


@needs_claims
def test_block_sizes_per_layer_are_those_of_the_offloading_post() -> None:
    """KiB of 16 tokens' keys in a layer, MiB of the whole block, on one GPU."""
    expected = claim("vllm-offload-block-geometry")
    cases = {
        "Llama-3.1-8B": ("llama-3-8b", 1),
        "Mistral-7B-v0.2": ("mistral-7b", 1),
        "Qwen2.5-7B": ("qwen2.5-7b", 1),
        "Qwen3-32B TP2": ("qwen3-32b", 2),
        "Llama-3.1-70B (TP4 implied)": ("llama-3-70b", 4),
    }
    for name, (preset, num_gpus) in cases.items():
        model = on_one_gpu(preset_model(preset), num_gpus)
        assert model.kv_heads is not None
        assert model.head_dim is not None
        assert 16 * model.kv_heads * model.head_dim * 2 / 1024 == expected[name]["KiB"], name
        block = 16 * model.kv_bytes_per_token / (1 << 20)
        assert block == pytest.approx(expected[name]["MiB"], rel=0.03), name
    # the post's 28 KiB for Qwen3-8B do not follow from its 8 KV heads of 128: 32 do
    assert 16 * 8 * 128 * 2 / 1024 == 32 > expected["Qwen3-8B"]["KiB"]


@needs_claims
@pytest.mark.parametrize(
    ("row", "model", "gpu_gib", "num_gpus", "rel"),
    [
        ("vllm-table1-13b", "opt-13b", 40, 1, 0.02),
        ("vllm-table1-66b", "opt-66b", 40, 4, 0.02),
        ("vllm-table1-175b", "opt-175b", 80, 8, 0.06),  # it counts 173e9 parameters of 174.6e9
    ],
)
def test_table_1_of_the_paged_attention_paper_is_nine_tenths_of_the_nominal_memory(
    row: str, model: str, gpu_gib: int, num_gpus: int, rel: float
) -> None:
    share = on_one_gpu(preset_model(model), num_gpus)
    budget = memory_budget(share, Device("nominal", gpu_gib * GIB), 0.9)
    assert budget.num_slots == pytest.approx(claim(row), rel=rel)


@needs_claims
def test_figure_1_of_the_paged_attention_paper_is_weights_and_kv_of_40_gb() -> None:
    expected = claim("vllm-fig1-layout")
    model = preset_model("llama-13b")
    assert model.weights_bytes is not None
    assert model.weights_bytes / 1e9 == pytest.approx(expected["weights_gb"], rel=0.03)
    assert model.weights_bytes / 40e9 == pytest.approx(expected["weights_frac"], abs=0.03)
    budget = memory_budget(model, Device("nominal", 40 * GIB), 0.9)
    assert budget.kv_bytes / budget.total_bytes == pytest.approx(expected["kv_frac"], abs=0.03)
