"""A log with tabs: at_s, in and out, one request a line."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from sim.parts import SECONDS, TOKENS, Column, Rows, TraceFile, read_csv


@dataclass(frozen=True)
class TabLog(TraceFile):
    """A log with tabs and the header at_s, in, out: path to the file."""

    kind: ClassVar[str] = "tab_log"
    columns: ClassVar[Sequence[Column]] = (
        Column("at_s", "arrival_ns", SECONDS),
        Column("in", "prompt_tokens", TOKENS),
        Column("out", "output_tokens", TOKENS),
    )

    @classmethod
    def recognizes(cls, path: str, start: bytes) -> bool:
        return start.lstrip().startswith(b"at_s\tin\tout")

    def read(self, columns: Sequence[Column]) -> Rows:
        return read_csv(self.path, columns, self.on_bad_row, delimiter="\t")
