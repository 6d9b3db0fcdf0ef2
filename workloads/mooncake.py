"""Mooncake's request traces: JSON lines with the ids of 512-token blocks.

{timestamp, input_length, output_length, hash_ids}: milliseconds from the trace's zero, lengths in
tokens, and an id for each block of 512 prompt tokens, the last one partial. Ids are chained: an id
is never behind two different ones, so equal ids mean equal prompts up to there. Outputs are not
hashed. Times come in steps of three seconds, so many requests share one.
Published at github.com/kvcache-ai/Mooncake, Apache-2.0; described in Mooncake (FAST 2025).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from workloads.blockids import BlockIds
from workloads.rows import Column
from workloads.rules import MILLISECONDS, TOKENS
from workloads.starts import first_line, object_keys

IDS = re.compile(rb'"hash_ids"\s*:\s*\[')


@dataclass(frozen=True)
class Mooncake(BlockIds):
    """A trace of Mooncake's: path to the JSONL file; block_size tokens an id."""

    kind: ClassVar[str] = "mooncake"
    columns: ClassVar[Sequence[Column]] = (
        Column("timestamp", "arrival_ns", MILLISECONDS),
        Column("input_length", "prompt_tokens", TOKENS),
        Column("output_length", "output_tokens", TOKENS),
    )

    @classmethod
    def recognizes(cls, path: str, start: bytes) -> bool:
        keys = object_keys(start)
        has_ids = IDS.search(first_line(start)) is not None
        return has_ids and keys >= {"timestamp", "input_length"} and "chat_id" not in keys
