"""An experiment's keys over those of its engine's preset: what runs, and who has set what."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from sim.config.engine_presets import PARTS, Preset, lay_over
from sim.config.plugins import Config, Report
from sim.config.point import DEFAULT_DEVICE, Point, resolve_point
from sim.config.yaml_nodes import KeyPath, dotted
from sim.hardware.keys import read_device
from sim.hardware.types import Device


@dataclass(frozen=True)
class Overlay:
    """One point's keys, `given`, and the preset beneath them; None without one.

    is_broken: an engine is named, but there is none or it is wrong, which has been reported.
    """

    given: Config
    preset: Preset | None = None
    is_broken: bool = False

    def resolve(self, folder: Path, report: Report, misfit: Report) -> Point | None:
        """Check everything and fill in what is open; None if anything was reported.

        misfit is told of what is right but does not go together.
        """
        if self.preset is None:
            point = resolve_point(self.given, folder, report, misfit)
            return None if self.is_broken else point
        point = resolve_point(self._whole(), folder, report, misfit)
        if point is None:
            return None
        return replace(point, config={"engine": self.preset.name, **point.config})

    def _whole(self) -> Config:
        """The experiment's keys with the preset's where it says nothing."""
        whole = {**self.given, **{key: lay_over(*self._layers(key)) for key in PARTS}}
        if self._sets_utilization():
            assert self.preset is not None
            whole["gpu_memory_utilization"] = self.preset.keys.gpu_memory_utilization
        return whole

    def allocator(self) -> Config:
        """The allocator as it is written, over the preset's; defaults are not filled in."""
        own = self.given.get("allocator")
        return dict(own or {} if self.preset is None else lay_over(*self._layers("allocator")))

    def _layers(self, key: str) -> tuple[Config, Any]:
        """What the preset and what the experiment say of a part."""
        assert self.preset is not None
        return self.preset.part(key, self._device()), self.given.get(key)

    def _device(self) -> Device | None:
        """The device, None if there is none or it is wrong."""
        name = self.given.get("device")
        if name is None and self.given.get("kv_cache") is None:
            name = DEFAULT_DEVICE
        return read_device(name, lambda *_: None)

    def _sets_utilization(self) -> bool:
        """Whether the preset decides on the share of the device's memory, and there is one."""
        is_open = self.given.get("gpu_memory_utilization") is None
        has_both = self.given.get("model") is not None and self.given.get("device") is not None
        has_device = has_both or self.given.get("kv_cache") is None
        value = self.preset.keys.gpu_memory_utilization if self.preset else None
        return is_open and has_device and value is not None

    def blame(self, path: KeyPath, sentence: str) -> tuple[KeyPath, str] | None:
        """Where a problem of the whole is to be corrected; None if it is one of a broken engine.

        What the preset has set is the engine's, so that no line of a file is named in vain.
        """
        key = path[0] if path else None
        if key not in PARTS or not (self.preset or self.is_broken):
            return path, sentence
        own = self.given.get(str(key))
        has_kind = own is not None and not (isinstance(own, dict) and "kind" not in own)
        if self.preset is None:
            return (path, sentence) if has_kind else None
        under, _ = self._layers(str(key))
        is_preset = own is None or own == {}
        if isinstance(own, dict) and len(path) > 1 and lay_over(under, own) is not own:
            is_preset = is_preset or (path[1] in under and path[1] not in own)
        if is_preset:
            return ("engine",), f"{self.preset.name}'s {dotted(path)}: {sentence}"
        return path, sentence

    def lines(self) -> tuple[str, ...]:
        """What the preset sets, for a reader; nothing without one."""
        if self.preset is None:
            return ()
        case = self.preset.case(self._device())
        found = [f"engine        {self.preset.name}{f', on {case}' if case else ''}"]
        for key in PARTS:
            part, _ = self._layers(key)
            settings = ", ".join(f"{k} {_text(v)}" for k, v in part.items() if k != "kind")
            found.append(f"  {key:<12}{part['kind']}{': ' if settings else ''}{settings}")
        if self._sets_utilization():
            found.append(f"  memory      x {self.preset.keys.gpu_memory_utilization}")
        if self.preset.max_tokens is not None:
            found.append(f"  max_tokens  {self.preset.max_tokens}, where the trace says nothing")
        return tuple(found)

    def overrides(self, entry_path: KeyPath, swept: Iterable[KeyPath]) -> Iterator[str]:
        """What the experiment says instead, in lines. entry_path is the allocator's in the file."""
        if self.preset is None:
            return
        taken = [path for path in swept if path[0] in PARTS]
        for key in PARTS:
            under, own = self._layers(key)
            if not isinstance(own, dict):
                continue
            where = entry_path if key == "allocator" else (key,)
            whole = lay_over(under, own)
            if whole["kind"] != under["kind"]:
                kinds = f"{whole['kind']}, not {under['kind']} nor its keys"
                yield f"  here        {dotted(where)}: {kinds}"
                continue
            for name, value in own.items():
                if any(path in {(key,), (key, name)} for path in taken):
                    yield f"  here        {key}.{name}: swept, not {_text(under.get(name))}"
                elif name not in under or under[name] != value:
                    before = f", not {_text(under[name])}" if name in under else ""
                    yield f"  here        {dotted((*where, name))}: {_text(value)}{before}"
        utilization = self.preset.keys.gpu_memory_utilization
        own = self.given.get("gpu_memory_utilization")
        if utilization is not None and own not in {None, utilization}:
            yield f"  here        gpu_memory_utilization: {own}, not {utilization}"


def _text(value: Any) -> str:
    """A value as YAML has it."""
    return json.dumps(value) if value is None or isinstance(value, bool) else str(value)
