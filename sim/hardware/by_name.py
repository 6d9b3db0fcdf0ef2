"""Models and GPUs by name: presets/models.yaml and presets/gpus.yaml, data with their sources.

Bytes are bytes; GB is 1e9 of them and GiB 2**30, and nothing here uses one for the other. A
model's preset holds the keys of its Hugging Face config.json that matter here, so that presets and
files are read by the same code (sim/hardware/hf_config.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from sim.hardware.hf_config import model_from_config
from sim.hardware.types import GIB, Device, Model

__all__ = [
    "GIB",
    "GPUS",
    "GPU_ALIASES",
    "MODELS",
    "MODEL_ALIASES",
    "Device",
    "Model",
    "find_device",
    "find_model",
]

_PRESETS = Path(__file__).parent / "presets"


def _read(name: str) -> dict[str, dict[str, Any]]:
    text = (_PRESETS / name).read_text(encoding="utf-8")
    entries: dict[str, dict[str, Any]] = yaml.safe_load(text)
    return entries


def _device(name: str, entry: Mapping[str, Any]) -> Device:
    return Device(name, **{key: value for key, value in entry.items() if key != "aliases"})


def _aliases(entries: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
    return {alias.lower(): name for name, entry in entries.items() for alias in entry["aliases"]}


_MODEL_ENTRIES = _read("models.yaml")
_GPU_ENTRIES = _read("gpus.yaml")

MODELS: dict[str, Model] = {
    name: model_from_config(name, entry["config"], entry["source"])
    for name, entry in _MODEL_ENTRIES.items()
}
GPUS: dict[str, Device] = {name: _device(name, entry) for name, entry in _GPU_ENTRIES.items()}
MODEL_ALIASES: dict[str, str] = _aliases(_MODEL_ENTRIES)
GPU_ALIASES: dict[str, str] = _aliases(_GPU_ENTRIES)


def find_model(name: str) -> Model | None:
    """The preset of that name or alias, upper or lower case; None if there is none."""
    return MODELS.get(MODEL_ALIASES.get(name.lower(), name.lower()))


def find_device(name: str) -> Device | None:
    """The preset of that name or alias, upper or lower case; None if there is none."""
    return GPUS.get(GPU_ALIASES.get(name.lower(), name.lower()))
