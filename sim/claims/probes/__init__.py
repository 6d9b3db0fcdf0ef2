"""What measures a claim without an experiment: functions over kvsim's own objects.

A probe takes the keys of the claim's `with` and returns what it found, in the shape of the
expected value: a number, a word, or mappings and lists of such. A list of numbers for each of
several seeds is a Seeds. PROBES names them; adding one is a function and a line.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sim.claims.probes import geometry

PROBES: dict[str, Callable[..., Any]] = {
    "kv_bytes_per_token": geometry.kv_bytes_per_token,
}
