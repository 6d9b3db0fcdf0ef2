"""Dynamo's request trace: events of a serving run, with hashes of each prompt's blocks.

{timestamp, event: {schema: "dynamo.request.trace.v1", event_type, …}}, one JSON object a line. Only
events of type request_end are requests; others (of tools) are counted as ignored. Of a request
count request.request_received_ms, its arrival in milliseconds of the wall clock,
request.output_tokens, and request.replay: {trace_block_size, input_length,
input_sequence_hashes}. A hash of 64 bits stands for a block of the prompt and all before it; the
last block may be partial; outputs are not hashed. Hashes are kept as the whole numbers that they
are: a double would take different ones for equal.
Events are written when they happen, so requests stand in the order of their ends and are sorted
by arrival. The first arrival becomes time zero. agent_context.session_id is the session.
Published with github.com/ai-dynamo/dynamo, Apache-2.0.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np

from workloads.blockids import MAX_BLOCK_SIZE, count_unknown, names_in, prompt_tokens
from workloads.content import ContentBuilder
from workloads.intake import Reading, shown
from workloads.readers import add_object, read_objects
from workloads.rows import Column, Rows
from workloads.rules import MILLISECONDS, TOKENS
from workloads.tracefile import TraceFile

SCHEMA = "dynamo.request.trace.v1"
HASHES = "input_sequence_hashes"
# what the format says of a request, read or not
REQUEST_KEYS = names_in(
    "request_id x_request_id model input_tokens output_tokens cached_tokens request_received_ms "
    "prefill_wait_time_ms prefill_time_ms ttft_ms total_time_ms avg_itl_ms kv_hit_rate queue_depth "
    "worker replay"
)
REPLAY_KEYS = frozenset({"trace_block_size", "input_length", HASHES})


@dataclass(frozen=True, kw_only=True)
class Dynamo(TraceFile):
    """Dynamo's request trace: path to the JSONL file.

    Requests are sorted by arrival unless unsorted is "error": they are written when they end.
    """

    unsorted: Literal["error", "sort"] = "sort"

    kind: ClassVar[str] = "dynamo"
    absolute_times: ClassVar[bool] = True
    columns: ClassVar[Sequence[Column]] = (
        Column("request_received_ms", "arrival_ns", MILLISECONDS),
        Column("input_length", "prompt_tokens", TOKENS),
        Column("output_tokens", "output_tokens", TOKENS),
    )

    @classmethod
    def recognizes(cls, path: str, start: bytes) -> bool:
        return start.startswith(b"{") and SCHEMA.encode() in start.split(b"\n", maxsplit=1)[0]

    def read(self, columns: Sequence[Column]) -> Rows:
        events = _Events(Reading(self.path, columns, self.on_bad_row))
        for number, line in read_objects(events.reading):
            events.take(number, line.get("event"))
        return events.rows()


class _Events:
    """Takes one event after the other."""

    def __init__(self, reading: Reading) -> None:
        self.reading = reading
        self._content = ContentBuilder()
        self._ids: dict[tuple[int, int], int] = {}  # a hash and its block size
        self._sessions: dict[Any, int] = {}
        self._session: list[int] = []

    def take(self, number: int, event: Any) -> None:
        if not isinstance(event, dict) or event.get("schema") != SCHEMA:
            self.reading.bad_row(number, f"is no event; accepted: schema {SCHEMA}", "no event")
        elif (kind := event.get("event_type")) != "request_end":
            self.reading.notes[f"ignored: events of type {shown(kind)}"] += 1
        else:
            self._take_request(number, event)

    def _take_request(self, number: int, event: Mapping[str, Any]) -> None:
        request = event.get("request")
        replay = request.get("replay") if isinstance(request, dict) else None
        agent = event.get("agent_context")
        session = agent.get("session_id") if isinstance(agent, dict) else None
        if not isinstance(request, dict) or not isinstance(replay, dict):
            sentence = "has no request with replay; accepted: a trace recorded for replay"
            self.reading.bad_row(number, sentence, "no replay")
            return
        if not isinstance(session, str | None):
            sentence = f"session_id is {shown(session)}; accepted: text"
            self.reading.bad_row(number, sentence, "session_id not accepted")
            return
        row = {**request, "input_length": replay.get("input_length")}
        prompt = prompt_tokens(self.reading, row)
        size: Any = replay.get("trace_block_size")
        hashes: Any = replay.get(HASHES)
        if fault := _fault(size, hashes, prompt):
            self.reading.bad_row(number, fault, f"{fault.split()[0]} not accepted")
        elif add_object(self.reading, number, row):
            assert prompt is not None  # or the row would not have been taken
            ids = [self._ids.setdefault((size, h), len(self._ids)) for h in hashes]
            self._content.add_blocks(ids, size, prompt, size)
            unknown = (request.keys() - REQUEST_KEYS) | (replay.keys() - REPLAY_KEYS)
            count_unknown(self.reading.notes, unknown)
            name = session if session is not None else ("alone", number)
            self._session.append(self._sessions.setdefault(name, len(self._sessions)))

    def rows(self) -> Rows:
        rows = self.reading.rows()
        rows.content = self._content.build()
        rows.fields["session"] = np.array(self._session, np.int64)
        return rows


def _fault(size: Any, hashes: Any, prompt: int | None) -> str:
    """What is wrong with a request's blocks, if anything is."""
    if type(size) is not int or not 1 <= size <= MAX_BLOCK_SIZE:
        rule = f"a whole number from 1 to {MAX_BLOCK_SIZE}"
        return f"trace_block_size is {shown(size)}; accepted: {rule}"
    is_list = isinstance(hashes, list) and set(map(type, hashes)) <= {int}
    if not is_list or (hashes and not 0 <= min(hashes) <= max(hashes) < 2**64):
        return f"{HASHES} is {shown(hashes)}; accepted: whole numbers below 2^64"
    if prompt is not None and len(hashes) > -(-prompt // size):
        return (
            f"{HASHES} has {len(hashes)} blocks of {size} tokens for a prompt of {prompt}; "
            f"accepted: at most {-(-prompt // size)}"
        )
    return ""
