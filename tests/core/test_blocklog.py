"""The log of blocks shows block tables as they are, and what was copied and swapped."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from sim.allocators import Contiguous, Paged, PagedCow
from sim.allocators.base import Allocator
from sim.allocators.checked import CheckedAllocator
from sim.branching import WorkloadBranches
from sim.costs import Constant
from sim.engine.simulation import Memory, Options, simulate
from sim.recording import blocklog
from sim.recording.blocklog import BlockLog
from sim.schedulers import Fcfs, VllmV0
from sim.schedulers.base import Scheduler
from sim.sequence import IntArray, Limits, new_requests

BLOCK = 4


def requests(*lengths: tuple[int, int], max_tokens: int | None = None) -> IntArray:
    prompt, output = np.array(lengths).T
    longest = output if max_tokens is None else np.full(len(output), max_tokens)
    return new_requests(np.zeros(len(prompt), np.int64), prompt, output, Limits(64, longest))


def moments(table: pd.DataFrame) -> list[tuple[float, str]]:
    return list(dict.fromkeys(zip(table["time_s"], table["moment"], strict=True)))


class Watched:
    """A log, and the reference counts at every moment that it looks."""

    def __init__(self, allocator: PagedCow) -> None:
        self.log, self.allocator = BlockLog(allocator), allocator
        self.counts: dict[tuple[float, str], list[int]] = {}

    def scheduled(self, now_ns: int, scheduler: Scheduler) -> None:
        self.counts[now_ns / 1e9, "schedule"] = self.allocator.ref_counts().tolist()
        self.log(now_ns, scheduler)

    def ended(self, now_ns: int, scheduler: Scheduler) -> None:
        self.counts[now_ns / 1e9, "end"] = self.allocator.ref_counts().tolist()
        self.log.ended(now_ns, scheduler)


def swapping_run() -> tuple[pd.DataFrame, Watched]:
    """Two requests of two samples each, one of which must leave the device for a while."""
    allocator = PagedCow(BLOCK, num_cpu_blocks=6)
    watched = Watched(allocator)
    branches = WorkloadBranches(np.array([2, 2, 1]), None, 0)
    options = Options(observe=watched.scheduled, observe_end=watched.ended, branches=branches)
    simulate(
        requests((7, 8), (6, 8), (6, 2)),
        Memory(9 * BLOCK, 32),
        CheckedAllocator(allocator),
        VllmV0(),
        Constant(0.02),
        options,
    )
    return watched.log.table(), watched


def test_as_many_tables_name_a_block_as_it_has_references() -> None:
    table, watched = swapping_run()
    assert len(moments(table)) > 15
    seen_shared = False
    for time_s, moment in moments(table):
        rows = table[(table["time_s"] == time_s) & (table["moment"] == moment)]
        counts = [0] * (9 + 6)
        for place, start in zip(rows["place"], rows["start_slot"], strict=True):
            counts[start // BLOCK + 9 * (place == "host")] += 1
        assert counts == watched.counts[time_s, moment]
        seen_shared |= max(counts) == 2
    assert seen_shared


def test_copies_and_swaps_are_named_with_the_block_they_came_from() -> None:
    table, _ = swapping_run()
    columns = ["request", "moved", "place", "from_slot", "start_slot"]
    moved = table[table["moved"] != "no"][columns].drop_duplicates()
    found: dict[tuple[str, str], list[tuple[int, int, int]]] = {}
    for request, how, place, source, target in moved.itertuples(index=False):
        found.setdefault((how, place), []).append((request, source // BLOCK, target // BLOCK))
    assert found == {
        ("copy", "device"): [(0, 7, 2), (1, 5, 1)],
        ("swap", "host"): [(1, 6, 5), (1, 1, 4), (1, 5, 3)],
        ("swap", "device"): [(1, 5, 8), (1, 4, 7), (1, 3, 3)],
    }


def test_the_end_of_an_iteration_is_logged_only_if_somebody_forked_or_ended() -> None:
    table, _ = swapping_run()
    ends = table[table["moment"] == "end"]
    assert moments(ends) == [(0.02, "end"), (0.04, "end"), (0.16, "end")]
    first = ends[ends["time_s"] == 0.02]
    assert first.groupby("request")["sequence"].nunique().tolist() == [2, 2, 1]


def test_slots_of_a_block_are_written_reserved_or_of_no_use() -> None:
    allocator = Paged(BLOCK)
    log = BlockLog(allocator)
    memory, options = Memory(32, 32), Options(observe=log, observe_end=log.ended)
    simulate(requests((7, 4)), memory, allocator, Fcfs(), Constant(0.02), options)
    columns = ["index", "num_written", "num_reserved"]
    parts = log.table()[columns].values.tolist()
    # ten slots are reached: the last token is never written
    assert parts[:4] == [[0, 4, 0], [1, 3, 1], [0, 4, 0], [1, 4, 0]]
    assert parts[4:7] == [[0, 4, 0], [1, 4, 0], [2, 1, 1]]


def test_free_slots_are_external_while_the_head_of_the_queue_finds_no_hole() -> None:
    allocator: Allocator = Contiguous(reservation="oracle")
    log = BlockLog(allocator)
    memory, options = Memory(40, 40), Options(observe=log, observe_end=log.ended)
    # 16 + 8 + 8, and 8 are free: 14 fit only when 8 more have come back, but in no hole
    lengths = (13, 3), (7, 1), (5, 3), (13, 1)
    simulate(requests(*lengths), memory, allocator, Fcfs(), Constant(0.02), options)
    table = log.table()
    external = {m: rows["num_external"].unique().tolist() for m, rows in _by_moment(table)}
    assert external[0.0, "schedule"] == [0]
    assert external[0.02, "end"] == external[0.02, "schedule"] == [16]


def _by_moment(table: pd.DataFrame) -> list[tuple[tuple[float, str], pd.DataFrame]]:
    grouped = table.groupby(["time_s", "moment"], sort=False, observed=True)
    return [((float(key[0]), str(key[1])), rows) for key, rows in grouped]


def test_a_long_run_is_logged_up_to_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocklog, "MAX_ROWS", 10)
    allocator = Paged(BLOCK)
    log = BlockLog(allocator)
    memory, options = Memory(32, 32), Options(observe=log, observe_end=log.ended)
    simulate(requests((7, 20)), memory, allocator, Fcfs(), Constant(0.02), options)
    num_logged = log.table()["time_s"].nunique()
    assert 10 <= len(log.table()) < 20
    assert num_logged + log.num_skipped == 20
