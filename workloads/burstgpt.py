"""BurstGPT: the calls of a campus to ChatGPT and GPT-4.

Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type in the first release; later
ones insert Session ID and Elapsed time behind Timestamp, so columns are found by name. Timestamp
counts seconds from the midnight before the whole collection, whole ones in the first release; the
first arrival of a file becomes time zero. A row without tokens is a call that failed: it is refused
unless zero_tokens says what to do with it, and "drop" is what the publishers mean. Session ID names
the conversation where the log has one; without a name a request is a session of its own. Elapsed
time is not read. Who shares a prompt with whom is not known, and output lengths are the source
model's.
Published at github.com/HPMLL/BurstGPT, CC-BY-4.0; described in BurstGPT (KDD 2025).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from workloads.names import NAME, Names, sessions, with_names
from workloads.readers import read_csv
from workloads.rows import Column, Rows
from workloads.rules import LENGTH, SECONDS, TOKENS
from workloads.starts import header_names
from workloads.trace import TraceError
from workloads.tracefile import TraceFile

SELECTED = {"model": "Model", "log_type": "Log Type"}


@dataclass(frozen=True)
class BurstGPT(TraceFile):
    """A BurstGPT log of any release: path to the CSV file.

    model keeps the calls of one service, such as ChatGPT or GPT-4 (None: all).
    log_type keeps "Conversation log" or "API log" (None: both).
    """

    model: str | None = None
    log_type: str | None = None

    kind: ClassVar[str] = "burstgpt"
    absolute_times: ClassVar[bool] = True
    columns: ClassVar[Sequence[Column]] = (
        Column("Timestamp", "arrival_ns", SECONDS),
        Column("Session ID", "session", NAME, optional=True),
        Column("Model", "model", NAME),
        Column("Request tokens", "prompt_tokens", TOKENS),
        Column("Response tokens", "output_tokens", TOKENS),
        Column("Total tokens", "total", LENGTH, optional=True),
        Column("Log Type", "log_type", NAME),
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        for parameter in SELECTED:
            wanted = getattr(self, parameter)
            if wanted is not None and (not isinstance(wanted, str) or not wanted.strip()):
                raise ValueError(f"{parameter}: must be a name as in the file, got {wanted!r}")

    @classmethod
    def recognizes(cls, path: str, start: bytes) -> bool:
        return header_names(start) >= {"Timestamp", "Request tokens", "Response tokens"}

    def read(self, columns: Sequence[Column]) -> Rows:
        numbered, names = with_names(columns)
        rows = read_csv(self.path, numbered, self.on_bad_row)
        self._select(rows, names)
        rows.check_total("Total tokens")
        if "session" in rows.fields:
            rows.fields["session"] = sessions(rows.fields["session"])
        return rows

    def _select(self, rows: Rows, names: Mapping[str, Names]) -> None:
        """Keep the rows that the parameters ask for."""
        cells = {field: rows.fields.pop(field) for field in SELECTED}
        kept = np.ones(len(rows), np.bool_)
        asked: list[str] = []
        for field, column in SELECTED.items():
            name = getattr(self, field)
            if name is None:
                continue
            asked.append(f"{column} {name!r}")
            others = kept & (cells[field] != names[field].find(name))
            if others.any():
                rows.notes[f"left out: {column} is not {name}"] += int(others.sum())
            kept &= ~others
            if not kept.any():
                found = f"{column}s found: {names[field]}"
                raise TraceError(f"{self.path}: no row has {' and '.join(asked)}; {found}")
        if not kept.all():
            rows.take(kept)
