"""Engines by name: engines/*.yaml, data that say what one real engine sets, and files like them.

An experiment says `engine: vllm-0.32`, or `engine: ./mine.yaml` for a file of its own, and
overrides what it likes: sim.config.overlay lays its keys over the preset's. A preset is looked at
as strictly as an experiment: everything wrong with it has a file, a line and a key.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from sim.config.paths import find_path
from sim.config.plugin_keys import MAX_TOKENS_RULES, no_max_tokens, resolve_part
from sim.config.plugins import Config, Report, Strict, below, guess, shown, validate
from sim.config.yaml_nodes import ConfigError, Document, KeyPath, dotted, read_document
from sim.hardware.types import GIB, Device

ENGINES_FOLDER = Path(__file__).parents[1] / "engines"
ENGINES = sorted(path.stem for path in ENGINES_FOLDER.glob("*.yaml"))
PARTS = ("allocator", "scheduler")  # the plug-ins that a preset sets
REQUIRED = "required"  # the rule of a preset that has no max_tokens to suggest


class WorkloadKeys(Strict):
    """What an engine says of the requests.

    max_tokens is used where neither experiment nor trace says: output, max_model_len, a number, or
    required, which makes that an error.
    """

    max_tokens: Any


class DeviceCase(Strict):
    """What differs on devices of min_memory_gib or more, whose name does not hold not_named."""

    min_memory_gib: Annotated[float, Field(gt=0)]
    not_named: str | None = None
    allocator: dict[str, Any] | None = None
    scheduler: dict[str, Any] | None = None

    def fits(self, device: Device) -> bool:
        """Whether a device is meant."""
        is_excluded = self.not_named is not None and self.not_named.lower() in device.name
        return device.memory_bytes >= self.min_memory_gib * GIB and not is_excluded

    def __str__(self) -> str:
        name = f" that is no {self.not_named}" if self.not_named else ""
        return f"a device of {self.min_memory_gib:g} GiB or more{name}"


class EngineKeys(Strict):
    """An engine's preset: its allocator and scheduler, and what else it decides about memory.

    version, description and source are for readers. Of by_device the first case that fits the
    experiment's device lies over the rest.
    """

    version: str = ""
    description: str = ""
    source: str = ""
    allocator: Any
    scheduler: Any
    workload: WorkloadKeys | None = None
    gpu_memory_utilization: Annotated[float, Field(gt=0, le=1)] | None = None
    by_device: list[DeviceCase] = []  # noqa: RUF012 - pydantic copies it


@dataclass(frozen=True)
class Preset:
    """An engine as its file describes it, found valid."""

    name: str
    keys: EngineKeys

    @property
    def max_tokens(self) -> str | int | None:
        """The rule of max_tokens; None if the engine has none."""
        rule: str | int | None = self.keys.workload.max_tokens if self.keys.workload else None
        return rule

    def case(self, device: Device | None) -> DeviceCase | None:
        """The case of by_device that a device is, None for the rest."""
        if device is None:
            return None
        return next((case for case in self.keys.by_device if case.fits(device)), None)

    def part(self, key: str, device: Device | None) -> Config:
        """What the engine sets of a plug-in on a device."""
        part: Config = getattr(self.keys, key)
        case = self.case(device)
        whole: Config = lay_over(part, getattr(case, key) if case else None)
        return whole

    def about(self) -> str:
        """What `kvsim list` says of it, in two lines."""
        kinds = " + ".join(getattr(self.keys, key)["kind"] for key in PARTS)
        return f"{kinds}: {self.keys.description.strip()}\n{self.keys.version}; {self.keys.source}"


def lay_over(under: Config, over: Any) -> Any:
    """A plug-in's keys over others; one of another kind, or no mapping, replaces them all."""
    if over is None:
        return dict(under)
    if not isinstance(over, dict) or over.get("kind", under["kind"]) != under["kind"]:
        return over
    return {**under, **over}


class Engines:
    """The presets that an experiment names, each read once. Paths start at folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._found: dict[str, Preset | ConfigError] = {}

    def find(self, name: object, report: Report) -> Preset | None:
        """The preset of this name, None without one; what is wrong with it is reported."""
        if name is None:
            return None
        if not isinstance(name, str):
            several = "; several are compared by sweep: {engine: […]}"
            report(("engine",), f"must be the name of one, got {shown(name)}{several}")
            return None
        if name not in self._found:
            try:
                self._found[name] = read_engine(name, self._folder)
            except ConfigError as error:
                self._found[name] = error
        found = self._found[name]
        if isinstance(found, Preset):
            return found
        for line in found.lines:
            report(("engine",), line)
        return None


def read_engine(name: str, folder: Path) -> Preset:
    """The preset of a name or a file. Raises ConfigError with one line for each error."""
    if name in ENGINES:
        path = ENGINES_FOLDER / f"{name}.yaml"
    elif name.startswith((".", "/", "$")) or name.endswith((".yaml", ".yml")):
        try:
            path = find_path(name, folder)
        except ValueError as error:
            raise ConfigError([str(error)]) from None
    else:
        hint = f"{guess(name, ENGINES)}, or the path of a file like ./mine.yaml"
        raise ConfigError([f"unknown engine {name!r}{hint}"])
    document = read_document(path)
    keys, problems = _check(document, path.parent)
    if keys is None or problems:
        raise ConfigError(problems)
    return Preset(name, keys)


def _check(document: Document, folder: Path) -> tuple[EngineKeys | None, list[str]]:
    """The keys of a preset's file, and a line for everything wrong with them."""
    problems: dict[str, None] = {}

    def report(path: KeyPath, sentence: str) -> None:
        problems[f"{document.place(path)}: {dotted(path)}: {sentence}"] = None

    keys = validate(EngineKeys, document.data, (), report)
    for key in PARTS:
        if key in document.data:
            resolve_part(key, document.data[key], (folder, None), report)
    if not isinstance(keys, EngineKeys):
        return None, list(problems)
    _check_max_tokens(keys, report)
    if not problems:
        _check_cases(keys, folder, report)
    return keys, list(problems)


def _check_max_tokens(keys: EngineKeys, report: Report) -> None:
    if keys.workload is None:
        return
    sentence = no_max_tokens(keys.workload.max_tokens, (*MAX_TOKENS_RULES, REQUIRED))
    if sentence:
        report(("workload", "max_tokens"), sentence)


def _check_cases(keys: EngineKeys, folder: Path, report: Report) -> None:
    """Whether the parts are right on every kind of device."""
    for number, case in enumerate(keys.by_device):
        for key in PARTS:
            over: Mapping[str, Any] | None = getattr(case, key)
            kind = getattr(keys, key)["kind"]
            if over is not None and over.get("kind", kind) != kind:
                where = ("by_device", number, key, "kind")
                report(where, f"must be {kind} on every device; {over['kind']} is an engine apart")
            elif over is not None:
                whole = lay_over(getattr(keys, key), over)
                resolve_part(key, whole, (folder, None), below(("by_device", number), report))
