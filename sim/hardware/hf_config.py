"""A model from a Hugging Face config.json: KV bytes per token, parameters, weights, context.

    KV        at 16 bits: 2 x layers x KV heads x head_dim, or layers x latent with MLA
    weights   parameters x bytes of the dtype that it is served in; with fp8, or gptq and awq with
              their bits and group_size, the embeddings stay at 16 bits and all else shrinks
    max_len   max_position_embeddings; times the factor of linear, dynamic and yarn RoPE scaling

A float32 checkpoint counts as 16 bits, because that is how vLLM's dtype: auto serves it. Where
model.safetensors.index.json lies beside the file, its total_size gives the weights instead.

Attention is full attention in every layer. What a config.json says to the contrary is in
Model.warnings: windows, recurrent layers and encoders need less KV than is counted here, or other.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from sim.hardware.hf_keys import Keys, Shape, read_shape
from sim.hardware.hf_params import FORMS, ParamCount, count_params
from sim.hardware.types import DTYPE_BYTES, MAX_MODEL_LEN, Model

INDEX = "model.safetensors.index.json"
MAX_BYTES = 1 << 60
MAX_GROUP = 1 << 20
MAX_FACTOR = 1000.0  # of RoPE scaling

_DTYPES = {"float16": "float16", "bfloat16": "bfloat16", "float32": "float16"}  # as served
_NO_ATTENTION = ("mamba", "linear", "recurrent", "rwkv", "ssm", "conv")
_HYBRID_KEYS = (
    "attn_layer_period",
    "hybrid_override_pattern",
    "full_attention_interval",
    "mamba_d_state",
    "ssm_state_size",
    "state_size",
    "attn_type_list",
)


def read_config(path: Path) -> Model:
    """The model of a config.json, or of the folder that holds one.

    Raises ValueError with a sentence that starts with the file.
    """
    file = path / "config.json" if path.is_dir() else path
    config = _read_object(file)
    index = file.parent / INDEX
    total = _total_size(index) if index.is_file() else None
    try:
        return model_from_config(_name(file), config, str(file), total)
    except ValueError as error:
        raise ValueError(f"{file}: {error}") from None


def model_from_config(
    name: str, config: Mapping[str, Any], source: str, total_size: int | None = None
) -> Model:
    """The model that a config.json describes; total_size is the checkpoint's, in bytes.

    Raises ValueError with a sentence if a key that KV depends on is missing or wrong.
    """
    keys = Keys(config)
    shape = read_shape(keys)
    max_len = _max_len(keys)
    stored = _stored_dtype(keys)
    dtype = _DTYPES[stored]
    model = Model(
        name=name,
        kv_bytes_per_token=shape.kv_values_per_token * DTYPE_BYTES[dtype],
        max_len=max_len,
        source=source,
        layers=shape.layers,
        hidden=shape.hidden,
        heads=shape.heads,
        kv_heads=shape.kv_heads,
        head_dim=shape.head_dim,
        has_latent_kv=shape.latent_dim is not None,
        dtype=dtype,
        kv_dtype=dtype,
        quantization=_quantization(keys),
        warnings=_warnings(keys, shape, max_len),
    )
    return _with_weights(model, keys, shape, total_size, DTYPE_BYTES[stored])


def _with_weights(
    model: Model, keys: Keys, shape: Shape, total_size: int | None, stored_bytes: int
) -> Model:
    """The model with its parameters and weights; stored_bytes are a parameter's on disk."""
    count, problem = _count(keys, shape)
    params = count.total if count else None
    warnings = model.warnings
    if total_size is not None and not model.quantization:
        params = total_size // stored_bytes
        warnings += _differs(count, params, keys)
    elif count is not None and total_size is None:
        warnings += _uncounted(keys)
    weights, unknown = _weights(count, model.quantization, keys)
    if params is not None and not model.quantization:
        weights = params * DTYPE_BYTES[model.dtype]
    elif total_size is not None:
        weights = total_size
    active = count.active if count else params
    return replace(
        model,
        weights_bytes=weights,
        num_params=params,
        num_active_params=min(active, params) if active and params else None,
        num_expert_params=min(count.experts, params) if count and params else None,
        num_embedding_params=min(count.embedding, params) if count and params else None,
        vocab=keys.count("vocab_size", "padded_vocab_size") if count else None,
        warnings=warnings,
        why_no_weights=problem or unknown if weights is None else "",
    )


def _name(file: Path) -> str:
    return file.absolute().parent.name if file.name == "config.json" else file.stem


def _read_object(file: Path) -> Mapping[str, Any]:
    try:
        data = json.loads(file.read_text(encoding="utf-8-sig"), parse_constant=_refuse)
    except OSError as error:
        raise ValueError(f"{file}: {error.strerror or error}") from None
    except RecursionError:
        raise ValueError(f"{file}: is nested too deeply") from None
    except ValueError as error:  # bad UTF-8 or bad JSON
        raise ValueError(f"{file}: is no JSON: {' '.join(str(error).split())}") from None
    if not isinstance(data, dict):
        raise ValueError(f"{file}: must hold an object like a model's config.json")
    return data


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is no number")


def _total_size(index: Path) -> int | None:
    """Bytes of a checkpoint's tensors, None if the index does not say."""
    metadata = _read_object(index).get("metadata")
    size = metadata.get("total_size") if isinstance(metadata, dict) else None
    return int(size) if isinstance(size, int | float) and 0 < size < MAX_BYTES else None


def _count(keys: Keys, shape: Shape) -> tuple[ParamCount | None, str]:
    """The parameters, or None and why they cannot be counted."""
    if keys.flag("is_encoder_decoder", False):
        return None, "the parameters of an encoder-decoder are not counted"
    if _hybrid(keys, shape):
        return None, "the parameters of layers without attention are not counted"
    try:
        return count_params(keys, shape), ""
    except ValueError as error:
        return None, f"its config.json {error}"


def _quantization(keys: Keys) -> str:
    """How the checkpoint's weights are quantized; empty if they are not."""
    config = keys.get("quantization_config")
    if config is None:
        return ""
    if not isinstance(config, dict):
        raise ValueError(f"quantization_config must be an object, got {str(config)[:40]!r}")
    return str(config.get("quant_method", "unknown"))


def _weights(count: ParamCount | None, quantization: str, keys: Keys) -> tuple[int | None, str]:
    """Bytes of quantized weights, or None and why they are not known.

    fp8 is a byte a parameter. gptq and awq keep bits a parameter, and for each group_size of them
    a 16-bit scale and a zero point of bits.
    """
    if count is None or not quantization:
        return None, ""
    config = keys.get("quantization_config")
    bits, group = (_small(config.get(key)) for key in ("bits", "group_size"))
    if quantization in {"fp8", "fbgemm_fp8"}:
        bytes_each = 1.0
    elif quantization in {"gptq", "awq"} and 0 < bits <= 16 and group:
        bytes_each = (bits + (16 + bits) / group) / 8
    else:
        return None, f"the size of weights quantized by {quantization} is not computed"
    return int((count.total - count.embedding) * bytes_each) + 2 * count.embedding, ""


def _small(value: Any) -> int:
    """A whole number that may be a count of bits or of values in a group; 0 for any other."""
    return value if type(value) is int and 0 < value < MAX_GROUP else 0


def _stored_dtype(keys: Keys) -> str:
    """What type the checkpoint's values have; float32 if it is not said."""
    value = keys.get("dtype", "torch_dtype")
    name = "float32" if value is None else str(value).removeprefix("torch.")
    if name not in _DTYPES:
        raise ValueError(f"dtype {name[:40]!r} is unknown; accepted: {', '.join(_DTYPES)}")
    return name


def _max_len(keys: Keys) -> int | None:
    """Tokens of the longest context, None if it is not said."""
    names = ("max_position_embeddings", "n_positions", "max_seq_len", "seq_length", "n_ctx")
    length = keys.count(*names, default=0)
    scaling = keys.get("rope_scaling", "rope_parameters")
    # Gemma 3 says what it has after scaling
    if length and isinstance(scaling, dict) and not keys.model_type.startswith("gemma3"):
        kind = scaling.get("rope_type", scaling.get("type"))
        factor = scaling.get("factor")
        if kind in ("linear", "dynamic", "yarn") and isinstance(factor, int | float):
            base = scaling.get("original_max_position_embeddings") if kind == "yarn" else None
            length = int(
                (base if type(base) is int else length) * min(max(1.0, factor), MAX_FACTOR)
            )
    if not 0 <= length <= MAX_MODEL_LEN:
        raise ValueError(
            f"gives a context of {str(length)[:20]} tokens; accepted: 1 to {MAX_MODEL_LEN}"
        )
    return length or None


def _hybrid(keys: Keys, shape: Shape) -> str:
    """What a hybrid model's layers are, in words; empty if all are attention."""
    types = keys.get("layer_types", "layers_block_type")
    if isinstance(types, list):
        others = [t for t in types if any(word in str(t) for word in _NO_ATTENTION)]
        return f"{len(others)} of {shape.layers} layers are {others[0]}" if others else ""
    found = next((k for k in _HYBRID_KEYS if keys.get(k) is not None), None)
    return f"{found} says that some layers have none" if found else ""


def _warnings(keys: Keys, shape: Shape, max_len: int | None) -> tuple[str, ...]:
    """In what a model's attention is not full attention: ends of "is treated as full …: "."""
    found = []
    window = keys.get("sliding_window")
    is_on = keys.flag("use_sliding_window", True)
    if type(window) is int and window > 0 and is_on and not (max_len and window >= max_len):
        types = keys.get("layer_types")
        layers = types.count("sliding_attention") if isinstance(types, list) else 0
        where = f" in {layers} of {shape.layers} layers" if layers else ""
        found.append(f"it has a sliding window of {window:,} tokens{where}")
    if keys.get("attention_chunk_size") is not None:
        found.append(f"it attends in chunks of {keys.get('attention_chunk_size')} tokens")
    if keys.get("index_topk") is not None:
        found.append(f"it attends to {keys.get('index_topk')} tokens that it selects")
    hybrid = _hybrid(keys, shape)
    if hybrid:
        found.append(hybrid)
    if keys.flag("is_encoder_decoder", False):
        found.append("it is an encoder-decoder, and the KV of its encoder is not counted")
    elif keys.get("cross_attention_layers") or keys.flag("add_cross_attention", False):
        found.append("it has cross-attention, whose KV does not grow with the text")
    return tuple(f"is treated as full attention: {sentence}" for sentence in found)


def _differs(count: ParamCount | None, num_params: int, keys: Keys) -> tuple[str, ...]:
    """That an index and a config.json are not of one model; towers are in the index only."""
    if count is None or keys.is_nested or abs(num_params - count.total) <= 0.02 * count.total:
        return ()
    return (
        f"has {num_params:,} parameters by its {INDEX} and {count.total:,} by its config.json: "
        "the former are taken",
    )


def _uncounted(keys: Keys) -> tuple[str, ...]:
    """What a parameter count leaves out or assumes."""
    found = []
    if keys.model_type not in FORMS:
        found.append(f"has its parameters counted like Llama's: {keys.model_type} is not known")
    if keys.get("vision_config", "audio_config") is not None:
        found.append("has its text part counted only: give weights_bytes for the whole of it")
    return tuple(found)
