"""What a probe may return besides plain values."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Seeds:
    """One value a seed."""

    values: tuple[float, ...]


@dataclass(frozen=True)
class Vacuous:
    """A value that holds because nothing could make it fail, and why."""

    value: object
    why: str
