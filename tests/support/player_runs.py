"""Recorded runs of the engine as the player takes them, and what is true of them slot by slot."""

from __future__ import annotations

import random

from recordings import State, record_example

from sim.report.player import Recording
from sleep_examples import Example, choose_example


def recorded(example: Example, label: str, max_rows: int = 1 << 40) -> Recording:
    """An example, run and recorded."""
    _, recording, _ = record_example(example, max_rows)
    tables = recording.tables()
    every = recording.every
    return Recording(
        label=label,
        allocator=example.allocator[0],
        num_slots=example.num_slots,
        block_size=recording.history.block_size,
        iterations=tables["iterations"],
        phases=tables["phases"],
        events=tables["block_events"],
        tables=tables["table_events"],
        num_moments_recorded=every * len(tables["iterations"]) if every > 1 else None,
    )


def examples(kinds: list[str]) -> list[Recording]:
    """For each kind of allocator the first small simulation with many changes of its pool."""
    found: dict[str, Recording] = {}
    for seed in range(2000):
        example = choose_example(random.Random(seed).randint)
        kind = example.allocator[0]
        if kind in found or kind not in kinds or len(example.arrivals) < 8:
            continue
        recording = recorded(example, f"{kind} {seed}")
        if len(recording.events) > 60:
            found[kind] = recording
        if len(found) == len(kinds):
            break
    return [found[kind] for kind in kinds]


def slots_at(recording: Recording, time_s: float) -> list[list[object]]:
    """Every slot as pool.js says it, from the events one by one."""
    state = State(recording.num_slots)
    for row in recording.events.to_dict("records"):
        if row["time_s"] <= time_s:
            state.apply_block(row)
    return [_slot(slot) for slot in state.slots]


def tables_at(recording: Recording, request: int, time_s: float) -> list[tuple[int, int, int]]:
    """(sequence, logical index, first slot) of what a request holds in the pool."""
    assert recording.tables is not None
    state = State(0)
    for row in recording.tables.to_dict("records"):
        if row["time_s"] <= time_s and row["request"] == request:
            state.apply_entry(row)
    return [
        (sequence, index, start)
        for (_, sequence), table in sorted(state.tables.items())
        for index, (place, start, _) in enumerate(table)
        if place == "device"
    ]


def _slot(slot: dict[str, object] | None) -> list[object]:
    if slot is None:
        return [-1, -1, -1, 0, 0, "free"]
    kinds = {"token_states": 1, "cached": 1, "reserved": 2}
    kind = 0 if slot["state"] == "free" else kinds.get(str(slot["use"]), 3)
    names = ("request", "sequence", "index")
    return [*(slot[name] for name in names), kind, slot["ref_count"], slot["state"]]
