"""LMCache's agent traces: JSON lines with the ids of 16-token blocks.

{timestamp, input_length, output_length, hash_ids, session_id}: milliseconds from the first request,
lengths in tokens, an id for each block of 16 prompt tokens, the last one partial, and the agent's
session. A step that calls a tool without a word has no output: such rows are refused unless
zero_tokens says what to do with them. A session runs several conversations at once and does not say
which request follows which, so what outputs have in common with later prompts is not known.
Published as text at github.com/LMCache/lmcache-agent-trace, Apache-2.0; block ids are derived from
it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from workloads.blockids import BlockIds
from workloads.mooncake import Mooncake
from workloads.names import NAME, sessions, with_names
from workloads.rows import Column, Rows
from workloads.rules import MILLISECONDS, TOKENS
from workloads.starts import first_line, object_keys

PROMPT = re.compile(rb'"input_length"\s*:\s*(\d{1,9})\b')
IDS = re.compile(rb'"hash_ids"\s*:\s*\[([\d,\s]*)')


@dataclass(frozen=True)
class LMCacheAgent(BlockIds):
    """An agent trace of LMCache's: path to the JSONL file; block_size tokens an id."""

    block_size: int = 16

    kind: ClassVar[str] = "lmcache_agent"
    columns: ClassVar[Sequence[Column]] = (
        Column("timestamp", "arrival_ns", MILLISECONDS),
        Column("input_length", "prompt_tokens", TOKENS),
        Column("output_length", "output_tokens", TOKENS),
        Column("session_id", "session", NAME),
    )

    @classmethod
    def recognizes(cls, path: str, start: bytes) -> bool:
        line = first_line(start)
        if not Mooncake.recognizes(path, line):
            return False
        prompt, ids = PROMPT.search(line), IDS.search(line)
        if prompt is None or ids is None:
            return False
        # more ids than 512-token blocks tell, where a long line hides the session behind them
        return "session_id" in object_keys(line) or ids[1].count(b",") * 512 > int(prompt[1])

    def read(self, columns: Sequence[Column]) -> Rows:
        numbered, _ = with_names(columns)
        rows = super().read(numbered)
        rows.fields["session"] = sessions(rows.fields["session"])
        return rows
