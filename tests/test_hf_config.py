"""Any config.json on disk as the model of an experiment."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from sim.hardware.hf_config import model_from_config, read_config

Config = dict[str, Any]

SMALL: Config = {
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "vocab_size": 1000,
    "max_position_embeddings": 512,
    "tie_word_embeddings": True,
    "torch_dtype": "bfloat16",
}
SMALL_PARAMS = 1000 * 64 + 2 * (4 * 64 * 64 + 3 * 64 * 128 + 2 * 64) + 64


def write(folder: Path, config: Any, name: str = "config.json") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / name
    file.write_text(config if isinstance(config, str) else json.dumps(config), encoding="utf-8")
    return file


def kv(**changes: Any) -> int:
    return model_from_config("m", {**SMALL, **changes}, "").kv_bytes_per_token


@pytest.mark.parametrize(
    ("changes", "values"),
    [
        ({}, 2 * 4 * 16),
        ({"num_key_value_heads": 2}, 2 * 2 * 16),
        ({"num_key_value_heads": None}, 2 * 4 * 16),
        ({"num_key_value_heads": 2, "head_dim": 32}, 2 * 2 * 32),
        ({"model_type": "falcon", "multi_query": True, "num_kv_heads": 4}, 2 * 16),
        ({"model_type": "RefinedWebModel", "multi_query": True}, 2 * 16),
        ({"model_type": "falcon"}, 2 * 16),
        ({"model_type": "falcon", "multi_query": False}, 2 * 4 * 16),
        (
            {"model_type": "falcon", "new_decoder_architecture": True, "num_kv_heads": 2},
            2 * 2 * 16,
        ),
        ({"model_type": "gpt_bigcode"}, 2 * 16),
        ({"model_type": "gpt_bigcode", "multi_query": False}, 2 * 4 * 16),
        ({"model_type": "mpt", "attn_config": {"kv_n_heads": 1}}, 2 * 16),
        ({"model_type": "deepseek_v2", "kv_lora_rank": 24, "qk_rope_head_dim": 8}, 32),
    ],
)
def test_kv_follows_from_the_heads_that_keep_it(changes: Config, values: int) -> None:
    assert kv(**changes) == 2 * values * 2  # layers, bytes


def test_keys_of_gpt_2_are_understood() -> None:
    config = {"model_type": "gpt2", "n_layer": 2, "n_head": 4, "n_embd": 64, "n_positions": 512}
    model = model_from_config("m", {**config, "vocab_size": 1000}, "")
    assert (model.kv_bytes_per_token, model.max_len) == (2 * 2 * 64 * 2, 512)


def test_gemma_3_says_its_context_as_it_is_after_scaling() -> None:
    scaling = {"rope_type": "linear", "factor": 8.0}
    config = {**SMALL, "max_position_embeddings": 131072, "rope_scaling": scaling}
    assert model_from_config("m", config, "").max_len == 8 * 131072
    gemma = {"model_type": "gemma3", "text_config": {**config, "model_type": "gemma3_text"}}
    assert model_from_config("m", gemma, "").max_len == 131072


def test_a_byte_order_mark_makes_no_difference(tmp_path: Path) -> None:
    file = tmp_path / "config.json"
    file.write_text("\ufeff" + json.dumps(SMALL), encoding="utf-8")
    assert read_config(file).kv_bytes_per_token == kv()


def test_the_text_part_of_a_multimodal_model_is_read() -> None:
    inner = {key: value for key, value in SMALL.items() if key != "torch_dtype"}
    outer = {"model_type": "llava", "vision_config": {"hidden_size": 9}, "torch_dtype": "float16"}
    model = model_from_config("m", {**outer, "text_config": inner}, "")
    assert model.kv_bytes_per_token == kv()
    assert (model.hidden, model.dtype, model.num_params) == (64, "float16", SMALL_PARAMS)
    assert model.warnings == (
        "has its text part counted only: give weights_bytes for the whole of it",
    )


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "torch.float16", None])
def test_weights_are_served_at_16_bits_as_engines_do(dtype: str | None) -> None:
    model = model_from_config("m", {**SMALL, "torch_dtype": dtype}, "")
    assert model.weights_bytes == 2 * SMALL_PARAMS
    renamed = {**SMALL, "torch_dtype": None, "dtype": dtype}
    assert model_from_config("m", renamed, "").weights_bytes == 2 * SMALL_PARAMS


def test_fp8_is_a_byte_a_parameter_but_for_the_embeddings() -> None:
    config = {**SMALL, "quantization_config": {"quant_method": "fp8"}}
    model = model_from_config("m", config, "")
    assert model.weights_bytes == SMALL_PARAMS + 1000 * 64
    assert model.kv_bytes_per_token == kv()


def test_awq_of_qwen2_5_7b_is_what_an_engine_loaded() -> None:
    """5.2032 GiB of a Qwen2.5-7B quantized to 4 bits: vllm-project/vllm issue 13882."""
    config: Config = {
        "model_type": "qwen2",
        "hidden_size": 3584,
        "intermediate_size": 18944,
        "num_hidden_layers": 28,
        "num_attention_heads": 28,
        "num_key_value_heads": 4,
        "vocab_size": 152064,
        "tie_word_embeddings": False,
        "quantization_config": {"quant_method": "awq", "bits": 4, "group_size": 128},
    }
    weights = model_from_config("m", config, "").weights_bytes
    assert weights is not None
    assert weights / 2**30 == pytest.approx(5.2032, rel=0.005)


@pytest.mark.parametrize(
    ("scaling", "max_len"),
    [
        (None, 512),
        ({"type": "linear", "factor": 4.0}, 2048),
        ({"rope_type": "yarn", "factor": 8, "original_max_position_embeddings": 256}, 2048),
        ({"rope_type": "llama3", "factor": 8.0, "original_max_position_embeddings": 64}, 512),
        ({"type": "longrope", "short_factor": [1.0]}, 512),
        ({"rope_type": "yarn", "factor": 1e308}, 512_000),
        ({"rope_type": ["yarn"], "factor": 2}, 512),
    ],
)
def test_rope_scaling_lengthens_the_context_where_it_is_a_factor(
    scaling: Config | None, max_len: int
) -> None:
    model = model_from_config("m", {**SMALL, "rope_scaling": scaling}, "")
    assert model.max_len == max_len


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"sliding_window": 128}, "it has a sliding window of 128 tokens"),
        (
            {"sliding_window": 128, "layer_types": ["sliding_attention", "full_attention"]},
            "it has a sliding window of 128 tokens in 1 of 2 layers",
        ),
        ({"attention_chunk_size": 64}, "it attends in chunks of 64 tokens"),
        ({"index_topk": 64}, "it attends to 64 tokens that it selects"),
        (
            {"layer_types": ["linear_attention", "full_attention"]},
            "1 of 2 layers are linear_attention",
        ),
        ({"layers_block_type": ["mamba", "attention"]}, "1 of 2 layers are mamba"),
        ({"attn_layer_period": 8}, "attn_layer_period says that some layers have none"),
        (
            {"is_encoder_decoder": True},
            "it is an encoder-decoder, and the KV of its encoder is not counted",
        ),
        (
            {"cross_attention_layers": [1]},
            "it has cross-attention, whose KV does not grow with the text",
        ),
    ],
)
def test_what_is_not_full_attention_warns(changes: Config, sentence: str) -> None:
    warnings = model_from_config("m", {**SMALL, **changes}, "").warnings
    assert warnings == (f"is treated as full attention: {sentence}",)


@pytest.mark.parametrize(
    "changes",
    [
        {"sliding_window": None},
        {"sliding_window": 128, "use_sliding_window": False},
        {"sliding_window": 512},  # as long as the context
        {"layer_types": ["full_attention", "full_attention"]},
    ],
)
def test_a_window_that_is_off_does_not_warn(changes: Config) -> None:
    assert model_from_config("m", {**SMALL, **changes}, "").warnings == ()


def test_an_unknown_architecture_is_counted_like_llama_and_says_so() -> None:
    model = model_from_config("m", {**SMALL, "model_type": "new"}, "")
    assert model.num_params == SMALL_PARAMS
    assert model.warnings == ("has its parameters counted like Llama's: new is not known",)


def test_the_index_beside_a_config_gives_the_weights(tmp_path: Path) -> None:
    file = write(tmp_path / "some-model", SMALL)
    stored = 2 * SMALL_PARAMS + 2000
    write(file.parent, {"metadata": {"total_size": stored}}, "model.safetensors.index.json")
    model = read_config(file.parent)
    assert model == read_config(file)
    assert (model.name, model.weights_bytes, model.num_params) == (
        "some-model",
        stored,
        stored // 2,
    )
    assert model.warnings == ()
    write(file.parent, {**SMALL, "quantization_config": {"quant_method": "mxfp4"}})
    assert read_config(file).weights_bytes == stored
    write(file.parent, {**SMALL, "torch_dtype": "float32"})
    single = read_config(file)
    assert single.weights_bytes == stored // 4 * 2
    assert single.warnings == (
        f"has {stored // 4:,} parameters by its model.safetensors.index.json and "
        f"{SMALL_PARAMS:,} by its config.json: the former are taken",
    )


BROKEN: dict[str, Any] = {
    "is no JSON: ": "{",
    "must hold an object": [],
    "is no JSON: NaN is no number": '{"hidden_size": NaN}',
    "is nested too deeply": "[" * 100_000,
    "has no num_hidden_layers": {k: v for k, v in SMALL.items() if k != "num_hidden_layers"},
    "has no hidden_size (or n_embd, n_embed, d_model), which a nameless model needs": {
        "num_hidden_layers": 2
    },
    "hidden_size must be a whole number, got '64.5'": {**SMALL, "hidden_size": 64.5},
    "num_attention_heads must be a whole number, got 'True'": {
        **SMALL,
        "num_attention_heads": True,
    },
    "must have 1 to 10,000 layers": {**SMALL, "num_hidden_layers": 1 << 30},
    "its 3 KV heads do not divide its 4 attention heads": {**SMALL, "num_key_value_heads": 3},
    "has no head_dim, and hidden_size 63 is no multiple of 4": {**SMALL, "hidden_size": 63},
    "has no qk_rope_head_dim": {**SMALL, "kv_lora_rank": 8},
    "kv_lora_rank and qk_rope_head_dim are both 0": {
        **SMALL,
        "kv_lora_rank": 0,
        "qk_rope_head_dim": 0,
    },
    "gives a context of 2147483647 tokens; accepted: 1 to 67108864": {
        **SMALL,
        "max_position_embeddings": 2**31 - 1,
    },
    "gives a context of -20 tokens": {
        **SMALL,
        "rope_scaling": {
            "rope_type": "yarn",
            "factor": 4,
            "original_max_position_embeddings": -5,
        },
    },
    "quantization_config must be an object, got 'fp8'": {**SMALL, "quantization_config": "fp8"},
    "dtype '16' is unknown; accepted: float16, bfloat16, float32": {**SMALL, "torch_dtype": 16},
}


@pytest.mark.parametrize("sentence", BROKEN)
def test_a_file_that_is_not_understood_is_one_sentence_that_names_it(
    tmp_path: Path, sentence: str
) -> None:
    file = write(tmp_path, BROKEN[sentence])
    with pytest.raises(ValueError, match=r".") as caught:
        read_config(file)
    assert str(caught.value).startswith(f"{file}: {sentence}")


@pytest.mark.parametrize("value", [None, 0, -1, 1e308, 10**400, "x", [], {}, True])
@pytest.mark.parametrize(
    "key",
    [
        *SMALL,
        "num_key_value_heads",
        "rope_scaling",
        "quantization_config",
        "sliding_window",
        "layer_types",
        "num_experts",
        "mlp_only_layers",
        "text_config",
        "attn_config",
        "moe_layer_freq",
    ],
)
def test_any_value_of_a_key_gives_a_model_or_a_sentence(key: str, value: Any) -> None:
    config = {**SMALL, "num_experts_per_tok": 1, "num_local_experts": 2, key: value}
    kv_bytes = sentence = None
    try:
        kv_bytes = model_from_config("m", config, "").kv_bytes_per_token
    except ValueError as error:
        sentence = str(error)
    assert (kv_bytes or 0) > 0 or (sentence and len(sentence) < 200)
