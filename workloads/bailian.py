"""The layout of Qwen-Bailian's usage traces: JSON lines with 16-token block ids and turns.

{chat_id, parent_chat_id, timestamp, input_length, output_length, type, turn, hash_ids}: seconds
from the trace's zero, lengths in tokens, an id for each block of 16 prompt tokens, the last one
partial. parent_chat_id is the chat_id of the turn before, -1 without one; requests that follow one
another are a session. Outputs are not hashed, but a follow-up's prompt goes on behind the turn
before, so its blocks say what that output was: see workloads.followups. type and turn are not read.
Published at github.com/alibaba-edu/qwen-bailian-usagetraces-anon, Apache-2.0.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from workloads.blockids import BlockIds
from workloads.followups import link_outputs
from workloads.names import by_appearance
from workloads.rows import ORPHANS, Column, Rows
from workloads.rules import SECONDS, TOKENS, Rule
from workloads.starts import object_keys
from workloads.trace import IntColumn, TraceError

MAX_CHAT = 2**62


def chat_id(cell: object) -> int:
    """A chat's number."""
    if type(cell) is not int or not 0 <= cell <= MAX_CHAT:
        raise ValueError
    return cell


def parent_id(cell: object) -> int:
    """The number of the chat before, or -1."""
    return -1 if cell == -1 and type(cell) is int else chat_id(cell)


CHAT = Rule(f"a whole number from 0 to {MAX_CHAT}", chat_id, lambda cells: None)
PARENT = Rule(f"a whole number from -1 to {MAX_CHAT}", parent_id, lambda cells: None)


@dataclass(frozen=True)
class Bailian(BlockIds):
    """A trace in the layout of Qwen-Bailian's: path to the JSONL file; block_size tokens an id."""

    block_size: int = 16

    not_read: ClassVar[frozenset[str]] = frozenset({"type", "turn"})
    kind: ClassVar[str] = "bailian"
    columns: ClassVar[Sequence[Column]] = (
        Column("chat_id", "chat", CHAT),
        Column("parent_chat_id", "before", PARENT),
        Column("timestamp", "arrival_ns", SECONDS),
        Column("input_length", "prompt_tokens", TOKENS),
        Column("output_length", "output_tokens", TOKENS),
    )

    @classmethod
    def recognizes(cls, path: str, start: bytes) -> bool:
        return object_keys(start) >= {"chat_id", "parent_chat_id", "input_length"}

    def read(self, columns: Sequence[Column]) -> Rows:
        rows = super().read(columns)
        self._refuse_twice(rows)
        chats, before = rows.fields.pop("chat"), rows.fields.pop("before")
        order = np.argsort(chats)
        place = np.searchsorted(chats, before, sorter=order)
        found = order[np.minimum(place, len(order) - 1)]
        is_there = chats[found] == before
        rows.fields["parent"] = np.where(is_there, found, -1)
        self._refuse_late(rows, chats)
        rows.fields["session"] = by_appearance(first_turns(rows.fields["parent"]))
        rows.mark(ORPHANS, (before >= 0) & ~is_there)
        return rows

    def complete(self, rows: Rows) -> None:
        link_outputs(rows, self.block_size)

    def _refuse_late(self, rows: Rows, chats: IntColumn) -> None:
        """Refuse, or drop, a row whose parent is the row itself or comes later."""
        parents, places = rows.fields["parent"], np.arange(len(rows))
        times = rows.fields.get("arrival_ns", places)
        later = (times[parents] > times) | ((times[parents] == times) & (parents >= places))
        late = np.flatnonzero((parents >= 0) & later)
        if not len(late):
            return
        if self.on_bad_row == "error" or len(late) == len(rows):
            row, parent = late[0], parents[late[0]]
            what = "itself" if row == parent else f"{rows.place} {rows.numbers[parent]}"
            raise TraceError(
                f"{self.path}: {rows.place} {rows.numbers[row]}: parent_chat_id of chat "
                f"{chats[row]} is {chats[parent]}, {what}; accepted: a chat that comes before"
            )
        rows.notes["dropped: parent_chat_id of itself or a later row"] += len(late)
        rows.take(np.setdiff1d(places, late))

    def _refuse_twice(self, rows: Rows) -> None:
        """Refuse, or drop, a row whose chat_id an earlier row has."""
        firsts = np.unique(rows.fields["chat"], return_index=True)[1]
        if len(firsts) == len(rows):
            return
        if self.on_bad_row == "error":
            again = int(np.setdiff1d(np.arange(len(rows)), firsts)[0])
            raise TraceError(
                f"{self.path}: {rows.place} {rows.numbers[again]}: chat_id is "
                f"{rows.fields['chat'][again]}, as in an earlier row; accepted: each chat once"
            )
        rows.notes["dropped: chat_id as in an earlier row"] += len(rows) - len(firsts)
        rows.take(np.sort(firsts))


def first_turns(parents: IntColumn) -> IntColumn:
    """The row in which each row's conversation begins."""
    first = np.where(parents >= 0, parents, np.arange(len(parents)))
    for _ in range(len(parents).bit_length()):  # each round halves the way; a circle has no end
        first = first[first]
    return first
