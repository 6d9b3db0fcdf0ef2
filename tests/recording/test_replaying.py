"""What a recording says, read back row by row, is what the allocator said."""

from __future__ import annotations

import random

from hypothesis import given, settings
from hypothesis import strategies as st
from recordings import (
    Truth,
    record_example,
    replayed,
    with_moved_holes,
)

from sleep_examples import Example, choose_example


def check_replay(example: Example, max_rows: int = 1 << 40) -> int:
    """Compare every recorded iteration with the truth; how many there were."""
    run, recording, truths = record_example(example, max_rows)
    tables = recording.tables()
    by_time = {truth.now_ns / 1e9: truth for truth in truths}
    compared = 0
    for iteration, state in replayed(tables, example.num_slots):
        truth = by_time[iteration["start_s"]]
        compare(iteration, truth, state, run.allocator.shows_slots)
        compared += 1
    if recording.every == 1:
        assert compared == len(truths) == run.recorder.num_iterations
    return compared


def compare(iteration: dict, truth: Truth, state, shows_slots: bool) -> None:
    moved = with_moved_holes(truth)
    assert {name: iteration[name] for name in moved} == moved
    assert iteration["num_running"] == truth.num_running
    if not shows_slots:
        return
    assert state.terms() == dict(truth.usage._asdict())
    tables = sorted((request, table) for (request, _), table in state.tables.items())
    assert tables == truth.tables
    assert state.refs() == truth.refs
    for number, slot in enumerate(state.slots):
        if slot["state"] == "held" and slot["offset"] == 0:
            table = state.tables[slot["request"], slot["sequence"]]
            assert table[slot["index"]] == ("device", number, slot["num_slots"])


@settings(max_examples=60)
@given(st.randoms(use_true_random=False))
def test_replaying_the_events_gives_terms_tables_and_references(choices: random.Random) -> None:
    check_replay(choose_example(choices.randint))
