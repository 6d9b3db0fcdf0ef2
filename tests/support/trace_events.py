"""The rules of the Chrome trace event format that a trace must keep, checked event by event."""

from __future__ import annotations

import gzip
import json
from collections import defaultdict
from pathlib import Path
from typing import Any

KNOWN = {"B", "E", "C", "M"}
METADATA = {
    "process_name": "name",
    "process_sort_index": "sort_index",
    "thread_name": "name",
    "thread_sort_index": "sort_index",
}
Slice = tuple[str, float, float, dict[str, Any]]


def read_trace(path: Path) -> dict[str, Any]:
    data = path.read_bytes()
    if path.suffix == ".gz":
        data = gzip.decompress(data)
    trace = json.loads(data)
    assert isinstance(trace, dict)
    return trace


class Checked:
    """A trace whose events keep the rules; slices by (process, thread), counters by (process, key).

    Raises AssertionError where they do not.
    """

    def __init__(self, trace: dict[str, Any]) -> None:
        assert set(trace) == {"displayTimeUnit", "traceEvents", "otherData"}
        assert trace["displayTimeUnit"] in {"ms", "ns"}
        self.processes: dict[int, str] = {}
        self.threads: dict[tuple[int, int], str] = {}
        self.slices: dict[tuple[str, str], list[Slice]] = defaultdict(list)
        self.counters: dict[tuple[str, str], list[tuple[float, float]]] = defaultdict(list)
        self._open: dict[tuple[int, int], dict[str, Any]] = {}
        self._last: dict[tuple[int, object], float] = {}
        for event in trace["traceEvents"]:
            self._check(event)
        assert not self._open, "a slice has no end"

    def _check(self, event: dict[str, Any]) -> None:
        assert event["ph"] in KNOWN
        assert type(event["pid"]) is int
        if event["ph"] == "M":
            self._name(event)
            return
        ts = event["ts"]
        assert type(ts) in {int, float}
        assert ts >= 0
        assert event["pid"] in self.processes, "a process has no name"
        track = event["pid"], event["name"] if event["ph"] == "C" else event["tid"]
        assert ts >= self._last.get(track, 0), "events of a track are not in order"
        self._last[track] = ts
        if event["ph"] == "C":
            for key, value in event["args"].items():
                assert type(value) in {int, float}
                self.counters[self.processes[event["pid"]], key].append((ts, value))
        elif event["ph"] == "B":
            assert track in self.threads, "a track has no name"
            assert track not in self._open, "a slice begins within another"
            assert isinstance(event["name"], str)
            self._open[track] = event
        else:
            begin = self._open.pop(track)
            assert ts >= begin["ts"]
            name = self.processes[event["pid"]], self.threads[track]
            self.slices[name].append((begin["name"], begin["ts"], ts, begin["args"]))

    def _name(self, event: dict[str, Any]) -> None:
        value = event["args"][METADATA[event["name"]]]
        if event["name"] == "process_name":
            assert event["pid"] not in self.processes, "a process is named twice"
            self.processes[event["pid"]] = value
        elif event["name"] == "thread_name":
            assert (event["pid"], event["tid"]) not in self.threads, "a track is named twice"
            self.threads[event["pid"], event["tid"]] = value
        else:
            assert type(value) is int
        if event["name"].endswith("_name"):
            assert value
            assert value.isprintable()
            assert len(value) <= 200
