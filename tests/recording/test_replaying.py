"""What a recording says, read back row by row, is what the allocator said."""

from __future__ import annotations

import itertools
import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from recordings import State, Tables, Truth, record_example, replayed, with_moved_holes

from sim.sequence import (
    ARRIVAL_NS,
    FINISH_NS,
    FINISHED,
    FIRST_SCHEDULED_NS,
    NEVER_NS,
    NUM_PREEMPTIONS,
    STATUS,
    IntArray,
)
from sleep_examples import FIXED_EXAMPLES, Example, choose_example, left_behind, run_example

NUM_ROWS = 60  # few enough for most examples to be thinned


def check(example: Example, max_rows: int = 1 << 40) -> None:
    """Record an example and compare all that was recorded with the truth."""
    run, recording, truths = record_example(example, max_rows)
    tables = recording.tables()
    by_time = {truth.now_ns / 1e9: truth for truth in truths}
    compared = 0
    for iteration, state in replayed(tables, example.num_slots):
        if iteration["start_s"] in by_time:
            compare(iteration, by_time[iteration["start_s"]], state, run.allocator.shows_slots)
            compared += 1
        else:  # nothing ran
            assert iteration["num_running"] == 0
    check_phases(tables, run.requests, run.end_ns)
    if recording.every == 1:
        assert compared == len(truths) == run.recorder.num_iterations
        check_gaps(tables, (run.start_ns, run.end_ns))
    else:
        events = [tables[name] for name in ("block_events", "table_events")]
        sizes = [int((table["time_s"] < run.end_ns / 1e9).sum()) for table in events]
        is_small = len(tables["iterations"]) + sum(sizes) <= max_rows
        assert is_small or len(recording.history.moments) <= 2
    assert left_behind(run) == left_behind(run_example(example, single_step=False))


def compare(iteration: dict[str, Any], truth: Truth, state: State, shows_slots: bool) -> None:
    moved = with_moved_holes(truth)
    assert {name: iteration[name] for name in moved} == moved
    assert iteration["num_running"] == truth.num_running
    if not shows_slots:
        assert state.tables == {}
        return
    assert state.terms() == truth.usage._asdict()
    assert sorted((request, table) for (request, _), table in state.tables.items()) == truth.tables
    assert state.refs() == truth.refs
    for number, slot in enumerate(state.slots):
        assert slot is not None
        if slot["state"] == "held" and slot["offset"] == 0:
            table = state.tables[slot["request"], slot["sequence"]]
            assert table[slot["index"]] == ("device", number, slot["num_slots"])


def check_gaps(tables: Tables, span: tuple[int, int]) -> None:
    """The rows of iterations cover the run."""
    rows = tables["iterations"]
    bounds = [span[0] / 1e9, *rows["end_s"].tolist()]
    assert [*rows["start_s"].tolist(), span[1] / 1e9] == bounds


def check_phases(tables: Tables, requests: IntArray, end_ns: int) -> None:
    """Sequence 0 leads without gaps from arrival to end, or to its own end."""
    lives: dict[int, list[dict[str, Any]]] = {}
    for row in tables["phases"].to_dict("records"):
        assert row["start_s"] < row["end_s"] or row["phase"] == "queued"
        lives.setdefault(row["request"], []).append(row)
    for request, rows in lives.items():
        first = [row for row in rows if row["sequence"] == 0]
        assert first[0]["start_s"] == requests[request, ARRIVAL_NS] / 1e9
        for before, after in itertools.pairwise(first):
            assert before["end_s"] == after["start_s"]
            assert before["phase"] != after["phase"]
        finish = requests.item(request, FINISH_NS)
        finish = end_ns if finish == NEVER_NS else finish
        assert max(row["end_s"] for row in rows) == finish / 1e9
        scheduled = requests.item(request, FIRST_SCHEDULED_NS)
        ran = [row for row in first if row["phase"] != "queued"]
        if ran:
            assert ran[0]["phase"] == "prefill"
            assert ran[0]["start_s"] >= scheduled / 1e9 >= 0
        else:  # a schedule() may admit a request and take it back
            assert requests.item(request, STATUS) != FINISHED
        if requests.item(request, STATUS) == FINISHED and len(ran) <= 2:
            assert ran[0]["start_s"] == scheduled / 1e9
        if requests.item(request, NUM_PREEMPTIONS) == 0:
            assert all(row["phase"] in {"queued", "prefill", "decode"} for row in rows)


@pytest.mark.parametrize("seed", FIXED_EXAMPLES)
def test_every_allocator_and_scheduler_is_recorded_as_it_is_and_goes_on_as_without(
    seed: int,
) -> None:
    check(choose_example(random.Random(seed).randint))


@settings(max_examples=25)
@given(st.integers(0, 2**31), st.booleans())
def test_replaying_events_gives_what_the_allocator_says(seed: int, is_thinned: bool) -> None:
    example = choose_example(random.Random(seed).randint)
    check(example, NUM_ROWS if is_thinned else 1 << 40)
