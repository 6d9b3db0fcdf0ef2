"""The request traces of Azure's LLM inference service.

TIMESTAMP,ContextTokens,GeneratedTokens, one request a line. The 2023 traces stamp with seven
fractional digits and no zone, end lines with CR LF and have no newline after the last row; the
2024 traces stamp with six digits and +00:00, and leave the fraction out at whole seconds. Both
are read to the last digit. The first arrival becomes time zero. Who shares a prompt with whom is
not known.
Published at github.com/Azure/AzurePublicDataset, CC-BY-4.0; described in Splitwise (ISCA 2024).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from workloads.readers import read_csv
from workloads.rows import Column, Rows
from workloads.rules import TIMESTAMP, TOKENS
from workloads.starts import header_names
from workloads.tracefile import TraceFile


@dataclass(frozen=True)
class Azure(TraceFile):
    """A trace of Azure's LLM inference service, 2023 or 2024: path to the CSV file."""

    kind: ClassVar[str] = "azure"
    absolute_times: ClassVar[bool] = True
    columns: ClassVar[Sequence[Column]] = (
        Column("TIMESTAMP", "arrival_ns", TIMESTAMP),
        Column("ContextTokens", "prompt_tokens", TOKENS),
        Column("GeneratedTokens", "output_tokens", TOKENS),
    )

    @classmethod
    def recognizes(cls, path: str, start: bytes) -> bool:
        return header_names(start) >= {column.name for column in cls.columns}

    def read(self, columns: Sequence[Column]) -> Rows:
        return read_csv(self.path, columns, self.on_bad_row)
