"""Python values as the plain data that an experiment file would hold, and parts made of it."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Mapping
from os import PathLike, fspath
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from sim.config.plugins import Report, shown
from sim.config.point import TABLES, build_part, resolve_part
from sim.config.pool import MAX_SLOTS
from sim.config.yaml_nodes import MAX_DEPTH, MAX_NUMBER, ConfigError, KeyPath, dotted
from sim.hardware.types import MAX_MODEL_LEN

MAIN = "__main__"


def plain(value: Any, path: KeyPath, report: Report) -> Any:
    """A copy of the value in mappings, lists, numbers, text and None; what is none is reported.

    Tuples, arrays, series and indexes become lists, paths text, and a class "module:Class".
    """
    if len(path) > MAX_DEPTH:
        report(path[:1], f"nested too deeply; accepted: {MAX_DEPTH} levels")
        return None
    if isinstance(value, Mapping):
        return _mapping(value, path, report)
    if isinstance(value, np.ndarray | pd.Series | pd.Index):
        value = value.tolist()
    if isinstance(value, list | tuple | range):
        return [plain(item, (*path, i), report) for i, item in enumerate(value)]
    if isinstance(value, type):
        return _place(value, path, report)
    return _scalar(value, path, report)


def _scalar(value: Any, path: KeyPath, report: Report) -> Any:
    """A number, text or None."""
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, PathLike):
        value = fspath(value)
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if is_number and not (math.isfinite(value) and abs(value) <= MAX_NUMBER):
        report(path, f"{shown(value)} is no finite number of at most {MAX_NUMBER / 1e18:.1f}e18")
    elif isinstance(value, str) and not _is_unicode(value):
        report(path, f"{shown(value)} has half a character; accepted: text that UTF-8 can write")
    elif not isinstance(value, bool | int | float | str | None):
        accepted = "accepted: mappings, lists, numbers, text, paths, classes and None"
        report(path, f"{shown(value)} is a {type(value).__name__}; {accepted}")
    return value


def _is_unicode(text: str) -> bool:
    """Whether a file could hold the text: single surrogates cannot be written."""
    return not any("\ud800" <= character <= "\udfff" for character in text)


def _mapping(value: Mapping[Any, Any], path: KeyPath, report: Report) -> dict[str, Any]:
    found = {}
    for key, item in value.items():
        if isinstance(key, str) and _is_unicode(key):
            found[key] = plain(item, (*path, key), report)
        else:
            report(path, f"a key must be text, got {shown(key)}")
    return found


def _place(cls: type, path: KeyPath, report: Report) -> str:
    """Where a class can be imported from."""
    module = sys.modules.get(cls.__module__)
    if getattr(module, cls.__qualname__, None) is not cls:
        report(path, f"{cls.__qualname__} cannot be imported; accepted: a class at the top level")
    return f"{cls.__module__}:{cls.__qualname__}"


def path_of(value: Any, key: str, accepted: str) -> Path:
    """A path that a caller gave. Raises ConfigError if it is none."""
    text = fspath(value) if isinstance(value, PathLike) else value
    if not isinstance(text, str) or "\0" in text:
        raise ConfigError([f"{key}: {shown(value)} is no path; accepted: {accepted}"])
    return Path(text)


def mapping_of(value: Any, key: str, accepted: str) -> Mapping[Any, Any]:
    """What a caller gave for a mapping. Raises ConfigError if it is none."""
    if not isinstance(value, Mapping):
        raise ConfigError([f"{key}: {shown(value)} is no mapping; accepted: {accepted}"])
    return value


def whole(key: str, value: Any, least: int, most: int) -> int:
    """A whole number that a caller gave, Python's or numpy's.

    Raises ValueError "key: …" for all else, true and 1.0 among it.
    """
    number = count_of(value)
    if not isinstance(number, int) or isinstance(number, bool) or not least <= number <= most:
        accepted = f"a whole number from {least} to {most}"
        raise ValueError(f"{key}: must be {accepted}, got {shown(value)}")
    return number


def flag(key: str, value: Any) -> bool:
    """True or false. Raises ValueError "key: …" for all else."""
    if not isinstance(value, bool | np.bool_):
        raise ValueError(f"{key}: must be true or false, got {shown(value)}")
    return bool(value)


def listed(key: str, value: Any, accepted: str) -> list[Any]:
    """What a caller gave for a list. Raises ValueError "key: …"; text and mappings are none."""
    if isinstance(value, np.ndarray | pd.Series | pd.Index) and value.ndim == 1:
        return list(value)
    if not isinstance(value, list | tuple | range):
        raise ValueError(f"{key}: {shown(value)} is no list; accepted: {accepted}")
    return list(value)


def sizes_of(num_slots: Any, max_model_len: Any, report: Callable[[str], None]) -> tuple[int, int]:
    """The sizes of a pool, in slots and tokens; what is wrong with them is reported."""
    sizes = []
    for key, value, most in (
        ("num_slots", num_slots, MAX_SLOTS),
        ("max_model_len", max_model_len, MAX_MODEL_LEN),
    ):
        try:
            sizes.append(whole(key, value, 1, most))
        except ValueError as error:
            report(str(error))
            sizes.append(1)
    return sizes[0], sizes[1]


def count_of(value: Any) -> Any:
    """A whole number of numpy's as Python's, all else as it is."""
    return int(value) if isinstance(value, np.integer) else value


def made_part(key: str, value: Any) -> Any:
    """A part of a run, "allocator", "scheduler", …: an object as it is, or what {kind: …} says.

    Raises ConfigError.
    """
    if isinstance(value, TABLES[key][1]):
        return value
    problems: list[str] = []

    def report(path: KeyPath, sentence: str) -> None:
        problems.append(f"{dotted(path)}: {sentence}")

    hardware = {"model": None, "device": None, "allocator": None}
    part = resolve_part(key, plain(value, (key,), report), (Path(), hardware), report)
    if part is None or problems:
        raise ConfigError(problems)
    return build_part(key, part, Path())
