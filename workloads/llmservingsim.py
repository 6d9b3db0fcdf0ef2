"""The request traces of LLMServingSim: JSON lines with token ids, or the older tab-separated form.

{input_toks, output_toks, arrival_time_ns, input_tok_ids, output_tok_ids}: lengths in tokens,
whole nanoseconds from the trace's own zero, and the ids of the tokens themselves. So prompts and
outputs are known token by token: a later turn that repeats an earlier output says so by its ids,
and prefixes match at any block size. Files without ids, and the tab-separated ones, have the
first three columns alone; there nobody knows who shares what.
Published at github.com/casys-kaist/LLMServingSim (workloads, dataset), MIT.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from workloads.blockids import count_unknown
from workloads.content import ContentBuilder, IntColumn, as_runs, token_runs
from workloads.files import first_bytes
from workloads.intake import Reading, shown
from workloads.readers import add_object, read_csv, read_objects
from workloads.rows import Column, Rows
from workloads.rules import LENGTH, TOKENS, WHOLE_NS
from workloads.tracefile import TraceFile

MAX_ID = 2**31 - 1
PROMPT_IDS = "input_tok_ids"
OUTPUT_IDS = "output_tok_ids"
IDS = {PROMPT_IDS: "input_toks", OUTPUT_IDS: "output_toks"}


@dataclass(frozen=True)
class LLMServingSim(TraceFile):
    """A trace of LLMServingSim's: path to the JSONL or TSV file."""

    kind: ClassVar[str] = "llmservingsim"
    columns: ClassVar[Sequence[Column]] = (
        Column("arrival_time_ns", "arrival_ns", WHOLE_NS),
        Column("input_toks", "prompt_tokens", TOKENS),
        Column("output_toks", "output_tokens", TOKENS),
    )

    @classmethod
    def recognizes(cls, path: str, start: bytes) -> bool:
        line = start.split(b"\n", maxsplit=1)[0]
        wanted = (b"input_toks", b"output_toks", b"arrival_time_ns")
        return all(name in line for name in wanted)

    def read(self, columns: Sequence[Column]) -> Rows:
        if not first_bytes(self.path).lstrip().startswith(b"{"):
            return read_csv(self.path, columns, self.on_bad_row, "\t")
        reading = Reading(self.path, columns, self.on_bad_row)
        content = ContentBuilder()
        outputs: list[IntColumn] = []
        keys: set[str] | None = None
        known = {column.name for column in self.columns} | IDS.keys()
        for number, row in read_objects(reading):
            found = IDS.keys() & row.keys()
            keys = found if keys is None else keys
            if found != keys:
                sentence = f"has {_named(found)}; the first object has {_named(keys)}"
                reading.bad_row(number, sentence, "other lists of ids than the first object")
            elif _has_good_ids(reading, number, row) and add_object(reading, number, row):
                prompt, output = (np.array(row.get(key, []), np.int64) for key in IDS)
                content.add_cells(token_runs(prompt), len(prompt))
                outputs.append(token_runs(output))
                count_unknown(reading.notes, row.keys() - known)
        rows = reading.rows()
        if keys and PROMPT_IDS in keys:
            rows.content = content.build()
        if keys and rows.content is not None and OUTPUT_IDS in keys:
            rows.content = replace(rows.content, outputs=as_runs(outputs))
            rows.has_output_identity = True
        return rows


def _named(keys: set[str]) -> str:
    return " and ".join(sorted(keys)) or "no lists of ids"


def _has_good_ids(reading: Reading, number: int, row: Mapping[str, Any]) -> bool:
    """Whether the lists that an object has hold ids, as many as it says; if not, a bad row."""
    for key, count_key in IDS.items():
        if key not in row:
            continue
        ids = row[key]
        if not isinstance(ids, list) or not all(type(i) is int and 0 <= i <= MAX_ID for i in ids):
            sentence = f"{key} is {shown(ids)}; accepted: whole numbers from 0 to {MAX_ID}"
            reading.bad_row(number, sentence, f"{key} not accepted")
            return False
        count = LENGTH.value(row.get(count_key))
        if count is not None and count != len(ids):  # what is no count, its own column refuses
            sentence = f"{key} has {len(ids)} ids, {count_key} is {count}; accepted: as many"
            reading.bad_row(number, sentence, f"{key} and {count_key} differ")
            return False
    return True
