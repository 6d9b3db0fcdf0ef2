"""What an experiment file may say, and the one resolved form of it.

`resolve_point` turns the keys of one point (one allocator, all swept keys set) into plain data
with every default filled in, and reports everything that is wrong. Which points there are is
the business of experiment.py here, reading YAML is that of yaml_nodes.py, plug-ins are that of
plugin_keys.py.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sim.config.keys import ReplicasKeys, TopKeys
from sim.config.plugin_keys import (
    DEFAULT_ROUTER,
    PLUGINS,
    TABLES,
    bind_allocator,
    build_part,
    match_parts,
    resolve_part,
    resolve_parts,
)
from sim.config.plugins import Config, Report, Reported, below, validate
from sim.config.pool import PoolKeys, find_pool, served_model
from sim.config.yaml_nodes import ConfigError
from sim.hardware.keys import read_device, read_model
from sim.hardware.types import Device, Model

__all__ = [
    "PLUGINS",
    "TABLES",
    "ConfigError",
    "Point",
    "build_part",
    "no_folder_name",
    "resolve_part",
    "resolve_point",
]

NAME = re.compile(r"(?!\.+$)[A-Za-z0-9_.-]{1,100}")

# the PagedAttention paper's setting, for experiments that say nothing of their pool
DEFAULT_MODEL = "opt-13b"
DEFAULT_DEVICE = "a100-40gb"
DEFAULT_MAX_MODEL_LEN = 2048

BUDGET_KEYS = ("gpu_memory_utilization", "activation_bytes", "non_torch_bytes")


@dataclass(frozen=True)
class Point:
    """One resolved point: plain data that a run is built from, without the seed.

    budget_lines say how large the pool is and why, warnings what of the model is not simulated.
    """

    config: Config
    slo: dict[str, float]
    budget_lines: tuple[str, ...]
    warnings: tuple[str, ...]
    top: TopKeys


def resolve_point(
    data: Config, folder: Path, report: Report, report_misfit: Report
) -> Point | None:
    """Check the keys of one point and fill in every default; None if anything was reported.

    folder is where relative paths of the workload start. report_misfit is told of what is right by
    itself but does not go together: a block larger than the pool, a model that leaves no room.
    """
    reported = Reported()
    report, misfit = reported.before(report), reported.before(report_misfit)
    top = validate(TopKeys, data, (), report)
    if not isinstance(top, TopKeys):
        resolve_parts(data, folder, report, None)
        return None
    if sentence := no_folder_name(top.name):
        report(("name",), sentence)
    _fill_in(top)
    model, device = read_model(top.model, folder, report), read_device(top.device, report)
    _check_budget_keys(top, data, report)
    if not reported.any:
        dtypes = (top.dtype, top.kv_cache_dtype)
        model = served_model(model, dtypes, top.tensor_parallel_size, misfit)
    hardware = None if reported.any else {"model": model, "device": device}
    parts = resolve_parts(data, folder, report, hardware)
    if top.replicas is not None:
        parts["replicas"] = _resolve_replicas(top.replicas, folder, report)
    if reported.any:
        return None
    point = _fit_together(top, (model, device), parts, misfit)
    return None if reported.any else point


def no_folder_name(name: str) -> str | None:
    """The sentence about an experiment's name that cannot be a folder's; None if it can."""
    if NAME.fullmatch(name):
        return None
    return f"{name!r} is no folder name; accepted: letters, digits, _ . and -"


def _fill_in(top: TopKeys) -> None:
    """Name a model and a device where nothing says how large the pool is."""
    if top.kv_cache is None:
        top.model = DEFAULT_MODEL if top.model is None else top.model
        top.device = DEFAULT_DEVICE if top.device is None else top.device


def _check_budget_keys(top: TopKeys, data: Config, report: Report) -> None:
    """Report keys that divide the memory of no device."""
    if top.model is None or top.device is None:
        for key in BUDGET_KEYS:
            if data.get(key) is not None:
                report((key,), "divides a device's memory, but there is no model and device")


def _fit_together(
    top: TopKeys,
    hardware: tuple[Model | None, Device | None],
    parts: dict[str, Any],
    misfit: Report,
) -> Point | None:
    """The point, whose parts are right by themselves; reported if they do not go together."""
    model, device = hardware
    rest = (top.gpu_memory_utilization, top.activation_bytes, top.non_torch_bytes, top.kv_cache)
    num_slots, lines = find_pool(PoolKeys(model, device, *rest), misfit)
    own_max_len = model.max_len if model is not None else None
    max_model_len = top.max_model_len or own_max_len or DEFAULT_MAX_MODEL_LEN
    match_parts(parts, misfit)
    if num_slots is None:
        return None
    bind_allocator(parts["allocator"], num_slots, max_model_len, misfit)
    config: Config = {
        "model": top.model,
        "device": top.device,
        "gpu_memory_utilization": top.gpu_memory_utilization,
        "activation_bytes": top.activation_bytes,
        "non_torch_bytes": top.non_torch_bytes,
        "tensor_parallel_size": top.tensor_parallel_size,
        "dtype": top.dtype,
        "kv_cache_dtype": top.kv_cache_dtype,
        "kv_bytes_per_token": model.kv_bytes_per_token if model is not None else None,
        "kv_cache": {"num_slots": num_slots},
        "max_model_len": max_model_len,
        **parts,
    }
    slo = top.slo.model_dump(exclude_none=True) if top.slo else {}
    return Point(config, slo, tuple(lines), _warnings(model), top)


def _resolve_replicas(keys: ReplicasKeys, folder: Path, report: Report) -> Config | None:
    """How many replicas there are, and their router; None if it is wrong."""
    router = keys.router
    if router is None or isinstance(router, dict):
        router = {"kind": DEFAULT_ROUTER, **(router or {})}
    part = resolve_part("router", router, (folder, None), below(("replicas",), report))
    return None if part is None else {"count": keys.count, "router": part}


def _warnings(model: Model | None) -> tuple[str, ...]:
    """What the model has that is not simulated, in sentences."""
    return tuple(f"{model.name} {warning}" for warning in model.warnings) if model else ()
