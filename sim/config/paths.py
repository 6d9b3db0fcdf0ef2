"""Paths in an experiment file: they start at its folder, and may name $KVSIM_SHARED."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

_SHARED = re.compile(r"\$(?:KVSIM_SHARED\b|\{KVSIM_SHARED\})")


def find_path(path: str, folder: Path) -> Path:
    """Where a path of an experiment leads. Raises ValueError, with a sentence, if nowhere."""
    if _SHARED.search(path):
        shared = os.environ.get("KVSIM_SHARED")
        if not shared:
            raise ValueError("needs the environment variable KVSIM_SHARED, which is not set")
        path = _SHARED.sub(lambda match: shared, path)
    found = folder / path
    try:
        found.stat()
    except (OSError, ValueError) as error:  # ValueError: a zero byte in the name
        reason = getattr(error, "strerror", None) or str(error)
        raise ValueError(f"{found}: {reason}") from None
    return found


def with_files(part: Mapping[str, Any], names: Sequence[str], folder: Path) -> dict[str, Any]:
    """A plug-in's configuration in which those of these parameters that name a .yaml are found.

    Raises ValueError "<key>: sentence".
    """
    found = dict(part)
    for name in names:
        value = part.get(name)
        if isinstance(value, str) and value.endswith((".yaml", ".yml")):
            try:
                found[name] = str(find_path(value, folder))
            except ValueError as error:
                raise ValueError(f"{name}: {error}") from None
    return found


def with_paths(part: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """A plug-in's configuration with every path found, also those of nested parts.

    Raises ValueError "<key>: sentence".
    """
    found: dict[str, Any] = _with_paths(part, folder)
    return found


def _with_paths(part: Any, folder: Path) -> Any:
    """`with_paths` of a mapping or a list; anything else has no path in it."""
    if not isinstance(part, Mapping | list):
        return part
    items = part.items() if isinstance(part, Mapping) else enumerate(part)
    found = {}
    for name, value in items:
        is_path = name == "path" and isinstance(value, str)
        try:
            found[name] = str(find_path(value, folder)) if is_path else _with_paths(value, folder)
        except ValueError as error:
            raise ValueError(f"{name}{': ' if is_path else '.'}{error}") from None
    return found if isinstance(part, Mapping) else list(found.values())
