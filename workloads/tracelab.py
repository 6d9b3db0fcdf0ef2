"""TraceLab's rounds of coding agents: what a provider billed for each call of a model.

One JSON object a line and round, of which count session_id, round_index, input_tokens_total,
prefix_tokens, output_tokens and timing_events. Lengths are tokens as the provider counted them; a
field that it does not report is null, and keys differ between agents. A round arrives at its last
input: the latest user_message or tool_result among its events. Sessions stand one after the other,
so rounds are sorted by arrival, and the first arrival becomes time zero.

There are no block ids. Content is derived: prefix_tokens were served from the provider's cache, so
they are taken as the first tokens of the round before in the same session, as far as that reaches;
the rest of a prompt is its own. That is a lower bound: a provider forgets what it has cached, what
a session's first round shares is not known, and outputs in later prompts are not told apart.
Published at github.com/uw-syfi/TraceLab; the data CC-BY-4.0.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np

from workloads.blockids import count_unknown, names_in, prompt_tokens
from workloads.content import ContentBuilder, Run, own_prompt
from workloads.intake import Reading, shown
from workloads.readers import add_object, read_objects
from workloads.rows import Column, Rows
from workloads.rules import LENGTH, TIMESTAMP, TOKENS
from workloads.tracefile import TraceFile

TIME = "the last input's timestamp"
INPUTS = ("user_message", "tool_result")
# what the format says of a round, read or not
KEYS = names_in(
    "provider project session_id round_index round_id turn_id trace_key store model "
    "input_tokens_total prefix_tokens newly_append_tokens claude_uncached_input_tokens "
    "claude_cache_creation_input_tokens claude_cache_read_input_tokens output_tokens "
    "reasoning_output_tokens timing_events tools current_input_event_count current_input_chars "
    "current_user_message_count current_user_message_chars current_tool_result_count "
    "current_tool_result_chars first_input_event_type"
)


@dataclass(frozen=True, kw_only=True)
class TraceLab(TraceFile):
    """TraceLab's rounds of coding agents: path to round_trace.jsonl.

    Rounds are sorted by arrival unless unsorted is "error": sessions stand one after the other.
    """

    unsorted: Literal["error", "sort"] = "sort"

    kind: ClassVar[str] = "tracelab"
    absolute_times: ClassVar[bool] = True
    columns: ClassVar[Sequence[Column]] = (
        Column(TIME, "arrival_ns", TIMESTAMP),
        Column("input_tokens_total", "prompt_tokens", TOKENS),
        Column("output_tokens", "output_tokens", TOKENS),
    )

    @classmethod
    def recognizes(cls, path: str, start: bytes) -> bool:
        wanted = (b'"provider"', b'"round_index"', b'"input_tokens_total"', b'"prefix_tokens"')
        return start.startswith(b"{") and all(key in start for key in wanted)

    def read(self, columns: Sequence[Column]) -> Rows:
        rounds = _Rounds(Reading(self.path, columns, self.on_bad_row))
        for number, row in read_objects(rounds.reading):
            rounds.take(number, row)
        return rounds.rows()


@dataclass
class _Session:
    """A session's number, and the last round taken of it."""

    number: int
    index: int
    runs: list[Run]


class _Rounds:
    """Takes one round after the other."""

    def __init__(self, reading: Reading) -> None:
        self.reading = reading
        self._content = ContentBuilder()
        self._sessions: dict[str, _Session] = {}
        self._session: list[int] = []

    def take(self, number: int, row: Mapping[str, Any]) -> None:
        name, index, cached = (row.get(k) for k in ("session_id", "round_index", "prefix_tokens"))
        prompt = prompt_tokens(self.reading, row)
        num_cached = LENGTH.value(cached if cached is not None else 0)
        known = self._sessions.get(name) if isinstance(name, str) else None
        fault = ""
        if not isinstance(name, str):
            fault = f"session_id is {shown(name)}; accepted: text"
        elif type(index) is not int or (known is not None and index <= known.index):
            after = "" if known is None else f" above the session's last one, {known.index}"
            fault = f"round_index is {shown(index)}; accepted: a whole number{after}"
        elif num_cached is None or (prompt is not None and num_cached > prompt):
            fault = f"prefix_tokens is {shown(cached)}; accepted: null, or 0 up to the prompt"
        if fault:
            self.reading.bad_row(number, fault, f"{fault.split()[0]} not accepted")
        elif add_object(self.reading, number, {**row, TIME: last_input(row)}):
            assert isinstance(name, str)  # no fault means that all of them are there
            assert isinstance(index, int)
            assert num_cached is not None
            assert prompt is not None
            if cached is None:
                self.reading.notes["altered: prefix_tokens null, taken as none"] += 1
            session = self._sessions.setdefault(name, _Session(len(self._sessions), -1, []))
            session.index = index
            self._share(session, num_cached, prompt)
            count_unknown(self.reading.notes, row.keys() - KEYS)

    def _share(self, session: _Session, num_cached: int, prompt: int) -> None:
        """Add a round's content: the start of the round before, and its own."""
        runs = head(session.runs, num_cached)
        shared = sum(length for *_, length in runs)
        if session.runs and shared < num_cached:
            self.reading.notes["altered: prefix_tokens cut to the prompt of the round before"] += 1
        request = self._content.add(runs, prompt)
        session.runs = [*runs, (own_prompt(request), shared, prompt - shared)]
        self._session.append(session.number)

    def rows(self) -> Rows:
        rows = self.reading.rows()
        rows.content = self._content.build()
        rows.fields["session"] = np.array(self._session, np.int64)
        return rows


def last_input(row: Mapping[str, Any]) -> object:
    """When a round's last input was there, as text; None if its events do not say."""
    events = row.get("timing_events")
    if not isinstance(events, list):
        return None
    stamps = [
        event.get("timestamp")
        for event in events
        if isinstance(event, dict) and event.get("event_type") in INPUTS
    ]
    return max(stamps, key=lambda stamp: TIMESTAMP.value(stamp) or 0, default=None)


def head(runs: Sequence[Run], count: int) -> list[Run]:
    """The first count tokens of runs."""
    taken: list[Run] = []
    for source, start, length in runs:
        if count <= 0:
            break
        taken.append((source, start, min(length, count)))
        count -= length
    return taken
