"""The RAGPulse trace: a question-answering service over documents, as prompts of named parts.

{timestamp, input_length, output_length, hash_ids, session_id}, one JSON object a line: the time is
text, whole seconds from the trace's zero. hash_ids is an object with a list of ids for each kind
of part; a prompt is its system prompts, passages, history, web search and user input, in that
order. Five tables beside the trace (1_sys_prompt.jsonl to 5_web_search.jsonl, each perhaps with
.gz) say how many tokens a part has. A prompt is 6 to 12 tokens longer than its parts: separators,
of which is unknown where they stand. They are taken as the request's own, at the prompt's end.
The published file is two runs in order, one after the other: its times go back once, to 0, so it
needs 'unsorted: sort'. Outputs are not told apart in later histories.
Published at github.com/flashserve/RAGPulse, MIT.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

from workloads.blockids import are_ids, count_unknown, prompt_tokens
from workloads.content import ContentBuilder, Run
from workloads.intake import Reading, shown
from workloads.readers import add_object, read_jsonl, read_objects
from workloads.rows import Column, Rows
from workloads.rules import LENGTH, SECONDS, TOKENS
from workloads.trace import TraceError
from workloads.tracefile import TraceFile


class Part(NamedTuple):
    """A kind of part: its key in hash_ids, its table, and the table's key for an id."""

    key: str
    table: str
    id_key: str


PARTS = (  # in the order of a prompt
    Part("sys_prompt", "1_sys_prompt.jsonl", "sys_prompt_id"),
    Part("passages_ids", "2_passages.jsonl", "passage_id"),
    Part("history", "3_history.jsonl", "history_id"),
    Part("web_search", "5_web_search.jsonl", "web_search_id"),
    Part("user_input", "4_user_input.jsonl", "user_input_id"),
)


@dataclass(frozen=True)
class RAGPulse(TraceFile):
    """The RAGPulse trace: path to 0_trace.jsonl, with its five tables in the same folder."""

    kind: ClassVar[str] = "ragpulse"
    columns: ClassVar[Sequence[Column]] = (
        Column("timestamp", "arrival_ns", SECONDS),
        Column("input_length", "prompt_tokens", TOKENS),
        Column("output_length", "output_tokens", TOKENS),
    )

    @classmethod
    def recognizes(cls, path: str, start: bytes) -> bool:
        line = start.split(b"\n", maxsplit=1)[0]
        return line.startswith(b"{") and b'"hash_ids"' in line and b'"passages_ids"' in line

    def read(self, columns: Sequence[Column]) -> Rows:
        tables = [token_lengths(self.path, part) for part in PARTS]
        reading = Reading(self.path, columns, self.on_bad_row)
        content = ContentBuilder()
        sessions: dict[str, int] = {}
        session: list[int] = []
        known = {column.name for column in self.columns} | {"hash_ids", "session_id"}
        for number, row in read_objects(reading):
            name, prompt = row.get("session_id"), prompt_tokens(reading, row)
            runs, fault = parts_of(row.get("hash_ids"), tables, content)
            covered = sum(length for *_, length in runs)
            if not isinstance(name, str):
                fault = f"session_id is {shown(name)}; accepted: text"
            elif not fault and prompt is not None and covered > prompt:
                fault = f"hash_ids has {covered} tokens for a prompt of {prompt}; accepted: no more"
            if fault:
                reading.bad_row(number, fault, f"{fault.split()[0]} not accepted")
            elif add_object(reading, number, row):
                assert prompt is not None  # or the row would not have been taken
                content.add(runs, prompt)
                count_unknown(reading.notes, row.keys() - known)
                session.append(sessions.setdefault(str(name), len(sessions)))
        rows = reading.rows()
        rows.content = content.build()
        rows.fields["session"] = np.array(session, np.int64)
        return rows


def token_lengths(trace: str, part: Part) -> dict[int, int]:
    """The table of a part, found beside the trace: tokens by id."""
    folder = os.path.dirname(trace)
    paths = [os.path.join(folder, part.table + suffix) for suffix in ("", ".gz")]
    path = next((path for path in paths if os.path.isfile(path)), None)
    if path is None:
        raise TraceError(
            f"{trace}: its table {part.table} is not there; accepted: the five tables of the "
            "trace in the same folder, plain or .gz"
        )
    columns = (Column(part.id_key, "id", LENGTH), Column("token_length", "tokens", LENGTH))
    rows = read_jsonl(path, columns, "error")
    ids, tokens = rows.fields["id"].tolist(), rows.fields["tokens"].tolist()
    lengths = dict(zip(ids, tokens, strict=True))
    if len(lengths) < len(ids):
        raise TraceError(f"{path}: an id of {part.id_key} stands twice; accepted: each once")
    return lengths


def parts_of(
    ids: Any, tables: Sequence[Mapping[int, int]], content: ContentBuilder
) -> tuple[list[Run], str]:
    """The parts of a prompt as runs, and what is wrong with them, if anything is."""
    runs: list[Run] = []
    keys = [part.key for part in PARTS]
    if not isinstance(ids, dict) or set(ids) != set(keys):
        return runs, f"hash_ids is {shown(ids)}; accepted: an object with {', '.join(keys)}"
    for part, table in zip(PARTS, tables, strict=True):
        if not are_ids(ids[part.key]):
            return runs, f"{part.key} is {shown(ids[part.key])}; accepted: a list of ids"
        for name in ids[part.key]:
            if name not in table:
                return runs, f"{part.key} has {name}, which is not in {part.table}"
            runs.append((content.source((part.key, name)), 0, table[name]))
    return runs, ""
