"""Presets against known facts, and the budget term by term."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import yaml

from sim.hardware import (
    GIB,
    GPU_ALIASES,
    GPUS,
    MODEL_ALIASES,
    MODELS,
    Device,
    Model,
    describe_budget,
    find_device,
    find_model,
    kv_bytes_per_token,
    memory_budget,
)

ROOT = Path(__file__).parent.parent
SHARED = Path(os.environ.get("KVSIM_SHARED", ROOT.parent / "shared"))
HAS_SHARED = (SHARED / "claims" / "presets.yaml").exists()


def preset_model(name: str) -> Model:
    found = find_model(name)
    assert found is not None
    return found


def preset_device(name: str) -> Device:
    found = find_device(name)
    assert found is not None
    return found


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


@pytest.mark.skipif(not HAS_SHARED, reason=f"{SHARED} has no presets to compare with")
def test_every_model_agrees_with_the_collected_facts() -> None:
    facts = yaml.safe_load((Path(str(SHARED)) / "claims/presets.yaml").read_text())["models"]
    assert set(facts) == set(MODELS)
    for name, fact in facts.items():
        model = MODELS[name]
        assert model.kv_bytes_per_token == fact["kv_bytes_per_token"], name
        assert model.max_len == fact["max_len"], name
        assert model.weights_bytes == pytest.approx(fact["params_b"] * 2e9), name


@pytest.mark.skipif(not HAS_SHARED, reason=f"{SHARED} has no presets to compare with")
def test_every_gpu_agrees_with_the_collected_facts() -> None:
    facts = yaml.safe_load((Path(str(SHARED)) / "claims/presets.yaml").read_text())["gpus"]
    assert set(facts) <= set(GPUS)
    for name, fact in facts.items():
        device = GPUS[name]
        assert device.memory_gb_s == fact["bw_gb_s"], name
        assert device.bf16_tflops == fact["bf16_tflops"], name
        # "40 GB" is 40 GiB for some, 1e9 for others, and the driver keeps some: within 8 %
        assert device.memory_bytes == pytest.approx(fact["hbm_gb"] * 1e9, rel=0.08), name


def test_every_number_of_a_preset_has_a_source() -> None:
    assert all(model.source for model in MODELS.values())
    for device in GPUS.values():
        assert device.source
        assert device.memory_source.startswith(("cuda: ", "nvidia-smi: "))


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
    for presets, aliases in ((MODELS, MODEL_ALIASES), (GPUS, GPU_ALIASES)):
        assert not set(presets) & set(aliases)
        assert set(aliases.values()) <= set(presets)


def test_the_budget_is_usable_memory_less_weights_and_activations() -> None:
    model = Model("m", kv_bytes_per_token=100, weights_bytes=5_000)
    budget = memory_budget(model, Device("d", 10_000), 0.9, activation_bytes=1_050)
    assert (budget.total_bytes, budget.usable_bytes) == (10_000, 9_000)
    assert (budget.weights_bytes, budget.activation_bytes) == (5_000, 1_050)
    assert (budget.kv_bytes, budget.num_slots) == (2_950, 29)


def test_opt_13b_on_an_a100_40gb_comes_out_beside_table_1_of_the_paper() -> None:
    """The paper has 12 GiB and 15.7K slots: 95 % of 40 GiB for weights and KV. 4 % fewer here."""
    budget = memory_budget(preset_model("opt-13b"), preset_device("a100-40gb"), 0.9)
    assert budget.num_slots == 15_098
    assert budget.kv_bytes / GIB == pytest.approx(11.52, abs=0.01)
    paper = memory_budget(preset_model("opt-13b"), Device("40 GiB", 40 * GIB), 0.9)
    assert paper.num_slots == pytest.approx(15_700, rel=0.01)


def test_weights_that_do_not_fit_are_one_sentence() -> None:
    with pytest.raises(ValueError, match=r"^device: ") as caught:
        memory_budget(preset_model("opt-66b"), preset_device("a100-40gb"), 0.9)
    assert str(caught.value) == (
        "device: 122.38 GiB of weights (opt-66b) leave no KV memory in 0.9 of 39.39 GiB "
        "(a100-40gb-sxm)"
    )


def test_unknown_weights_are_one_sentence() -> None:
    with pytest.raises(ValueError, match=r"^model.weights_bytes: is needed to find the pool"):
        memory_budget(Model("m", 100), Device("d", 10_000), 0.9)


def test_the_budget_is_described_term_by_term() -> None:
    model, device = preset_model("opt-13b"), preset_device("a100-40gb")
    lines = describe_budget(model, device, memory_budget(model, device, 0.9))
    assert [line.split("GiB")[0].split() for line in lines[:5]] == [
        ["memory", "39.39"],
        ["usable", "35.45"],
        ["-", "weights", "23.93"],
        ["-", "activations", "0.00"],
        ["=", "KV", "pool", "11.52"],
    ]
    assert "upper bound" in lines[3]
    assert lines[5].strip() == "15,098 slots of 819,200 bytes"


def test_latent_attention_is_not_counted_per_head() -> None:
    latent = {"layers": 2, "kv_lora_rank": 10, "qk_rope_head_dim": 2, "heads": 4}
    assert kv_bytes_per_token(latent) == 48
