"""The parameter formula against public counts.

A count is what the checkpoint's safetensors headers, or its model.safetensors.index.json divided
by the bytes of a value, add up to; where only a rounded number is published, the tolerance says so.
"""

from __future__ import annotations

from typing import Any

import pytest

from sim.hardware.by_name import MODELS
from sim.hardware.hf_config import model_from_config
from sim.hardware.hf_keys import Keys, read_shape
from sim.hardware.hf_params import count_params

Config = dict[str, Any]


def gpt(kind: str, widths: tuple[int, ...], **more: Any) -> Config:
    """hidden, layers, heads, vocabulary."""
    names = ("hidden_size", "num_hidden_layers", "num_attention_heads", "vocab_size")
    return {"model_type": kind, **dict(zip(names, widths, strict=True)), **more}


def llama(kind: str, widths: tuple[int, ...], **more: Any) -> Config:
    """hidden, layers, heads, vocabulary, KV heads, MLP."""
    own = {"num_key_value_heads": widths[4], "intermediate_size": widths[5]}
    return gpt(kind, widths[:4], **{"tie_word_embeddings": False, **own, **more})


PRESETS = {  # the tolerance is 0 where the count is published exactly
    "opt-13b": (12_853_473_280, 0),
    "opt-66b": (65.7e9, 5e-4),
    "opt-175b": (174.6e9, 5e-4),
    "llama-13b": (13_015_864_320, 0),
    "llama-2-7b": (6_738_415_616, 0),
    "llama-2-13b": (13_015_864_320, 0),
    "llama-2-70b": (68_976_648_192, 0),
    "llama-3-8b": (8_030_261_248, 0),
    "llama-3-70b": (70_553_706_496, 0),
    "mistral-7b": (7_241_732_096, 0),
    "qwen2.5-7b": (7_615_616_512, 0),
    "qwen2.5-72b": (72_706_203_648, 0),
    "qwen3-8b": (8_190_735_360, 0),
    "qwen3-32b": (32_762_123_264, 0),
    "deepseek-v3": (671_026_419_200, 0),  # the main model, without its prediction layer
}

OTHERS: dict[str, tuple[Config, float, float]] = {
    "gpt2": (
        {
            "model_type": "gpt2",
            "n_embd": 768,
            "n_layer": 12,
            "n_head": 12,
            "n_positions": 1024,
            "vocab_size": 50257,
        },
        124_439_808,
        0,
    ),
    "opt-125m": (
        gpt("opt", (768, 12, 12, 50272), ffn_dim=3072, max_position_embeddings=2048),
        125_239_296,
        0,
    ),
    "opt-350m": (  # narrower embeddings, no last norm
        gpt("opt", (1024, 24, 16, 50272), ffn_dim=4096, max_position_embeddings=2048)
        | {"word_embed_proj_dim": 512, "do_layer_norm_before": False},
        331_196_416,
        0,
    ),
    "starcoder": (  # one KV head
        {
            "model_type": "gpt_bigcode",
            "n_embd": 6144,
            "n_layer": 40,
            "n_head": 48,
            "n_inner": 24576,
            "n_positions": 8192,
            "vocab_size": 49152,
            "multi_query": True,
        },
        15_517_456_384,
        0,
    ),
    "starcoder2-7b": (
        gpt("starcoder2", (4608, 32, 36, 49152), num_key_value_heads=4, intermediate_size=18432),
        7_173_923_840,
        0,
    ),
    "falcon-7b": (
        gpt("falcon", (4544, 32, 71, 65024), multi_query=True, parallel_attn=True, bias=False),
        6_921_720_704,
        0,
    ),
    "falcon-40b": (
        gpt("falcon", (8192, 60, 128, 65024), num_kv_heads=8, new_decoder_architecture=True),
        41_303_293_952,
        0,
    ),
    "gpt-neox-20b": (
        gpt("gpt_neox", (6144, 44, 64, 50432), intermediate_size=24576, tie_word_embeddings=False),
        20_554_567_680,
        0,
    ),
    "gpt-j-6b": (
        {
            "model_type": "gptj",
            "n_embd": 4096,
            "n_layer": 28,
            "n_head": 16,
            "n_inner": None,
            "vocab_size": 50400,
            "tie_word_embeddings": False,
        },
        6_050_882_784,
        0,
    ),
    "phi-2": (
        gpt("phi", (2560, 32, 32, 51200), intermediate_size=10240, tie_word_embeddings=False),
        2_779_683_840,
        0,
    ),
    "bloom-7b1": (gpt("bloom", (4096, 30, 32, 250880)), 7_069_016_064, 0),
    "mpt-7b": (
        {"model_type": "mpt", "d_model": 4096, "n_layers": 32, "n_heads": 32}
        | {"expansion_ratio": 4, "vocab_size": 50432},
        6_649_286_656,
        0,
    ),
    "phi-3-mini": (llama("phi3", (3072, 32, 32, 32064, 32, 8192)), 3_821_079_552, 0),
    "qwen2.5-32b": (llama("qwen2", (5120, 64, 40, 152064, 8, 27648)), 32_763_876_352, 0),
    "gemma-7b": (
        llama("gemma", (3072, 28, 16, 256000, 16, 24576), head_dim=256, tie_word_embeddings=True),
        8_537_680_896,
        0,
    ),
    "gemma-2-9b": (
        llama("gemma2", (3584, 42, 16, 256000, 8, 14336), head_dim=256, tie_word_embeddings=True),
        9_241_705_984,
        0,
    ),
    "mixtral-8x7b": (
        llama("mixtral", (4096, 32, 32, 32000, 8, 14336))
        | {"num_local_experts": 8, "num_experts_per_tok": 2},
        46_702_792_704,
        0,
    ),
    "qwen2-57b-a14b": (  # a shared expert with a gate
        llama("qwen2_moe", (3584, 28, 28, 151936, 4, 18944), decoder_sparse_step=1)
        | {"num_experts": 64, "num_experts_per_tok": 8, "moe_intermediate_size": 2560}
        | {"shared_expert_intermediate_size": 20480},
        57.41e9,
        5e-4,
    ),
    "qwen3-30b-a3b": (
        llama("qwen3_moe", (2048, 48, 32, 151936, 4, 6144), head_dim=128, mlp_only_layers=[])
        | {"num_experts": 128, "num_experts_per_tok": 8, "moe_intermediate_size": 768},
        30_532_122_624,
        0,
    ),
    "deepseek-v2-lite": (  # latent attention without low-rank queries
        llama("deepseek_v2", (2048, 27, 16, 102400, 16, 10944), first_k_dense_replace=1)
        | {"n_routed_experts": 64, "num_experts_per_tok": 6, "n_shared_experts": 2}
        | {"moe_intermediate_size": 1408, "kv_lora_rank": 512, "q_lora_rank": None}
        | {"qk_rope_head_dim": 64, "qk_nope_head_dim": 128, "v_head_dim": 128},
        15_706_484_224,
        0,
    ),
    "gpt-oss-20b": (
        llama("gpt_oss", (2880, 24, 64, 201088, 8, 2880), head_dim=64, attention_bias=True)
        | {"num_local_experts": 32, "num_experts_per_tok": 4},
        20_914_757_184,
        0,
    ),
}


@pytest.mark.parametrize("name", PRESETS)
def test_the_parameters_of_every_preset_are_the_public_count(name: str) -> None:
    count, rel = PRESETS[name]
    assert MODELS[name].num_params == pytest.approx(count, rel=rel, abs=0)
    assert set(PRESETS) == set(MODELS)


@pytest.mark.parametrize("name", OTHERS)
def test_the_parameters_of_other_architectures_are_the_public_count(name: str) -> None:
    config, count, rel = OTHERS[name]
    assert model_from_config(name, config, "").num_params == pytest.approx(count, rel=rel, abs=0)


@pytest.mark.parametrize(
    ("name", "active", "rel"),
    [
        ("mixtral-8x7b", 12.9e9, 5e-3),
        ("qwen2-57b-a14b", 14e9, 0.02),
        ("qwen3-30b-a3b", 3.3e9, 0.02),
    ],
)
def test_active_parameters_leave_out_the_experts_that_are_not_chosen(
    name: str, active: float, rel: float
) -> None:
    model = model_from_config(name, OTHERS[name][0], "")
    assert model.num_active_params == pytest.approx(active, rel=rel)


def test_deepseek_v3_activates_37_of_its_671_billion() -> None:
    assert MODELS["deepseek-v3"].num_active_params == pytest.approx(37.55e9, rel=1e-3)


def test_a_dense_model_is_active_as_a_whole() -> None:
    model = MODELS["llama-2-7b"]
    assert model.num_active_params == model.num_params


@pytest.mark.parametrize(
    ("changes", "more"),
    [
        ({"tie_word_embeddings": False}, 32000 * 64),
        ({"attention_bias": True}, 2 * (64 + 2 * 64 + 64)),
        ({"mlp_bias": True}, 2 * (2 * 128 + 64)),
        ({"use_qk_norm": True}, 2 * 2 * 16),
        ({"num_key_value_heads": 1}, -2 * 2 * 64 * 48),
        ({"head_dim": 32}, 2 * 4 * 64 * 64),
    ],
)
def test_what_a_config_says_of_its_layers_changes_the_count(changes: Config, more: int) -> None:
    small = llama("llama", (64, 2, 4, 32000, 4, 128), tie_word_embeddings=True)

    def total(config: Config) -> int:
        keys = Keys(config)
        return count_params(keys, read_shape(keys)).total

    assert total({**small, **changes}) - total(small) == more


def test_layers_without_experts_are_dense() -> None:
    sparse = OTHERS["qwen3-30b-a3b"][0]
    first = {**sparse, "mlp_only_layers": [0]}
    counts = [model_from_config("m", config, "").num_params for config in (sparse, first)]
    assert counts[0] is not None
    assert counts[1] is not None
    expert = 3 * 2048 * 768
    assert counts[0] - counts[1] == 128 * expert + 128 * 2048 - 3 * 2048 * 6144
