"""The keys of a Hugging Face config.json by any of the names that architectures give them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

MAX_COUNT = 1 << 31  # of anything a config.json counts
MAX_LAYERS = 10_000


class Keys:
    """A config.json; for a multimodal model, its text part with the rest behind it."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        text = next((config[k] for k in ("text_config", "llm_config") if k in config), None)
        self.is_nested = isinstance(text, dict)
        inner: Mapping[str, Any] = text if isinstance(text, dict) else config
        # what is said of the whole model holds for its text part: dtype, quantization, tying
        self._data = {**config, **inner}
        kind = inner.get("model_type", config.get("model_type"))
        old = {"RefinedWeb": "falcon", "RefinedWebModel": "falcon"}
        self.model_type = old.get(kind, kind) if isinstance(kind, str) else "nameless"

    def get(self, *names: str) -> Any:
        """The value of the first of these keys that is there and not null; None if none is."""
        return next((self._data[n] for n in names if self._data.get(n) is not None), None)

    def flag(self, name: str, default: bool) -> bool:
        """A key that is true or false."""
        value = self.get(name)
        return value if isinstance(value, bool) else default

    def count(self, *names: str, default: int | None = None) -> int:
        """The first of these keys that is there, a whole number.

        Raises ValueError with a sentence if none is there and there is no default.
        """
        name = next((n for n in names if self._data.get(n) is not None), None)
        if name is None:
            if default is not None:
                return default
            others = f" (or {', '.join(names[1:])})" if len(names) > 1 else ""
            raise ValueError(f"has no {names[0]}{others}, which a {self.model_type} model needs")
        value = self._data[name]
        if type(value) is not int or not 0 <= value < MAX_COUNT:
            raise ValueError(f"{name} must be a whole number, got {str(value)[:40]!r}")
        return value


@dataclass(frozen=True)
class Shape:
    """The widths that a KV cache depends on.

    latent_dim: values that multi-head latent attention keeps of a token in a layer, instead of
    keys and values for kv_heads of head_dim; None for all other attention.
    """

    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    latent_dim: int | None = None

    @property
    def kv_values_per_token(self) -> int:
        """Values that one token leaves in the KV cache over all layers."""
        if self.latent_dim is not None:
            return self.layers * self.latent_dim
        return self.layers * 2 * self.kv_heads * self.head_dim


def read_shape(keys: Keys) -> Shape:
    """Find the widths in a config.json. Raises ValueError with a sentence."""
    # an encoder-decoder's other names are those of its encoder
    layers = keys.count("decoder_layers", default=0) or keys.count(
        "num_hidden_layers", "n_layer", "n_layers", "num_layers"
    )
    hidden = keys.count("hidden_size", "n_embd", "n_embed", "d_model")
    heads = keys.count("decoder_attention_heads", default=0) or keys.count(
        "num_attention_heads", "n_head", "n_heads", "num_heads"
    )
    if not (0 < layers <= MAX_LAYERS and hidden and heads):
        raise ValueError(f"must have 1 to {MAX_LAYERS:,} layers, and heads, and a hidden size")
    if keys.get("kv_lora_rank") is not None:
        latent = keys.count("kv_lora_rank") + keys.count("qk_rope_head_dim")
        if not latent:
            raise ValueError("kv_lora_rank and qk_rope_head_dim are both 0: nothing to keep")
        # as the kernels see it: every head reads the same latent
        return Shape(layers, hidden, heads, 1, latent, latent)
    kv_heads = _kv_heads(keys, heads)
    if not kv_heads or heads % kv_heads:
        raise ValueError(f"its {kv_heads} KV heads do not divide its {heads} attention heads")
    return Shape(layers, hidden, heads, kv_heads, _head_dim(keys, hidden, heads))


def _head_dim(keys: Keys, hidden: int, heads: int) -> int:
    found = keys.count("head_dim", "d_kv", "kv_channels", default=0)
    if not found and hidden % heads:
        raise ValueError(f"has no head_dim, and hidden_size {hidden} is no multiple of {heads}")
    return found or hidden // heads


def _kv_heads(keys: Keys, heads: int) -> int:
    if keys.model_type == "falcon" and not keys.flag("new_decoder_architecture", False):
        return 1 if keys.flag("multi_query", True) else heads
    if keys.model_type == "gpt_bigcode":
        return 1 if keys.flag("multi_query", True) else heads
    inner = keys.get("attn_config")  # mpt
    if isinstance(inner, dict) and isinstance(inner.get("kv_n_heads"), int):
        return int(inner["kv_n_heads"])
    names = ("num_key_value_heads", "num_kv_heads", "n_head_kv", "multi_query_group_num")
    return keys.count(*names, default=heads)
