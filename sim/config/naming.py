"""What runs are called: the summary's cells that tell them apart, and a name safe for a folder."""

from __future__ import annotations

import hashlib
import json
import re
from typing import Any

MAX_LENGTH = 120


class Names:
    """Names for the points of an experiment.

    keys are the swept keys in their order; allocators is (entry, resolved allocator) for each
    point, swept the swept keys that it has and their values.
    """

    def __init__(
        self,
        keys: list[str],
        allocators: list[tuple[int, dict[str, Any]]],
        swept: list[dict[str, Any]],
    ) -> None:
        differing = [f"allocator.{name}" for name in _differing(allocators)]
        self._keys = keys + [key for key in differing if key not in keys]
        self._kinds = [allocator["kind"] for _, allocator in allocators]
        self._points = [
            {key: _scalar(self._value(key, allocator, point)) for key in self._keys}
            for (_, allocator), point in zip(allocators, swept, strict=True)
        ]
        self._taken: dict[str, tuple[int, int]] = {}

    def _value(self, key: str, allocator: dict[str, Any], point: dict[str, Any]) -> Any:
        if key in point:
            return point[key]
        root, _, name = key.partition(".")
        return allocator.get(name) if root == "allocator" else None

    def cells(self, number: int) -> dict[str, Any]:
        """The allocator's kind, and a value for every key that tells points apart; None if none."""
        return {"allocator": self._kinds[number], **self._points[number]}

    def run_id(self, number: int, seed: int) -> str:
        """A name for a run, unique within the experiment."""
        parts = [self._kinds[number]]
        short = [key.rsplit(".", maxsplit=1)[-1] for key in self._keys]
        for key, last in zip(self._keys, short, strict=True):
            value = self._points[number][key]
            if value is not None:
                parts.append(f"{last if short.count(last) == 1 else key}={_text(value)}")
        parts.append(f"seed={seed}")
        name = re.sub(r"[^A-Za-z0-9_.=+-]", "_", "-".join(parts))
        if len(name) > MAX_LENGTH or self._taken.setdefault(name, (number, seed)) != (number, seed):
            # cut, or made equal to another by replacing characters
            digest = hashlib.blake2b("-".join(parts).encode(), digest_size=4).hexdigest()
            name = f"{name[:MAX_LENGTH]}-{digest}"
        return name


def _differing(allocators: list[tuple[int, dict[str, Any]]]) -> list[str]:
    """Parameters that have several values among the listed allocators that have them at all."""
    first = dict(reversed(allocators))
    values: dict[str, set[str]] = {}
    for entry in sorted(first):
        for name, value in first[entry].items():
            if name != "kind":
                values.setdefault(name, set()).add(json.dumps(value))
    return [name for name, found in values.items() if len(found) > 1]


def _scalar(value: Any) -> Any:
    """A value that fits into one cell of a table."""
    return json.dumps(value) if isinstance(value, dict | list) else value


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
