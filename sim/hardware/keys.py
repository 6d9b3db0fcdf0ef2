"""The keys model and device of an experiment: a preset's name, a config.json, or numbers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from sim.config.paths import find_path
from sim.config.plugins import Report, Strict, guess, validate
from sim.hardware.by_name import (
    GPU_ALIASES,
    GPUS,
    MODEL_ALIASES,
    MODELS,
    Device,
    Model,
    find_device,
    find_model,
)
from sim.hardware.hf_config import read_config
from sim.hardware.types import MAX_MODEL_LEN

ModelLen = Annotated[int, Field(ge=1, le=MAX_MODEL_LEN)]
Bytes = Annotated[int, Field(ge=0)]
Count = Annotated[int, Field(ge=1)]
Rate = Annotated[float, Field(gt=0)]


class ModelKeys(Strict):
    """model: {…} instead of a preset: numbers of the whole model, at 16 bits a value.

    kv_bytes_per_token are the bytes of keys and values of one token, in all layers.
    max_len is its longest sequence in tokens.
    weights_bytes is what the weights take, num_params times two if it is left out.
    num_params are all its parameters; cost models need them.
    num_active_params are those that one token uses, num_params if it is left out.
    num_expert_params are those of all experts together.
    layers is the number of layers; cost models need it and what follows.
    hidden is the width of the residual stream.
    heads are query heads, kv_heads key and value heads, head_dim the values of one of them.
    """

    kv_bytes_per_token: Count
    max_len: ModelLen | None = None
    weights_bytes: Bytes | None = None
    num_params: Count | None = None
    num_active_params: Count | None = None
    num_expert_params: Bytes | None = None
    layers: Count | None = None
    hidden: Count | None = None
    heads: Count | None = None
    kv_heads: Count | None = None
    head_dim: Count | None = None


class ConfigKeys(Strict):
    """model: {config: path}, and numbers that replace what is computed from the file.

    config is the path of a config.json or of its folder.
    max_len is its longest sequence in tokens.
    weights_bytes is what the weights take.
    num_params are all its parameters.
    num_active_params are those that one token uses.
    num_expert_params are those of all experts together.
    """

    config: str
    max_len: ModelLen | None = None
    weights_bytes: Bytes | None = None
    num_params: Count | None = None
    num_active_params: Count | None = None
    num_expert_params: Bytes | None = None


class DeviceKeys(Strict):
    """device: {…} instead of a preset; what time depends on may be left out.

    memory_bytes is the memory of one GPU as CUDA reports it.
    memory_gb_s is its bandwidth in 10⁹ bytes a second.
    bf16_tflops is its dense BF16 rate in 10¹² operations a second.
    nvlink_gb_s is the bandwidth to other GPUs, both directions together, in 10⁹ bytes a second.
    pcie_gb_s is the bandwidth to the host, one direction, in 10⁹ bytes a second.
    """

    memory_bytes: Count
    memory_gb_s: Rate | None = None
    bf16_tflops: Rate | None = None
    nvlink_gb_s: Annotated[float, Field(ge=0)] | None = None
    pcie_gb_s: Rate | None = None


def read_model(value: Any, folder: Path, report: Report) -> Model | None:
    """The model that an experiment names or describes; None if there is none or it is wrong.

    The path of a config.json starts at folder.
    """
    if value is None:
        return None
    if isinstance(value, dict) and "config" in value:
        config_keys = validate(ConfigKeys, value, ("model",), report)
        return _read_keys(config_keys, folder, report)
    if isinstance(value, dict):
        keys = validate(ModelKeys, value, ("model",), report)
        return _given(keys, report) if isinstance(keys, ModelKeys) else None
    found = find_model(value) if isinstance(value, str) else None
    if found is None and isinstance(value, str) and _is_path(value, folder):
        return _read_file(value, folder, ("model",), report)
    if found is None:
        _report_preset("model", value, (MODELS, MODEL_ALIASES), report)
    return found


def _is_path(value: str, folder: Path) -> bool:
    if value.startswith((".", "/", "$")) or value.endswith(".json"):
        return True
    try:
        return (folder / value).exists()
    except (OSError, ValueError):
        return False


def _read_file(path: str, folder: Path, where: tuple[str, ...], report: Report) -> Model | None:
    try:
        return read_config(find_path(path, folder))
    except ValueError as error:
        report(where, str(error))
        return None


def _read_keys(keys: Strict | None, folder: Path, report: Report) -> Model | None:
    if not isinstance(keys, ConfigKeys):
        return None
    model = _read_file(keys.config, folder, ("model", "config"), report)
    if model is None:
        return None
    given = keys.model_dump(exclude_none=True, exclude={"config"})
    if keys.num_params is not None:
        given.setdefault("num_active_params", keys.num_params)
        if not model.quantization:
            given.setdefault("weights_bytes", 2 * keys.num_params)
    return _checked(replace(model, **given), report)


def _given(keys: ModelKeys, report: Report) -> Model | None:
    given = keys.model_dump(exclude_none=True)
    if keys.num_params is not None:
        given.setdefault("num_active_params", keys.num_params)
        given.setdefault("weights_bytes", 2 * keys.num_params)
    return _checked(Model(name="model", **given), report)


def _checked(model: Model, report: Report) -> Model | None:
    params, active = model.num_params, model.num_active_params
    if params is not None and active is not None and active > params:
        report(("model", "num_active_params"), f"must be at most num_params, {params}")
        return None
    if model.heads is not None and model.heads % (model.kv_heads or model.heads):
        report(("model", "kv_heads"), f"must divide heads, {model.heads}; got {model.kv_heads}")
        return None
    return model


def read_device(value: Any, report: Report) -> Device | None:
    """The device that an experiment names or describes; None if there is none or it is wrong."""
    if value is None:
        return None
    if isinstance(value, dict):
        keys = validate(DeviceKeys, value, ("device",), report)
        return Device("device", **keys.model_dump()) if isinstance(keys, DeviceKeys) else None
    found = find_device(value) if isinstance(value, str) else None
    if found is None:
        _report_preset("device", value, (GPUS, GPU_ALIASES), report)
    return found


def _report_preset(
    key: str, value: object, known: tuple[Mapping[str, object], Mapping[str, str]], report: Report
) -> None:
    presets, aliases = known
    others = {
        "model": "a config.json or its folder, or {kv_bytes_per_token: …}",
        "device": "or {memory_bytes: …}",
    }[key]
    near = guess(str(value), [*presets, *aliases]).split("; ", maxsplit=1)[0]
    hint = near if near.startswith(",") else ""
    names = ", ".join(presets)
    report((key,), f"unknown {key} {value!r}{hint}; accepted: {names}, {others}")
