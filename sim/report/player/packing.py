"""Recordings as a few bytes: columns of small differences, deflated, in base64.

A column is `plain`; `delta`, differences to the row before; or `same`, differences to the last
event that began at the same slot, which are mostly zero: a block is written token by token.
Values are stored in the smallest of the TYPES that holds all of them, little-endian.
"""

from __future__ import annotations

import base64
import zlib
from typing import Any

import numpy as np
import pandas as pd

from sim.report.player.recordings import TERMS, IntArray, Recording, unit_slots

TYPES = {"i8": np.int8, "i16": np.int16, "i32": np.int32, "f64": np.float64}
PHASES = ("queued", "prefill", "decode", "preempted", "swapped")

Column = tuple[str, str, IntArray]  # name, coding, values


def pack(recording: Recording) -> dict[str, Any]:
    """The recording as JSON can say it; `packed_bytes` says how long it becomes."""
    unit = unit_slots(recording)
    states = [str(s) for s in recording.events["state"].unique()]
    tables = {
        "events": _events(recording, unit, states),
        "iterations": _iterations(recording),
        "phases": _phases(recording),
    }
    if recording.tables is not None:
        tables["entries"] = _entries(recording.tables, unit)
    specs, parts = {}, []
    for name, columns in tables.items():
        specs[name], data = _pack_table(columns)
        parts.append(data)
    return {
        "label": recording.label,
        "allocator": recording.allocator,
        "numSlots": recording.num_slots,
        "blockSize": recording.block_size,
        "unit": unit,
        "states": states,
        "phaseNames": list(PHASES),
        "recordedMoments": recording.num_moments_recorded,
        "end": int(_nanoseconds(pd.Series([recording.end_s]))[0]),
        "tables": specs,
        "data": base64.b64encode(zlib.compress(b"".join(parts), 9)).decode("ascii"),
    }


def packed_bytes(packed: dict[str, Any]) -> int:
    """How long the packed data are; the rest is small."""
    return len(packed["data"])


def _events(recording: Recording, unit: int, states: list[str]) -> list[Column]:
    events = recording.events
    start = _ints(events["start_slot"]) // unit
    codes = events["state"].astype(str).map({state: i for i, state in enumerate(states)})
    columns: list[Column] = [
        ("time", "delta", _nanoseconds(events["time_s"])),
        ("start", "delta", start),
        ("count", "same", -(-_ints(events["num_slots"]) // unit)),
        ("written", "same", _ints(events["num_written"])),
        ("reserved", "same", _ints(events["num_reserved"])),
        ("request", "same", _ints(events["request"])),
        ("sequence", "same", _ints(events["sequence"])),
        ("index", "same", _ints(events["index"])),
        ("refs", "same", _ints(events["ref_count"])),
        ("state", "same", _ints(codes)),
    ]
    return columns


def _iterations(recording: Recording) -> list[Column]:
    table = recording.iterations
    start = _nanoseconds(table["start_s"])
    names = [
        ("running", "num_running"),
        ("waiting", "num_waiting"),
        *zip(TERMS, TERMS, strict=True),
    ]
    return [
        ("start", "delta", start),
        ("lasts", "delta", _nanoseconds(table["end_s"]) - start),
        *((name, "delta", _ints(table[column])) for name, column in names),
    ]


def _phases(recording: Recording) -> list[Column]:
    table = recording.phases.sort_values("start_s", kind="stable")
    start = _nanoseconds(table["start_s"])
    codes = table["phase"].astype(str).map({phase: i for i, phase in enumerate(PHASES)})
    return [
        ("start", "delta", start),
        ("lasts", "plain", _nanoseconds(table["end_s"]) - start),
        ("request", "delta", _ints(table["request"])),
        ("phase", "plain", _ints(codes)),
    ]


def _entries(tables: pd.DataFrame, unit: int) -> list[Column]:
    count = _ints(tables["num_slots"]) // unit
    return [
        ("time", "delta", _nanoseconds(tables["time_s"])),
        ("start", "delta", np.where(count > 0, _ints(tables["start_slot"]) // unit, 0)),
        ("count", "delta", count),
        ("request", "delta", _ints(tables["request"])),
        ("sequence", "delta", _ints(tables["sequence"])),
        ("index", "delta", _ints(tables["index"])),
        ("place", "plain", (tables["place"].astype(str) == "host").to_numpy(np.int64)),
    ]


def _ints(column: pd.Series[Any]) -> IntArray:
    return column.to_numpy(np.int64)


def _nanoseconds(seconds: pd.Series[Any]) -> IntArray:
    return np.rint(seconds.to_numpy(np.float64) * 1e9).astype(np.int64)


def _pack_table(columns: list[Column]) -> tuple[list[list[Any]], bytes]:
    """What the page must know to read the columns, and their bytes one behind the other."""
    keys = next((values for name, _, values in columns if name == "start"), None)
    spec, parts = [], []
    for name, coding, values in columns:
        coded = _coded(coding, values, keys)
        kind = _smallest(coded)
        spec.append([name, coding, kind, len(values)])
        parts.append(coded.astype(np.dtype(TYPES[kind]).newbyteorder("<")).tobytes())
    return spec, b"".join(parts)


def _coded(coding: str, values: IntArray, keys: IntArray | None) -> IntArray:
    if coding == "plain" or not len(values):
        return values
    if coding == "delta":
        return np.diff(values, prepend=0)
    events = pd.DataFrame({"key": keys, "value": values})
    before: IntArray = events.groupby("key")["value"].shift(fill_value=0).to_numpy(np.int64)
    return values - before


def _smallest(values: IntArray) -> str:
    if not len(values):
        return "i8"
    low, high = values.min(), values.max()
    for kind in ("i8", "i16", "i32"):
        limit = 2 ** (8 * np.dtype(TYPES[kind]).itemsize - 1)
        if -limit <= low and high < limit:
            return kind
    return "f64"
