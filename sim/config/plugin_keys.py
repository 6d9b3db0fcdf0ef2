"""The plug-in keys of an experiment: their configurations resolved, tried out, and built.

What a constructor says of its parameters is reported at the keys that set them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

from sim.allocators import ALLOCATORS, Allocator
from sim.config.classes import Table, find_class
from sim.config.paths import with_files, with_paths
from sim.config.plugins import (
    UNKNOWN_KEY,
    Config,
    Report,
    build,
    parameter_names,
    resolve,
    split_key,
)
from sim.config.yaml_nodes import KeyPath
from sim.costs import COST_MODELS, CostModel
from sim.hardware.types import MAX_MODEL_LEN, Device, Model
from sim.routers import ROUTERS, Router
from sim.schedulers import SCHEDULERS, Scheduler
from sim.sequence import SequenceTable
from workloads import WORKLOADS, Workload

REQUEST = re.compile(r"request (\d+)\b")  # a row of an inline workload

# the plug-in keys: table of kinds, and what a class of somebody else's must derive from
PLUGINS: dict[str, tuple[Table, type]] = {
    "workload": (WORKLOADS, Workload),
    "allocator": (ALLOCATORS, Allocator),
    "scheduler": (SCHEDULERS, Scheduler),
    "cost": (COST_MODELS, CostModel),
}

# beside them, the one that stands in replicas
TABLES: dict[str, tuple[Table, type]] = {**PLUGINS, "router": (ROUTERS, Router)}

# what is meant when the kind is left out
DEFAULTS = {"scheduler": "fcfs", "cost": "linear"}
DEFAULT_ROUTER = "round_robin"

# whose facts a cost model may take, and which there are; an allocator's are its parameters
OWNERS = {
    "model": {field.name for field in fields(Model)},
    "device": {field.name for field in fields(Device)},
    "allocator": None,
}

MAX_TOKENS_RULES = ("output", "max_model_len", "column")


def resolve_parts(
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

    part = resolve(value, *TABLES[key], (key,), note)
    wrong = "" if part is None else _wrong_sources(key, part)
    if wrong:
        report((key,), wrong)
        return None
    part = _with_facts(key, part, hardware)
    if part is not None:
        return part if _can_build(key, part, folder, report) else None
    if unknown:
        rest = resolve(_without(value, unknown), *TABLES[key], (key,), lambda *_: None)
        rest = _with_facts(key, rest, hardware)
        if rest is not None:
            _can_build(key, rest, folder, report)
    return None


def _wrong_sources(key: str, part: Config) -> str:
    """What is wrong with the facts that a class of somebody else's asks for; else empty."""
    sources = getattr(find_class(part["kind"], *TABLES[key]), "from_hardware", {})
    if not isinstance(sources, Mapping):
        return f"{part['kind']}: from_hardware is {sources!r}; accepted: {{parameter: fact}}"
    for name, source in sources.items():
        owner, _, fact = str(source).partition(".")
        known = OWNERS.get(owner)
        if name not in part:
            return f"{part['kind']}: from_hardware names {name!r}, which is no parameter of it"
        if not fact or owner not in OWNERS or (known is not None and fact not in known):
            accepted = "accepted: model.… or device.… and a field of theirs, or allocator.…"
            return f"{part['kind']}: from_hardware: {name}: unknown fact {source!r}; {accepted}"
    return ""


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
    sentence = no_max_tokens(rule, (None, *MAX_TOKENS_RULES))
    if sentence:
        report(("workload", "max_tokens"), sentence)
        return rest, None
    return rest, rule


def no_max_tokens(rule: Any, rules: Sequence[str | None]) -> str:
    """The sentence about what is neither one of the rules nor a number of tokens; else empty."""
    if rule in rules or (type(rule) is int and 1 <= rule <= MAX_MODEL_LEN):
        return ""
    accepted = ", ".join(name for name in rules if name is not None)
    return f"unknown rule {rule!r}; accepted: {accepted}, or 1 to {MAX_MODEL_LEN} tokens"


def _can_build(key: str, part: Config, folder: Path, report: Report) -> bool:
    """Whether the constructor takes its parameters; if not, report what it says."""
    try:
        _require_lines(key, build_part(key, part, folder))
    except (Exception, SystemExit) as error:  # a plug-in of somebody else's may raise anything
        _report_constructor(key, part, _sentence(error), report)
        return False
    return True


def _require_lines(key: str, part: Any) -> None:
    """What a cost model says of its times are lines. Raises ValueError."""
    for name in ("notes", "errors", "warnings") if key == "cost" else ():
        said = getattr(part, name)
        if not isinstance(said, tuple | list) or not all(isinstance(line, str) for line in said):
            raise ValueError(f"{name}: is {said!r}; accepted: a tuple of lines")


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


def match_parts(parts: Mapping[str, Config], report: Report) -> None:
    """Ask the scheduler whether it can run with the allocator."""
    try:
        scheduler: Scheduler = build_part("scheduler", parts["scheduler"], Path())
        objection = scheduler.objection(build_part("allocator", parts["allocator"], Path()))
    except (Exception, SystemExit) as error:  # as above
        objection = _sentence(error)
    if objection:
        _report_constructor("scheduler", parts["scheduler"], objection, report)


def bind_allocator(part: Config, num_slots: int, max_model_len: int, report: Report) -> None:
    """Give the allocator the pool, to find what does not fit before anything runs."""
    try:
        allocator: Allocator = build_part("allocator", part, Path())
        allocator.bind(num_slots, SequenceTable(), max_model_len)
    except (Exception, SystemExit) as error:  # as above
        _report_constructor("allocator", part, _sentence(error), report)
