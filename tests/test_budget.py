"""A GPU's memory term by term, and a model divided over several of them."""

from __future__ import annotations

import pytest

from sim.hardware.budget import describe_budget, memory_budget
from sim.hardware.by_name import GIB, Device, Model, find_device, find_model
from sim.hardware.types import on_one_gpu, with_dtypes


def preset_model(name: str) -> Model:
    found = find_model(name)
    assert found is not None
    return found


def preset_device(name: str) -> Device:
    found = find_device(name)
    assert found is not None
    return found


def test_the_budget_is_usable_memory_less_all_other_terms() -> None:
    model = Model("m", kv_bytes_per_token=100, weights_bytes=5_000)
    budget = memory_budget(model, Device("d", 10_000), 0.9, 1_000, 50)
    assert (budget.total_bytes, budget.usable_bytes) == (10_000, 9_000)
    assert (budget.weights_bytes, budget.activation_bytes) == (5_000, 1_000)
    assert (budget.kv_bytes, budget.num_slots) == (2_950, 29)


def test_opt_13b_on_an_a100_40gb_comes_out_beside_table_1_of_the_paper() -> None:
    """The paper has 15.7K slots: 0.9 of 40 GiB. CUDA reports 39.39 GiB, 4 % fewer slots."""
    budget = memory_budget(preset_model("opt-13b"), preset_device("a100-40gb"), 0.9)
    assert budget.num_slots == 15_090
    assert budget.kv_bytes / GIB == pytest.approx(11.51, abs=0.01)
    paper = memory_budget(preset_model("opt-13b"), Device("40 GiB", 40 * GIB), 0.9)
    assert paper.num_slots == pytest.approx(15_700, rel=0.01)


def test_weights_that_do_not_fit_are_one_sentence() -> None:
    with pytest.raises(ValueError, match=r"^device: ") as caught:
        memory_budget(preset_model("opt-66b"), preset_device("a100-40gb"), 0.9)
    assert str(caught.value) == (
        "device: 122.41 GiB of weights (opt-66b) leave no KV memory in 0.9 of 39.39 GiB "
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
        ["-", "weights", "23.94"],
        ["-", "activations", "0.00"],
        ["=", "KV", "pool", "11.51"],
    ]
    assert "upper bound" in lines[3]
    assert lines[5].strip() == "15,090 slots of 819,200 bytes"


def test_the_budget_says_what_each_of_several_gpus_holds() -> None:
    model = on_one_gpu(with_dtypes(preset_model("llama-3-70b"), "auto", "fp8"), 4)
    device = preset_device("a100-80gb")
    lines = describe_budget(model, device, memory_budget(model, device, 0.9, GIB, GIB))
    assert "a100-80gb-sxm, one of 4 like it" in lines[0]
    assert lines[2].startswith("- weights        32.85 GiB  1/4 of llama-3-70b, ")
    assert lines[4].startswith("- non-torch       1.00 GiB")
    assert lines[6].strip() == "953,466 slots of 40,960 bytes  (fp8, 2 KV heads a GPU)"


def test_tensor_parallelism_divides_heads_and_weights() -> None:
    whole = preset_model("llama-3-70b")
    share = on_one_gpu(whole, 4)
    assert (share.heads, share.kv_heads, share.hidden, share.layers) == (16, 2, 8192, 80)
    assert share.kv_bytes_per_token == whole.kv_bytes_per_token // 4 == 81_920
    assert whole.weights_bytes is not None
    assert whole.num_params is not None
    assert (share.weights_bytes, share.num_params) == (
        whole.weights_bytes // 4,
        whole.num_params // 4,
    )
    assert on_one_gpu(whole, 1) == whole


def test_kv_heads_are_copied_where_there_are_more_gpus() -> None:
    share = on_one_gpu(preset_model("qwen2.5-72b"), 16)
    assert share.kv_heads == 1
    assert share.kv_bytes_per_token == 327_680 // 8


def test_a_latent_is_copied_to_every_gpu() -> None:
    share = on_one_gpu(preset_model("deepseek-v3"), 8)
    assert share.kv_bytes_per_token == 70_272
    assert (share.heads, share.kv_heads) == (16, 1)
    device = preset_device("h200")
    lines = describe_budget(share, device, memory_budget(share, device, 0.9))
    assert "1/8 of deepseek-v3 fp8" in lines[2]
    assert lines[-1].endswith("(the latent is copied to every GPU)")


@pytest.mark.parametrize(
    ("model", "num_gpus", "sentence"),
    [
        (
            Model("m", 100, heads=40, kv_heads=40),
            3,
            "tensor_parallel_size: 3 does not divide the 40 attention heads of m",
        ),
        (
            Model("m", 100, heads=24, kv_heads=8),
            6,
            "tensor_parallel_size: 6 neither divides the 8 KV heads of m nor is a multiple of them",
        ),
        (
            Model("m", 100),
            2,
            "model.heads: is needed to divide the model by tensor_parallel_size",
        ),
    ],
)
def test_a_model_that_cannot_be_divided_is_one_sentence(
    model: Model, num_gpus: int, sentence: str
) -> None:
    with pytest.raises(ValueError, match=r".") as caught:
        on_one_gpu(model, num_gpus)
    assert str(caught.value) == sentence


@pytest.mark.parametrize(
    ("dtype", "kv_cache_dtype", "weights", "kv"),
    [
        ("auto", "auto", 2.0, 2),
        ("float32", "auto", 4.0, 4),
        ("auto", "fp8", 2.0, 1),
        ("float32", "fp8_e5m2", 4.0, 1),
        ("bfloat16", "float32", 2.0, 4),
    ],
)
def test_dtypes_set_the_bytes_of_weights_and_kv(
    dtype: str, kv_cache_dtype: str, weights: float, kv: int
) -> None:
    model = with_dtypes(preset_model("llama-2-7b"), dtype, kv_cache_dtype)
    assert model.num_params == 6_738_415_616
    assert model.weights_bytes == 6_738_415_616 * weights
    assert model.kv_bytes_per_token == 2 * 32 * 4096 * kv


def test_quantized_weights_keep_their_size_and_do_not_set_the_kv() -> None:
    model = with_dtypes(preset_model("deepseek-v3"), "float32", "bfloat16")
    assert model.weights_bytes == preset_model("deepseek-v3").weights_bytes
    assert model.kv_bytes_per_token == 70_272
