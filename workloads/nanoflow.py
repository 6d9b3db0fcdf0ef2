"""Nanoflow's ShareGPT lengths: the columns of an Azure trace without its times.

TIMESTAMP,ContextTokens,GeneratedTokens, where every TIMESTAMP is the letters XXX: lengths only, for
'kind: lengths'. A row is the first turn of a conversation: its prompt in LLaMA tokens with the one
that begins a text, and the answer. Nothing is filtered out, not even a prompt of 241,402 tokens.
Published at github.com/efeslab/Nanoflow, Apache-2.0.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from workloads.readers import read_csv
from workloads.rows import Column, Rows
from workloads.rules import TOKENS
from workloads.starts import first_cells
from workloads.tracefile import TraceFile

TIME, NO_TIME = "TIMESTAMP", "XXX"


@dataclass(frozen=True)
class Nanoflow(TraceFile):
    """A list of lengths of Nanoflow's: path to the CSV file. It has no arrival times."""

    kind: ClassVar[str] = "nanoflow"
    columns: ClassVar[Sequence[Column]] = (
        Column("ContextTokens", "prompt_tokens", TOKENS),
        Column("GeneratedTokens", "output_tokens", TOKENS),
    )

    @classmethod
    def recognizes(cls, path: str, start: bytes) -> bool:
        names, cells = first_cells(start)
        wanted = {TIME, *(column.name for column in cls.columns)}
        return wanted <= set(names) and cells[names.index(TIME) :][:1] == [NO_TIME]

    def read(self, columns: Sequence[Column]) -> Rows:
        return read_csv(self.path, columns, self.on_bad_row)
