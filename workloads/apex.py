"""The request traces that Apex replays: one JSON object a line, stamped in nanoseconds.

{ContextTokens, GeneratedTokens, SynthesizedBody, RequestID, TotalTokens, StartTimeOffset}, in an
order that differs from file to file. StartTimeOffset counts whole nanoseconds from the trace's
own zero, and the first request comes later than that. TotalTokens is the sum of the two lengths
and is not read. Who shares a prompt with whom is not known.
Published at github.com/microsoft/apex_plus (traces/llama), MIT.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from workloads.readers import read_jsonl
from workloads.rows import Column, Rows
from workloads.rules import TOKENS, WHOLE_NS
from workloads.starts import object_keys
from workloads.tracefile import TraceFile


@dataclass(frozen=True)
class Apex(TraceFile):
    """A trace of Apex's: path to the JSONL file."""

    kind: ClassVar[str] = "apex"
    columns: ClassVar[Sequence[Column]] = (
        Column("StartTimeOffset", "arrival_ns", WHOLE_NS),
        Column("ContextTokens", "prompt_tokens", TOKENS),
        Column("GeneratedTokens", "output_tokens", TOKENS),
    )

    @classmethod
    def recognizes(cls, path: str, start: bytes) -> bool:
        # a body may be longer than what is seen of the file
        keys = object_keys(start)
        return "ContextTokens" in keys and bool(keys & {"SynthesizedBody", "StartTimeOffset"})

    def read(self, columns: Sequence[Column]) -> Rows:
        return read_jsonl(self.path, columns, self.on_bad_row)
