"""The processed traces of Vidur and Sarathi-Serve: CSV files of lengths, some with arrivals.

arrived_at,num_prefill_tokens,num_decode_tokens with seconds from 0, or, without times,
num_prefill_tokens,num_decode_tokens,num_total_tokens,pd_ratio: lengths only, for 'kind: lengths'.
pd_ratio is prompt by output in some files and output by prompt in others, and is not read. A total
that is not the sum of the two is counted, and the two are believed. Who shares a prompt with whom
is not known.
Published at github.com/microsoft/vidur, MIT, and github.com/microsoft/sarathi-serve, Apache-2.0.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from workloads.readers import read_csv
from workloads.rows import Column, Rows
from workloads.rules import LENGTH, SECONDS, TOKENS
from workloads.starts import header_names
from workloads.tracefile import GENERATE_THEM, TraceFile


@dataclass(frozen=True)
class Vidur(TraceFile):
    """A processed trace of Vidur's or Sarathi-Serve's: path to the CSV file."""

    kind: ClassVar[str] = "vidur"
    columns: ClassVar[Sequence[Column]] = (
        Column("arrived_at", "arrival_ns", SECONDS, hint=f"; {GENERATE_THEM}"),
        Column("num_prefill_tokens", "prompt_tokens", TOKENS),
        Column("num_decode_tokens", "output_tokens", TOKENS),
        Column("num_total_tokens", "total", LENGTH, optional=True),
    )

    @classmethod
    def recognizes(cls, path: str, start: bytes) -> bool:
        return header_names(start) >= {"num_prefill_tokens", "num_decode_tokens"}

    def read(self, columns: Sequence[Column]) -> Rows:
        rows = read_csv(self.path, columns, self.on_bad_row)
        rows.check_total("num_total_tokens")
        return rows
