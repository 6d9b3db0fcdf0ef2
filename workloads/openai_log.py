"""Logs of requests in the words of OpenAI's API: one JSON object a line.

Of a line count:
- when it came: timestamp, startTime or created, as unix seconds or as a date and time of day.
  created is stamped when the answer begins; it stands for the arrival where nothing else does.
- usage.prompt_tokens and usage.completion_tokens, in the newer API usage.input_tokens and
  usage.output_tokens; a proxy's flat record has them beside the time.
- max_completion_tokens, max_output_tokens or max_tokens, kept if every request has one.
Each is looked for in the line, then in its response, response.body, request, request.body, body
and model_parameters: where API answers, batch outputs and the records of proxies such as LiteLLM
keep them. What is there first counts. A line without usage, such as a failed request, is a bad
row. usage.prompt_tokens_details.cached_tokens says how much a cache served and not with whom a
prompt is shared, so it is counted as ignored, as are names at the top of a line that neither the
API nor LiteLLM has. The first arrival becomes time zero.
There is no one who publishes the format; the fields are those of OpenAI's API reference and of
LiteLLM's StandardLoggingPayload.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from workloads.blockids import count_unknown, names_in
from workloads.intake import Reading, shown
from workloads.readers import add_object, read_objects
from workloads.rows import Column, Rows
from workloads.rules import TIMESTAMP, TOKENS, Rule, seconds, timestamp
from workloads.tracefile import TraceFile

TIMES = ("timestamp", "startTime", "created")
PROMPTS = ("prompt_tokens", "input_tokens")
OUTPUTS = ("completion_tokens", "output_tokens")
LIMITS = ("max_completion_tokens", "max_output_tokens", "max_tokens")
PLACES = ("response", "request", "body", "model_parameters")
# further names that a line has in OpenAI's API, its batches, and LiteLLM's StandardLoggingPayload
NOT_READ = names_in(
    "id object model choices output usage system_fingerprint service_tier status error metadata "
    "custom_id method url request_id status_code messages input instructions stream temperature "
    "top_p n stop seed tools tool_choice response_format user total_tokens trace_id call_type "
    "response_cost custom_llm_provider endTime completionStartTime response_time model_id "
    "model_map_information model_group api_base cache_hit cache_key saved_cache_cost request_tags "
    "end_user requester_ip_address error_str error_information hidden_params prompt_tokens_details"
)
KNOWN = NOT_READ | {*TIMES, *PROMPTS, *OUTPUTS, *LIMITS, *PLACES}


def moment(cell: object) -> int:
    """Unix seconds or a date and time of day, as nanoseconds since 1970."""
    return timestamp(cell) if isinstance(cell, str) else seconds(cell)


MOMENT = Rule(f"unix seconds, or {TIMESTAMP.accepts}", moment, lambda cells: None)


@dataclass(frozen=True)
class OpenAILog(TraceFile):
    """A log of requests in the words of OpenAI's API: path to the JSONL file."""

    kind: ClassVar[str] = "openai_log"
    absolute_times: ClassVar[bool] = True
    columns: ClassVar[Sequence[Column]] = (
        Column("timestamp", "arrival_ns", MOMENT),
        Column("prompt_tokens", "prompt_tokens", TOKENS),
        Column("completion_tokens", "output_tokens", TOKENS),
    )

    @classmethod
    def recognizes(cls, path: str, start: bytes) -> bool:
        has_time = any(f'"{name}"'.encode() in start for name in TIMES)
        has_usage = b'"usage"' in start or b'"prompt_tokens"' in start
        return start.startswith(b"{") and has_time and has_usage and b'"arrival_s"' not in start

    def read(self, columns: Sequence[Column]) -> Rows:
        reading = Reading(self.path, columns, self.on_bad_row)
        limits: list[int | None] = []
        for number, line in read_objects(reading):
            row = request_of(line)
            limit = row.pop("max_tokens", None)
            max_tokens = TOKENS.value(limit)
            if limit is not None and max_tokens is None:
                sentence = f"max_tokens is {shown(limit)}; accepted: null or {TOKENS.accepts}"
                reading.bad_row(number, sentence, "max_tokens not accepted")
            elif add_object(reading, number, row):
                limits.append(max_tokens)
                if row["cached_tokens"]:
                    reading.notes["ignored: cached_tokens, of which the source is unknown"] += 1
                count_unknown(reading.notes, line.keys() - KNOWN)
        rows = reading.rows()
        given = [limit for limit in limits if limit is not None]
        if len(given) == len(rows):
            rows.fields["max_tokens"] = np.array(given, np.int64)
        elif given:
            rows.notes["ignored: max_tokens, which not every request has"] += len(given)
        return rows


def request_of(line: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a request, wherever they stand in its line; those that are there."""
    places = list(places_of(line))
    usages = [place["usage"] for place in places if isinstance(place.get("usage"), Mapping)]
    counts = usages[0] if usages else line
    details = counts.get("prompt_tokens_details")
    found = {
        "timestamp": first(places, TIMES),
        "prompt_tokens": first([counts], PROMPTS),
        "completion_tokens": first([counts], OUTPUTS),
        "max_tokens": first(places, LIMITS),
    }
    row = {name: value for name, value in found.items() if value is not None}
    row["cached_tokens"] = details.get("cached_tokens") if isinstance(details, Mapping) else None
    return row


def places_of(line: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """The objects of a line in which a field may stand."""
    yield line
    for name in PLACES:
        inner = line.get(name)
        if isinstance(inner, Mapping):
            yield inner
            if isinstance(body := inner.get("body"), Mapping):
                yield body


def first(places: Sequence[Mapping[str, Any]], names: Sequence[str]) -> Any:
    """The value of the first name that a place has, the names in their order."""
    for name in names:
        for place in places:
            if place.get(name) is not None:
                return place[name]
    return None
