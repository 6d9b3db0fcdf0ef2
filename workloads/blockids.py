"""What formats share that list the hashed blocks of each prompt, one JSON object a line.

An id stands for block_size tokens, and equal ids for equal blocks. The list covers the prompt
from its start; the last block may be partial, and what the list leaves out is the request's own.
Prompts whose list leaves out more than that are counted in the notes, as are keys that the format
does not know.
"""

# annotations stay objects here, as in workloads.tracefile
from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, TypeGuard

from workloads import checks
from workloads.content import ContentBuilder
from workloads.intake import Reading, shown
from workloads.readers import add_object, read_objects
from workloads.rows import Column, Rows
from workloads.trace import MAX_TOKENS
from workloads.tracefile import TraceFile

MAX_BLOCK_SIZE = 1 << 20
MAX_ID = (1 << 62) // MAX_BLOCK_SIZE
MAX_KEYS = 20  # counted by name
IGNORED = "ignored: key "
TOO_SHORT = "block ids that cover less than the prompt"


@dataclass(frozen=True)
class BlockIds(TraceFile):
    """A file of requests with the ids of their prompts' blocks: one JSON object a line.

    block_size is how many tokens an id stands for.
    """

    block_size: int = 512

    ids_key: ClassVar[str] = "hash_ids"
    not_read: ClassVar[frozenset[str]] = frozenset()  # other keys that the format has

    def __post_init__(self) -> None:
        super().__post_init__()
        checks.whole("block_size", self.block_size, 1, MAX_BLOCK_SIZE)

    def read(self, columns: Sequence[Column]) -> Rows:
        reading = Reading(self.path, columns, self.on_bad_row)
        content = ContentBuilder()
        known = {column.name for column in self.columns} | {self.ids_key} | self.not_read
        for number, row in read_objects(reading):
            if self.take(reading, content, number, row):
                count_unknown(reading.notes, row.keys() - known)
        rows = reading.rows()
        rows.content = content.build()
        return rows

    def take(
        self, reading: Reading, content: ContentBuilder, number: int, row: Mapping[str, Any]
    ) -> bool:
        """Take one object; False if it is a bad row."""
        prompt = prompt_tokens(reading, row)
        blocks = None if prompt is None else -(-prompt // self.block_size)
        ids = block_ids(reading, number, row, self.block_size, blocks, self.ids_key)
        if ids is None:
            return False
        if not add_object(reading, number, row):
            return False
        assert prompt is not None  # or the row would not have been taken
        assert blocks is not None
        count_short(reading.notes, ids, blocks)
        content.add_blocks(ids, self.block_size, prompt, self.name_of_blocks(row))
        return True

    def name_of_blocks(self, row: Mapping[str, Any]) -> Hashable:
        """Within what the ids are unique."""
        return "blocks"


def names_in(text: str) -> frozenset[str]:
    """The names of keys, written one behind the other."""
    return frozenset(text.split())


def count_unknown(notes: Counter[str], keys: Iterable[str]) -> None:
    """Count keys of a row that nothing reads, each of the first few by its name."""
    for key in sorted(keys):
        note = f"{IGNORED}{shown(key)}"
        if note not in notes and sum(n.startswith(IGNORED) for n in notes) >= MAX_KEYS:
            note = "ignored: further keys"
        notes[note] += 1


def count_short(notes: Counter[str], ids: Sequence[int], blocks: int) -> None:
    """Count a row with fewer ids than its prompt has blocks."""
    if len(ids) < blocks:
        notes[TOO_SHORT] += 1


def block_ids(
    reading: Reading,
    number: int,
    row: Mapping[str, Any],
    block_size: int,
    max_blocks: int | None,
    key: str = "hash_ids",
) -> list[int] | None:
    """The ids of a row's blocks; None if it is a bad row. max_blocks is None: any number."""
    if key not in row:
        reading.bad_row(number, f"has no {key}", f"no {key}")
        return None
    ids = row[key]
    if not are_ids(ids):
        sentence = f"{key} is {shown(ids)}; accepted: whole numbers from 0 to {MAX_ID}"
        reading.bad_row(number, sentence, f"{key} not accepted")
        return None
    if max_blocks is not None and len(ids) > max_blocks:
        sentence = (
            f"{key} has {len(ids)} blocks of {block_size} tokens for a prompt of "
            f"{prompt_tokens(reading, row)}; accepted: at most {max_blocks} (see block_size)"
        )
        reading.bad_row(number, sentence, f"{key} longer than the prompt")
        return None
    return ids


def are_ids(ids: object) -> TypeGuard[list[int]]:
    """Whether it is a list of block ids."""
    if not isinstance(ids, list) or not set(map(type, ids)) <= {int}:
        return False
    return not ids or (min(ids) >= 0 and max(ids) <= MAX_ID)


def prompt_tokens(reading: Reading, row: Mapping[str, Any]) -> int | None:
    """The prompt's length as the row says; None if that is no length."""
    for column in reading.columns:
        if column.field == "prompt_tokens":
            value = column.rule.value(row.get(column.name))
            return value if value is None or value <= MAX_TOKENS else None
    raise LookupError("a format without a prompt's length")
