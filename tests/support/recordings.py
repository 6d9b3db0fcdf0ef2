"""Runs that are recorded and watched, and tables of events read the naive way: slot by slot."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from sim.allocators.terms import EXTERNAL, FREE, KVUsage
from sim.engine.simulation import Memory, Run, simulate
from sim.recording.recording import Recording
from sim.schedulers.base import MEMORY, Scheduler
from sim.sequence import NUM_SLOTS, REQUEST
from sleep_examples import Example, parts_of, requests_and_options

Tables = dict[str, pd.DataFrame]
Table = list[tuple[str, int, int]]


class Truth(NamedTuple):
    """What allocator and scheduler say at the beginning of an iteration."""

    now_ns: int
    usage: KVUsage
    is_fragmented: bool
    num_running: int
    tables: list[tuple[int, Table]]  # (request, table), sorted
    refs: dict[int, int]  # by first slot of blocks or ranges on the device


def truth_of(now_ns: int, scheduler: Scheduler) -> Truth:
    """Asked of the contract alone: held_ranges and host_ranges of every row that holds anything."""
    allocator, cells = scheduler.allocator, scheduler.sequences.rows
    size = getattr(allocator, "block_size", None) if allocator.num_blocks else None
    tables, refs = [], {}
    for row in np.flatnonzero(cells[:, NUM_SLOTS]).tolist():
        table = []
        for place, ranges in (
            ("device", allocator.held_ranges(row)),
            ("host", allocator.host_ranges(row)),
        ):
            for start, length in ranges.tolist():
                for first in range(start, start + length, size or length):
                    table.append((place, first, size or length))
                    if place == "device":
                        refs[first] = refs.get(first, 0) + 1
        if allocator.shows_slots:
            tables.append((cells.item(row, REQUEST), table))
    head = None
    if scheduler.num_waiting and scheduler.blocked == MEMORY:
        head = scheduler.head_row
    is_fragmented = head is not None and allocator.fragmented_for(head)
    usage = allocator.usage()
    return Truth(now_ns, usage, is_fragmented, scheduler.num_in_service, sorted(tables), refs)


def record_example(example: Example, max_rows: int = 1 << 40) -> tuple[Run, Recording, list[Truth]]:
    """Run an example with somebody who records, and somebody who notes the truth."""
    truths: list[Truth] = []
    requests, how = requests_and_options(example, single_step=False)
    recording = Recording(0, max_rows)

    def observe(now_ns: int, scheduler: Scheduler) -> None:
        truths.append(truth_of(now_ns, scheduler))

    how = replace(how, recordings=[recording], observe=observe)
    memory = Memory(example.num_slots, example.max_model_len)
    return simulate(requests, memory, *parts_of(example), how), recording, truths


class State:
    """Pool and tables as rows leave them; applied one by one, slot by slot."""

    def __init__(self, num_slots: int) -> None:
        self.slots: list[dict[str, Any] | None] = [None] * num_slots
        self.tables: dict[tuple[int, int], Table] = {}

    def apply_block(self, row: dict[str, Any]) -> None:
        for slot in range(row["start_slot"], row["start_slot"] + row["num_slots"]):
            offset = slot - row["start_slot"]
            is_written = offset < row["num_written"]
            is_reserved = not is_written and offset < row["num_written"] + row["num_reserved"]
            use = "token_states" if is_written else "reserved" if is_reserved else "internal"
            if row["state"] == "cached":
                use = "cached" if is_written else "internal"
            elif row["state"] != "held":
                use = row["state"]
            self.slots[slot] = {**row, "use": use, "offset": offset}

    def apply_entry(self, row: dict[str, Any]) -> None:
        table = self.tables.setdefault((row["request"], row["sequence"]), [])
        entry = row["place"], row["start_slot"], row["num_slots"]
        if row["start_slot"] < 0:
            assert row["index"] < len(table)
            assert row["num_slots"] == 0
            del table[row["index"] :]
        elif row["index"] == len(table):
            table.append(entry)
        else:
            assert table[row["index"]] != entry
            table[row["index"]] = entry
        if not table:
            del self.tables[row["request"], row["sequence"]]

    def terms(self) -> dict[str, int]:
        counts = dict.fromkeys(KVUsage._fields, 0)
        for slot in self.slots:
            assert slot is not None
            counts[slot["use"]] += 1
        return counts

    def refs(self) -> dict[int, int]:
        """Reference counts by first slot of what is held."""
        return {
            number: slot["ref_count"]
            for number, slot in enumerate(self.slots)
            if slot is not None and slot["offset"] == 0 and slot["state"] == "held"
        }


def replayed(tables: Tables, num_slots: int) -> Iterator[tuple[dict[str, Any], State]]:
    """Each recorded iteration, with the state that the rows up to its start leave."""
    state = State(num_slots)
    blocks = tables["block_events"].to_dict("records")
    entries = tables["table_events"].to_dict("records")
    block = entry = 0
    for iteration in tables["iterations"].to_dict("records"):
        while block < len(blocks) and blocks[block]["time_s"] <= iteration["start_s"]:
            state.apply_block(blocks[block])
            block += 1
        while entry < len(entries) and entries[entry]["time_s"] <= iteration["start_s"]:
            state.apply_entry(entries[entry])
            entry += 1
        yield iteration, state


def with_moved_holes(truth: Truth) -> dict[str, int]:
    """The terms, free slots without a hole for the head of the queue external."""
    terms = list(truth.usage)
    if truth.is_fragmented:
        terms[EXTERNAL] += terms[FREE]
        terms[FREE] = 0
    return dict(zip(KVUsage._fields, terms, strict=True))
