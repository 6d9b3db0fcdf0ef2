"""What is packed for the page is what was recorded."""

from __future__ import annotations

import base64
import zlib

import numpy as np
import pandas as pd
import pytest

from player_runs import examples, slots_at, tables_at
from sim.report.player.packing import TERMS, pack
from sim.report.player.recordings import cell_slots, choose, first_pair, unit_slots
from sim.report.player.sampling import sample
from synthetic_log import synthetic

TYPES = {"i8": "<i1", "i16": "<i2", "i32": "<i4", "f64": "<f8"}


def unpacked(packed: dict) -> dict[str, dict[str, np.ndarray]]:
    """As unpack.js does it."""
    data, offset, tables = zlib.decompress(base64.b64decode(packed["data"])), 0, {}
    for table, specs in packed["tables"].items():
        columns: dict[str, np.ndarray] = {}
        for name, coding, kind, length in specs:
            coded = np.frombuffer(data, TYPES[kind], length, offset).astype(np.int64)
            offset += coded.size * np.dtype(TYPES[kind]).itemsize
            if coding == "delta":
                coded = np.cumsum(coded)
            elif coding == "same":
                coded = pd.Series(coded).groupby(columns["start"]).cumsum().to_numpy()
            columns[name] = coded
        tables[table] = columns
    assert offset == len(data)
    return tables


@pytest.mark.parametrize("is_paged", [True, False])
def test_what_is_unpacked_is_what_was_recorded(is_paged: bool) -> None:
    recording = synthetic(4096, 16 if is_paged else 256, 2000, is_paged)
    packed = pack(recording)
    tables, events = unpacked(packed), recording.events
    unit = packed["unit"]
    assert (tables["events"]["time"] == np.rint(events["time_s"] * 1e9)).all()
    assert (tables["events"]["start"] * unit == events["start_slot"]).all()
    assert (tables["events"]["count"] * unit == events["num_slots"]).all()
    names = {"written": "num_written", "reserved": "num_reserved", "refs": "ref_count"}
    for column in ("written", "reserved", "refs", "request", "sequence", "index"):
        assert (tables["events"][column] == events[names.get(column, column)]).all()
    states = np.array(packed["states"])[tables["events"]["state"]]
    assert (states == events["state"].to_numpy()).all()
    for term in TERMS:
        assert (tables["iterations"][term] == recording.iterations[term]).all()
    entries = recording.tables
    assert (tables["entries"]["request"] == entries["request"]).all()
    assert (tables["entries"]["count"] * unit == entries["num_slots"]).all()
    assert (tables["phases"]["request"] == recording.phases["request"]).all()


def test_a_growing_block_costs_few_bytes() -> None:
    recording = synthetic(40_000, 16, 10_000, is_paged=True)
    assert len(pack(recording)["data"]) < 4 * len(recording.events)


def test_the_unit_divides_all_pieces_but_the_end_of_the_pool() -> None:
    recording = synthetic(4096, 16, 500, is_paged=True)
    assert unit_slots(recording) == 16
    events = recording.events.copy()
    events.loc[len(events)] = [9.0, 4096, 5, -1, -1, -1, 0, 0, 0, "external"]
    longer = type(recording)(**{**vars(recording), "num_slots": 4101, "events": events})
    assert unit_slots(longer) == 16


def test_a_sampled_run_is_exact_at_the_moments_that_are_kept() -> None:
    for recording in examples(["contiguous", "paged_cow", "prefix", "radix"]):
        sampled = sample(recording, 7)
        assert len(sampled.iterations) == 7
        assert len(sampled.events) < len(recording.events)
        assert sampled.num_moments_recorded == len(recording.iterations)
        for time_s in sampled.iterations["start_s"]:
            assert slots_at(sampled, time_s) == slots_at(recording, time_s)
            for request in recording.phases["request"].unique():
                expected = tables_at(recording, request, time_s)
                assert tables_at(sampled, request, time_s) == expected
            assert _now(sampled.phases, time_s) == _now(recording.phases, time_s)


def _now(phases: pd.DataFrame, time_s: float) -> list[tuple[object, ...]]:
    now = phases[(phases["start_s"] <= time_s) & (time_s < phases["end_s"])]
    rows = now[["request", "sequence", "phase"]].itertuples(index=False, name=None)
    return sorted(rows)


def test_every_kind_of_memory_is_there_before_a_second_of_one() -> None:
    kinds = [synthetic(1024, 16, 20, True), synthetic(1024, 64, 20, False)]
    many = [kinds[0], kinds[0], kinds[0], kinds[1]]
    chosen = choose(many, 2)
    assert [r.allocator for r in chosen] == ["paged", "contiguous"]
    assert first_pair(many) == [3, 0]
    assert cell_slots(chosen) == [16, 16]


def test_a_large_pool_of_small_blocks_has_several_a_cell() -> None:
    recording = synthetic(100_000, 1, 5, is_paged=True)
    assert cell_slots([recording]) == [8]
