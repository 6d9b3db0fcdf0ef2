"""In which keys two resolved experiments differ."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from sim.compare.sides import Side

ABOUT = ("name", "description", "figures", "seeds", "sweep")  # keys that no run depends on
MAX_SHOWN = 8


def differing_lines(first: Side, second: Side, by: list[str]) -> list[str]:
    """A line a key that differs, the first few; keys that points are matched by are left out."""
    if first.folder == second.folder:
        return []
    left_out = {*by, *first.chosen, *second.chosen}
    mine, its = (dict(_flat(side.config, "")) for side in (first, second))
    lines = [
        f"{key}: {mine.get(key, 'not there')} -> {its.get(key, 'not there')}"
        for key in dict.fromkeys([*mine, *its])
        if mine.get(key) != its.get(key) and _as_swept(key) not in left_out
    ]
    more = len(lines) - MAX_SHOWN
    return lines[:MAX_SHOWN] + ([f"… and {more} more keys"] if more > 0 else [])


def _as_swept(key: str) -> str:
    """A key as a sweep names it: allocators are a list in a resolved experiment."""
    root, _, rest = key.partition(".")
    if root != "allocator":
        return key
    name = rest.partition(".")[2]
    return "allocator" if name == "kind" else f"allocator.{name}"


def _flat(value: Any, path: str) -> Iterator[tuple[str, str]]:
    """Every leaf below a mapping, with its dotted key, as short text."""
    entries: Any = {}
    if isinstance(value, dict):
        entries = value.items()
    elif isinstance(value, list) and any(isinstance(entry, dict | list) for entry in value):
        entries = enumerate(value)
    if not entries:
        text = json.dumps(value, ensure_ascii=False)
        yield path, text if len(text) <= 60 else text[:60] + "…"
        return
    for key, below in entries:
        if path or key not in ABOUT:
            yield from _flat(below, f"{path}.{key}" if path else str(key))
