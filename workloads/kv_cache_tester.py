"""The sessions of kv-cache-tester: coding agents, one JSON file a session.

{id, block_size, hash_id_scope, requests: [{t, type, in, out, hash_ids, …}], …}: seconds from the
session's start, lengths in tokens, and an id for each whole block of the prompt; up to
block_size - 1 tokens at its end have none. An entry of type "subagent" holds requests of its own,
timed from its t, with ids of the same session. Ids count from 1 in every file and mean nothing
outside it. A few requests have no output. Outputs are not told apart in later prompts.
A folder is all its sessions, in the order of their names; each starts at time zero, as published.
Within a file, requests count from 1 in the order in which they stand there, sub-agents' included.
Published at github.com/callanjfox/kv-cache-tester, Apache-2.0.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np

from workloads.blockids import (
    MAX_BLOCK_SIZE,
    block_ids,
    count_short,
    count_unknown,
    names_in,
    prompt_tokens,
)
from workloads.content import ContentBuilder
from workloads.documents import read_object
from workloads.files import first_bytes
from workloads.intake import Reading, shown
from workloads.readers import add_object
from workloads.rows import Column, Rows
from workloads.rules import MAX_S, SECONDS, TOKENS
from workloads.trace import NANOSECONDS, TraceError
from workloads.tracefile import TraceFile

SUFFIXES = (".json", ".json.gz")
KINDS = ("n", "s")  # answered at once, or streamed
# what the format says of a request, read or not
KEYS = names_in(
    "t type model in out hash_ids input_types output_types stop api_time ttft think_time"
)


@dataclass(frozen=True, kw_only=True)
class KVCacheTester(TraceFile):
    """Sessions of kv-cache-tester: path to a session's JSON file or to a folder of them.

    Requests are sorted by arrival unless unsorted is "error": sessions and sub-agents overlap.
    """

    unsorted: Literal["error", "sort"] = "sort"

    kind: ClassVar[str] = "kv_cache_tester"
    columns: ClassVar[Sequence[Column]] = (
        Column("t", "arrival_ns", SECONDS),
        Column("in", "prompt_tokens", TOKENS),
        Column("out", "output_tokens", TOKENS),
    )

    @classmethod
    def recognizes(cls, path: str, start: bytes) -> bool:
        if os.path.isdir(path):
            files = session_files(path)
            start = first_bytes(files[0]) if files else b""
        return start.lstrip().startswith(b"{") and b'"hash_id_scope"' in start

    def read(self, columns: Sequence[Column]) -> Rows:
        files = session_files(self.path)
        if not files:
            raise TraceError(f"{self.path}: the folder holds no session; accepted: *.json files")
        reading = Reading(self.path, columns, self.on_bad_row, place="request")
        sessions = _Sessions(reading)
        for number, file in enumerate(files):
            sessions.take(number, file)
        reading.source = self.path
        return sessions.rows()


def session_files(path: str) -> list[str]:
    """The files of a folder that may be sessions, by name; a file itself."""
    if not os.path.isdir(path):
        return [path]
    try:
        names = sorted(os.listdir(path))
    except OSError as error:
        raise TraceError(f"{path}: cannot be read: {error.strerror or error}") from None
    return [os.path.join(path, name) for name in names if name.endswith(SUFFIXES)]


class _Sessions:
    """Takes the requests of one session after the other."""

    def __init__(self, reading: Reading) -> None:
        self._reading = reading
        self._content = ContentBuilder()
        self._places: list[tuple[int, int]] = []  # session and when its agent began, in ns

    def take(self, session: int, path: str) -> None:
        """Take a file. Raises TraceError if it is no session."""
        self._reading.source = path
        document = read_object(path)
        size, requests = document.get("block_size"), document.get("requests")
        if type(size) is not int or not 1 <= size <= MAX_BLOCK_SIZE:
            rule = f"a whole number from 1 to {MAX_BLOCK_SIZE}"
            raise TraceError(f"{path}: block_size is {shown(size)}; accepted: {rule}")
        if (scope := document.get("hash_id_scope")) != "local":
            raise TraceError(f"{path}: hash_id_scope is {shown(scope)}; accepted: 'local'")
        if not isinstance(requests, list):
            raise TraceError(f"{path}: requests is {shown(requests)}; accepted: a list")
        for number, (request, start_ns) in enumerate(self._requests(requests, 0), 1):
            if self._take_request(number, request, size, path):
                self._places.append((session, start_ns))

    def _requests(self, entries: list[Any], start_ns: int) -> Iterator[tuple[Any, int]]:
        """Requests as they stand, and when the agent began that made each."""
        for entry in entries:
            if not isinstance(entry, dict) or entry.get("type") != "subagent":
                yield entry, start_ns
                continue
            begins, requests = SECONDS.value(entry.get("t")), entry.get("requests")
            is_late = begins is not None and start_ns + begins > MAX_S * NANOSECONDS
            if begins is None or is_late or not isinstance(requests, list):
                yield entry, start_ns  # a bad row
                continue
            self._reading.notes["sub-agents, whose requests are timed from their start"] += 1
            yield from self._requests(requests, start_ns + begins)

    def _take_request(self, number: int, request: Any, size: int, path: str) -> bool:
        reading = self._reading
        if not isinstance(request, Mapping):
            reading.bad_row(number, "is not a JSON object; accepted: one a request", "no object")
            return False
        if (kind := request.get("type")) == "subagent":
            sentence = "is a sub-agent without t or requests; accepted: t in seconds, and a list"
            reading.bad_row(number, sentence, "sub-agent not accepted")
            return False
        if kind not in KINDS:
            sentence = f"type is {shown(kind)}; accepted: {', '.join(KINDS)}, subagent"
            reading.bad_row(number, sentence, "type not accepted")
            return False
        prompt = prompt_tokens(reading, request)
        blocks = None if prompt is None else prompt // size
        ids = block_ids(reading, number, request, size, blocks)
        if ids is None or not add_object(reading, number, request):
            return False
        assert prompt is not None  # or the row would not have been taken
        assert blocks is not None
        count_short(reading.notes, ids, blocks)
        count_unknown(reading.notes, request.keys() - KEYS)
        self._content.add_blocks(ids, size, prompt, path)
        return True

    def rows(self) -> Rows:
        rows = self._reading.rows()
        session, start_ns = np.array(self._places, np.int64).T
        rows.fields["session"] = session.copy()
        if "arrival_ns" in rows.fields:
            rows.fields["arrival_ns"] = rows.fields["arrival_ns"] + start_ns
        rows.content = self._content.build()
        return rows
