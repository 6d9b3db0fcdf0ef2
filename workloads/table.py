"""A table of one's own: arrival_s, prompt_tokens, output_tokens, perhaps max_tokens and priority.

CSV with a header, one JSON object a line, or Parquet; text may be gzip or zstd. What is accepted:
- arrival_s in seconds from the trace's own zero, at least 0. It is taken as the double nearest
  to what is written, rounded once to a nanosecond, and not rebased.
- token counts that are whole and at least 1. 12.0 is twelve, 1.5 is refused. Numbers may stand
  in quotes.
- priorities that are whole numbers, also below 0: the lower, the sooner.
- other columns are ignored, and counted in the trace's notes.
- arrivals out of order are refused by default: more often than not they mean that a file was
  put together wrongly, and sorting would hide it. "unsorted: sort" accepts them.
- a column that stands twice, a blank cell, NaN and text where a number belongs are refused.
- blank lines, a byte order mark, CR LF and a last line without an end make no difference.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import ClassVar, Literal

from workloads import checks
from workloads.files import first_bytes
from workloads.readers import READERS
from workloads.rows import Column, Rows
from workloads.rules import PRIORITY, SECONDS, TOKENS
from workloads.starts import header_names, object_keys
from workloads.tracefile import GENERATE_THEM, TraceFile

SUFFIXES = {".csv": "csv", ".jsonl": "jsonl", ".ndjson": "jsonl", ".parquet": "parquet"}


@dataclass(frozen=True)
class Table(TraceFile):
    """A table with arrival_s, prompt_tokens, output_tokens: path to CSV, JSONL or Parquet.

    format is csv, jsonl or parquet; auto goes by the content and, where that does not tell, by the
    file's suffix, .gz and .zst aside.
    """

    format: Literal["auto", "csv", "jsonl", "parquet"] = "auto"

    kind: ClassVar[str] = "table"
    columns: ClassVar[Sequence[Column]] = (
        Column(
            "arrival_s",
            "arrival_ns",
            SECONDS,
            hint=f"; {GENERATE_THEM}",
        ),
        Column("prompt_tokens", "prompt_tokens", TOKENS),
        Column("output_tokens", "output_tokens", TOKENS),
        Column("max_tokens", "max_tokens", TOKENS, optional=True),
        Column("priority", "priority", PRIORITY, optional=True),
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        checks.one_of("format", self.format, ["auto", *READERS])

    @classmethod
    def recognizes(cls, path: str, start: bytes) -> bool:
        if suffix_format(path) is not None and b"prompt_tokens" in start:
            return True  # with a sentence about what is missing
        return _content_format(start) is not None

    def read(self, columns: Sequence[Column]) -> Rows:
        name: str | None = self.format
        if name == "auto":
            name = _content_format(first_bytes(self.path)) or suffix_format(self.path) or "csv"
        return READERS[str(name)](self.path, columns, self.on_bad_row)


def _content_format(start: bytes) -> str | None:
    """How a table that starts like this is written; None if it shows no table."""
    if start.startswith(b"PAR1"):
        return "parquet"
    wanted = {column.name for column in Table.columns if not column.optional}
    if object_keys(start) >= wanted:
        return "jsonl"
    return "csv" if header_names(start) >= wanted else None


def check_format(form: str, path: str) -> None:
    """Check the parameter that says how a table is written; auto needs a suffix that tells."""
    checks.one_of("format", form, ["auto", *READERS])
    if form == "auto" and suffix_format(path) is None:
        raise ValueError(
            f"format: {path} has none of the suffixes {', '.join(SUFFIXES)}; "
            f"say which it is: {', '.join(READERS)}"
        )


def suffix_format(path: str) -> str | None:
    """The format that a file's suffix stands for, if any."""
    name = PurePath(path.lower().removesuffix(".gz").removesuffix(".zst"))
    return SUFFIXES.get(name.suffix)
