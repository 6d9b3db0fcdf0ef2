"""The moments that a player offers to jump to, of a run small enough to be written down."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pandas as pd
import pytest

from sim.report.player import Recording
from sim.report.player.landmarks import landmarks, packed

TERMS = ["token_states", "reserved", "internal", "external", "cached", "free"]
EVENTS = (
    "time_s start_slot num_slots request sequence index num_written num_reserved ref_count state"
)
TABLES = "time_s request sequence index place start_slot num_slots"


def frame(columns: str, rows: list[tuple[Any, ...]]) -> pd.DataFrame:
    return pd.DataFrame(rows, columns=columns.split())


@pytest.fixture
def samples() -> Recording:
    """Figure 8 of the PagedAttention paper: two samples of a prompt of 7 tokens, blocks of 4.

    The second sample keeps block 1; the first one writes, and gets block 0 for it.
    """
    steps = [
        (0.0, 1, 0, 7, 1, 0, 0, 0, 4),
        (1.0, 1, 2, 10, 0, 0, 0, 0, 2),
        (2.0, 0, 0, *[0] * 5, 12),
    ]
    columns = f"start_s num_running num_waiting {' '.join(TERMS)}"
    iterations = frame(columns, steps)
    events = [
        (0.0, 8, 4, 0, 0, 0, 4, 0, 1, "held"),
        (0.0, 4, 4, 0, 0, 1, 3, 1, 1, "held"),
        (1.0, 0, 4, 0, 0, 1, 4, 0, 1, "held"),
        (1.0, 4, 4, 0, 1, 1, 3, 1, 1, "held"),
        (1.0, 8, 4, 0, 0, 0, 4, 0, 2, "held"),
        (2.0, 0, 12, -1, -1, -1, 12, 0, 0, "cached"),
    ]
    tables = [
        (0.0, 0, 0, 0, "device", 8, 4),
        (0.0, 0, 0, 1, "device", 4, 4),
        (1.0, 0, 0, 1, "device", 0, 4),
        (1.0, 0, 1, 0, "device", 8, 4),
        (1.0, 0, 1, 1, "device", 4, 4),
        (2.0, 0, 0, 0, "device", -1, 0),
        (2.0, 0, 1, 0, "device", -1, 0),
    ]
    phases = [(0, "decode", 0.0, 2.0), (7, "queued", 1.0, 2.0), (8, "preempted", 1.5, 2.0)]
    return Recording(
        label="samples",
        allocator="paged_cow",
        num_slots=12,
        block_size=4,
        iterations=iterations.assign(end_s=iterations["start_s"] + 1),
        phases=frame("request phase start_s end_s", phases),
        events=frame(EVENTS, events),
        tables=frame(TABLES, tables),
    )


def test_what_happens_first_of_each_kind_is_found_and_named(samples: Recording) -> None:
    found = {title: (time_s, request) for time_s, title, _, request in landmarks(samples)}
    assert found == {
        "fullest": (1.0, -1),
        "first to wait": (1.0, 7),
        "first preemption": (1.5, 8),
        "first shared block": (1.0, 0),
        "first copy on write": (1.0, 0),
        "first cached block": (2.0, -1),
    }
    words = {title: text for _, title, text, _ in landmarks(samples)}
    assert "block 1," in words["first copy on write"]
    assert "block 0." in words["first copy on write"]
    assert words["fullest"].startswith(
        "1 running, 2 waiting. Of 12 slots 83 % hold tokens and 2 are"
    )
    assert [row[0] for row in packed(samples)] == sorted(row[0] for row in packed(samples))
    assert packed(samples)[-1][0] == 2_000_000_000


def test_a_block_that_moves_is_no_copy_unless_another_sample_keeps_it(samples: Recording) -> None:
    assert samples.tables is not None
    alone = replace(samples, tables=samples.tables[samples.tables["sequence"] == 0])
    given_back = samples.tables.copy()
    given_back.loc[4, ["start_slot", "num_slots"]] = [-1, 0]  # the other one leaves it, too
    for recording in (alone, replace(samples, tables=given_back), replace(samples, tables=None)):
        assert "first copy on write" not in {title for _, title, *_ in landmarks(recording)}


def test_a_recording_of_nothing_has_no_landmarks(samples: Recording) -> None:
    nothing = {name: getattr(samples, name).iloc[:0] for name in ("iterations", "phases", "events")}
    assert landmarks(replace(samples, tables=None, **nothing)) == []
