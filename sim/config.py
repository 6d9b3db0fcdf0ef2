"""What an experiment file may say, and the one resolved form of it.

`resolve_point` turns the keys of one point (one allocator, all swept keys set) into plain data
with every default filled in, and reports everything that is wrong. Which points there are is
sim.experiment's business, reading YAML is sim.yaml_nodes', constructor parameters are
sim.plugins'.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sim.allocators import ALLOCATORS, Allocator
from sim.classes import Table, find_class
from sim.costs import COST_MODELS, CostModel
from sim.hardware_keys import read_device, read_model
from sim.hardware_types import MAX_MODEL_LEN, Model
from sim.keys import ReplicasKeys, TopKeys
from sim.paths import with_files, with_paths
from sim.plugins import (
    UNKNOWN_KEY,
    Config,
    Report,
    build,
    parameter_names,
    resolve,
    split_key,
    validate,
)
from sim.pool import PoolKeys, find_pool, served_model
from sim.routers import ROUTERS, Router
from sim.schedulers import SCHEDULERS, Scheduler
from sim.sequence import SequenceTable
from sim.yaml_nodes import ConfigError, KeyPath
from workloads import WORKLOADS, Workload

__all__ = ["PLUGINS", "ConfigError", "Point", "build_part", "resolve_part", "resolve_point"]

REQUEST = re.compile(r"request (\d+)\b")  # a row of an inline workload
NAME = re.compile(r"(?!\.+$)[A-Za-z0-9_.-]{1,100}")

# the plug-in keys: table of kinds, and what a class of somebody else's must derive from
PLUGINS: dict[str, tuple[Table, type]] = {
    "workload": (WORKLOADS, Workload),
    "allocator": (ALLOCATORS, Allocator),
    "scheduler": (SCHEDULERS, Scheduler),
    "cost": (COST_MODELS, CostModel),
}

# beside them, the one that stands in replicas
TABLES: dict[str, tuple[Table, type]] = {**PLUGINS, "router": (ROUTERS, Router)}

# the PagedAttention paper's setting, for experiments that say nothing of their pool
DEFAULT_MODEL = "opt-13b"
DEFAULT_DEVICE = "a100-40gb"
DEFAULT_MAX_MODEL_LEN = 2048

BUDGET_KEYS = ("gpu_memory_utilization", "activation_bytes", "non_torch_bytes")

# what is meant when the kind is left out
DEFAULTS = {"scheduler": "fcfs", "cost": "linear"}
DEFAULT_ROUTER = "round_robin"

MAX_TOKENS_RULES = ("output", "max_model_len", "column")


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
    reported = 0

    def count(path: KeyPath, sentence: str) -> None:
        nonlocal reported
        reported += 1
        report(path, sentence)

    def misfit(path: KeyPath, sentence: str) -> None:
        nonlocal reported
        reported += 1
        report_misfit(path, sentence)

    top = validate(TopKeys, data, (), count)
    if not isinstance(top, TopKeys):
        _resolve_parts(data, folder, count, None)
        return None
    if not NAME.fullmatch(top.name):
        count(("name",), f"{top.name!r} is no folder name; accepted: letters, digits, _ . and -")
    if top.kv_cache is None:
        top.model = DEFAULT_MODEL if top.model is None else top.model
        top.device = DEFAULT_DEVICE if top.device is None else top.device
    model = read_model(top.model, folder, count)
    device = read_device(top.device, count)
    if top.model is None or top.device is None:
        for key in BUDGET_KEYS:
            if data.get(key) is not None:
                count((key,), "divides a device's memory, but there is no model and device")
    hardware = None
    if not reported:
        dtypes = (top.dtype, top.kv_cache_dtype)
        model = served_model(model, dtypes, top.tensor_parallel_size, misfit)
        hardware = None if reported else {"model": model, "device": device}
    parts = _resolve_parts(data, folder, count, hardware)
    replicas = _resolve_replicas(top.replicas, folder, count)
    if reported:
        return None
    rest = (top.gpu_memory_utilization, top.activation_bytes, top.non_torch_bytes, top.kv_cache)
    num_slots, lines = find_pool(PoolKeys(model, device, *rest), misfit)
    own_max_len = model.max_len if model is not None else None
    max_model_len = top.max_model_len or own_max_len or DEFAULT_MAX_MODEL_LEN
    _match(parts, misfit)
    if num_slots is not None:
        _bind(parts["allocator"], num_slots, max_model_len, misfit)
    if reported:
        return None
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
        **({"replicas": replicas} if replicas else {}),
    }
    slo = top.slo.model_dump(exclude_none=True) if top.slo else {}
    return Point(config, slo, tuple(lines), _warnings(model), top)


def _resolve_replicas(keys: ReplicasKeys | None, folder: Path, report: Report) -> Config | None:
    """How many replicas there are, and their router; None without any, or if it is wrong."""
    if keys is None:
        return None
    router = keys.router
    if router is None or isinstance(router, dict):
        router = {"kind": DEFAULT_ROUTER, **(router or {})}

    def note(path: KeyPath, sentence: str) -> None:
        report(("replicas", *path), sentence)

    part = resolve_part("router", router, (folder, None), note)
    return None if part is None else {"count": keys.count, "router": part}


def _warnings(model: Model | None) -> tuple[str, ...]:
    """What the model has that is not simulated, in sentences."""
    return tuple(f"{model.name} {warning}" for warning in model.warnings) if model else ()


def _resolve_parts(
    data: Config, folder: Path, report: Report, hardware: Mapping[str, object] | None
) -> dict[str, Any]:
    """The plug-ins, resolved and tried out; those that are wrong are reported and left out.

    hardware is what a cost model may take facts from, {"model": …, "device": …}, and the resolved
    allocator beside them; None if it is wrong itself, which has been reported.
    """
    parts: dict[str, Any] = {}
    for key in PLUGINS:
        value = data.get(key)
        if value is None and key not in DEFAULTS:
            continue  # reported as missing
        if key in DEFAULTS and (value is None or isinstance(value, dict)):
            value = {"kind": DEFAULTS[key], **(value or {})}
        if key == "workload":
            value, rule = _split_max_tokens(value, report)
        facts = None if hardware is None else {**hardware, "allocator": parts.get("allocator")}
        part = resolve_part(key, value, (folder, facts), report)
        if part is not None:
            parts[key] = {**part, "max_tokens": rule} if key == "workload" else part
    for key in PLUGINS:
        if key not in DEFAULTS and key in data and data[key] is None:
            report((key,), f"is required; accepted: {{kind: {', '.join(PLUGINS[key][0])}, …}}")
    return parts


def resolve_part(
    key: str, value: Any, around: tuple[Path, Mapping[str, object] | None], report: Report
) -> Config | None:
    """One plug-in, resolved and tried out; None if it is wrong.

    around is the folder of paths, and the hardware. An unknown key does not hide what the
    constructor says of the others.
    """
    folder, hardware = around
    unknown: list[KeyPath] = []

    def note(path: KeyPath, sentence: str) -> None:
        if sentence.startswith(UNKNOWN_KEY):
            unknown.append(path[1:])
        report(path, sentence)

    part = _with_facts(key, resolve(value, *TABLES[key], (key,), note), hardware)
    if part is not None:
        return part if _can_build(key, part, folder, report) else None
    if unknown:
        rest = resolve(_without(value, unknown), *TABLES[key], (key,), lambda *_: None)
        rest = _with_facts(key, rest, hardware)
        if rest is not None:
            _can_build(key, rest, folder, report)
    return None


def _with_facts(
    key: str, part: Config | None, hardware: Mapping[str, object] | None
) -> Config | None:
    """A part whose open parameters are facts of the experiment's model, device and allocator.

    None if it needs hardware and there is none.
    """
    if part is None:
        return None
    sources = getattr(find_class(part["kind"], *TABLES[key]), "from_hardware", {})
    if sources and hardware is None:
        return None
    facts = {}
    for name, source in sources.items():
        owner, _, attribute = source.partition(".")
        if hardware is not None and part[name] is None:
            facts[name] = _fact(hardware[owner], attribute)
    return {**part, **facts}


def _fact(owner: object, name: str) -> Any:
    """A fact of a model or device, or a parameter of a resolved plug-in; None if it has none."""
    return owner.get(name) if isinstance(owner, dict) else getattr(owner, name, None)


def _without(value: Any, paths: list[KeyPath], path: KeyPath = ()) -> Any:
    """The value without the keys at these paths."""
    if isinstance(value, list):
        return [_without(item, paths, (*path, number)) for number, item in enumerate(value)]
    if not isinstance(value, dict):
        return value
    return {
        key: _without(below, paths, (*path, key))
        for key, below in value.items()
        if (*path, key) not in paths
    }


def _split_max_tokens(value: Any, report: Report) -> tuple[Any, str | int | None]:
    """The workload without max_tokens, and max_tokens; None if it is not said.

    It is apart because it says what the scheduler knows, whatever the workload is.
    """
    if not isinstance(value, dict):
        return value, None
    rest = {key: cell for key, cell in value.items() if key != "max_tokens"}
    rule = value.get("max_tokens")
    is_count = type(rule) is int and 1 <= rule <= MAX_MODEL_LEN
    if rule is None or is_count or rule in MAX_TOKENS_RULES:
        return rest, rule
    accepted = f"{', '.join(MAX_TOKENS_RULES)}, or 1 to {MAX_MODEL_LEN} tokens"
    report(("workload", "max_tokens"), f"unknown rule {rule!r}; accepted: {accepted}")
    return rest, None


def _can_build(key: str, part: Config, folder: Path, report: Report) -> bool:
    """Whether the constructor takes its parameters; if not, report what it says."""
    try:
        build_part(key, part, folder)
    except (Exception, SystemExit) as error:  # a plug-in of somebody else's may raise anything
        _report_constructor(key, part, _sentence(error), report)
        return False
    return True


def _sentence(error: BaseException) -> str:
    """What a constructor says; the kind of error too, unless it is the agreed one."""
    return str(error) if isinstance(error, ValueError) else f"{type(error).__name__}: {error}"


def _report_constructor(key: str, part: Config, message: str, report: Report) -> None:
    """Report a message "parameter: sentence", or several lines of such, at the parameters."""
    table, base = TABLES[key]
    known = parameter_names(find_class(part["kind"], table, base))
    sentences = [split_key(line) for line in message.split("\n")]
    if not all(where and where[0] in known for where, _ in sentences):
        sentences = [split_key(message)]
    for where, sentence in sentences:
        if where and where[0] in known:
            row = REQUEST.match(sentence)
            place = (int(row[1]),) if row and where == ("requests",) else ()
            report((key, *where, *place), sentence)
        else:
            report((key,), message)


def build_part(key: str, part: Config, folder: Path) -> Any:
    """Construct a resolved plug-in, whose paths start at folder. Raises ValueError."""
    table, base = TABLES[key]
    part = with_files(part, getattr(find_class(part["kind"], table, base), "files", ()), folder)
    if key == "workload":
        part = {name: value for name, value in part.items() if name != "max_tokens"}
        part = with_paths(part, folder)
    return build(part, table, base)


def _match(parts: Mapping[str, Config], report: Report) -> None:
    """Ask the scheduler whether it can run with the allocator."""
    try:
        scheduler: Scheduler = build_part("scheduler", parts["scheduler"], Path())
        objection = scheduler.objection(build_part("allocator", parts["allocator"], Path()))
    except (Exception, SystemExit) as error:  # as above
        objection = _sentence(error)
    if objection:
        _report_constructor("scheduler", parts["scheduler"], objection, report)


def _bind(part: Config, num_slots: int, max_model_len: int, report: Report) -> None:
    """Give the allocator the pool, to find what does not fit before anything runs."""
    try:
        allocator: Allocator = build_part("allocator", part, Path())
        allocator.bind(num_slots, SequenceTable(), max_model_len)
    except (Exception, SystemExit) as error:  # as above
        _report_constructor("allocator", part, _sentence(error), report)
