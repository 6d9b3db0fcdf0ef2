"""How probes drive real allocators: pools, and what is made of YAML's way to write an allocator."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from typing import Any

from sim.allocators import ALLOCATORS, Allocator
from sim.library.pool import Pool

__all__ = ["Pool", "histories", "made", "made_of"]


def made(kind: str, **knobs: Any) -> Allocator:
    """An allocator of a kind, not bound yet. Raises KeyError, TypeError or ValueError."""
    return ALLOCATORS[kind](**knobs)


def made_of(config: Mapping[str, Any]) -> Allocator:
    """An allocator as YAML writes it, {kind: …}."""
    knobs = dict(config)
    return made(knobs.pop("kind"), **knobs)


def histories(seeds: int, steps: int) -> Iterator[tuple[random.Random, int]]:
    """(random numbers, steps to take) of several random histories."""
    for seed in range(seeds):
        yield random.Random(seed), steps
