"""What vLLM did with a trace of LLMServingSim's, read as requests: one JSON object a line.

{request_id, input_toks, output_toks, arrival_time, queued_ts, scheduled_ts, first_token_ts,
last_token_ts}: lengths in tokens, arrival_time in seconds since 1970 as the server stamped it, so
the first arrival becomes time zero. The other times are outcomes in seconds of the server's own
clock, and are not read here. The tokens are those of the trace that was replayed; this file does
not have them.
Published at github.com/casys-kaist/LLMServingSim (bench/examples), MIT.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from workloads.readers import read_jsonl
from workloads.rows import Column, Rows
from workloads.rules import SECONDS, TOKENS
from workloads.tracefile import TraceFile


@dataclass(frozen=True)
class LLMServingSimMeasured(TraceFile):
    """The requests of a measured run that LLMServingSim publishes: path to the JSONL file."""

    kind: ClassVar[str] = "llmservingsim_measured"
    absolute_times: ClassVar[bool] = True
    columns: ClassVar[Sequence[Column]] = (
        Column("arrival_time", "arrival_ns", SECONDS),
        Column("input_toks", "prompt_tokens", TOKENS),
        Column("output_toks", "output_tokens", TOKENS),
    )

    @classmethod
    def recognizes(cls, path: str, start: bytes) -> bool:
        line = start.split(b"\n", maxsplit=1)[0]
        wanted = (b'"arrival_time"', b'"input_toks"', b'"output_toks"', b'"queued_ts"')
        return line.startswith(b"{") and all(key in line for key in wanted)

    def read(self, columns: Sequence[Column]) -> Rows:
        return read_jsonl(self.path, columns, self.on_bad_row)
