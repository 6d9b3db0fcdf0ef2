"""Sizes that follow from a model's shape and a GPU's memory."""

from __future__ import annotations

from sim.hardware import MODELS, Model


def kv_bytes_per_token(model: str) -> int:
    """Bytes of keys and values that a token takes, all layers."""
    return model_named(model).kv_bytes_per_token


def model_named(name: str) -> Model:
    """The preset of a name. Raises KeyError."""
    return MODELS[name]
