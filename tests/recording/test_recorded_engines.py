"""Every engine, alone and as two replicas: what its record says, added up by itself, is the run.

Terms, owners and reference counts are counted here from the rows of block_events and table_events
alone, and compared with what the simulation has noted in iterations.
"""

from __future__ import annotations

import filecmp
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from experiment_files import load
from sim.executors import run_experiment
from sim.recording.tables import NAMES
from sim.runs.runner import RunOptions

NUM_SLOTS = 2100
TEXT = f"""\
name: engines
kv_cache: {{num_slots: {NUM_SLOTS}}}
model: llama-3-8b
device: h100-sxm
max_model_len: 1024
workload:
  kind: synthetic
  num_requests: 12
  arrivals: {{kind: poisson, rate: 40}}
  prompt_tokens: {{kind: lognormal, mean: 200, cv: 0.8, max: 800}}
  output_tokens: {{kind: lognormal, mean: 60, cv: 0.8, max: 200}}
  prefix: [48]
  turns: {{kind: chat, count: 3, think_s: 0.2}}
  max_tokens: 256
cost: {{kind: roofline}}
sweep: {{engine: all, replicas.count: [1, 2]}}
"""
FEW = TEXT.replace("engine: all", "engine: [orca-pow2, sglang, vllm-0.2, vllm-0.32]")

TERMS = ("token_states", "reserved", "internal", "external", "cached", "free")
TOKEN, RESERVED, INTERNAL, EXTERNAL, CACHED, FREE = range(6)
OF_STATE = {"external": EXTERNAL, "free": FREE}
Results = dict[str, tuple[dict[str, Any], Path]]


def run(folder: Path, text: str) -> Results:
    """The summary row and the folder of each run, by its name."""
    folder.mkdir()
    experiment = load(folder, text)
    rows = run_experiment(experiment, folder, RunOptions())
    return {row["run"]: (row, folder / "runs" / row["run"]) for row in rows}


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Results:
    return run(tmp_path_factory.mktemp("plain") / "x", TEXT)


RECORDS = [TEXT + "record: blocks\n", FEW + "record: {max_events: 1000}\n"]


@pytest.fixture(scope="module", params=RECORDS, ids=["whole", "sampled"])
def recorded(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Results:
    return run(tmp_path_factory.mktemp("with") / "x", request.param)


class Log:
    """A pool and its tables, by the rows that have been applied."""

    def __init__(self) -> None:
        self.use = np.full(NUM_SLOTS, -1)
        self.refs = np.zeros(NUM_SLOTS, np.int64)  # at the first slot of what is held
        self.owner: dict[int, tuple[int, int, int]] = {}  # likewise
        self.named = np.zeros(NUM_SLOTS, np.int64)  # entries of tables that name a first slot
        self.tables: dict[tuple[int, int], list[tuple[str, int]]] = defaultdict(list)

    def block(self, row: Any) -> None:
        first, end = row.start_slot, row.start_slot + row.num_slots
        self.use[first:end] = OF_STATE.get(row.state, INTERNAL)
        if row.state in {"held", "cached"}:
            written = first + row.num_written
            self.use[first:written] = TOKEN if row.state == "held" else CACHED
            self.use[written : written + row.num_reserved] = RESERVED
        self.refs[first:end] = 0
        self.refs[first] = row.ref_count
        for slot in range(first, end):
            self.owner.pop(slot, None)
        if row.state == "held":
            self.owner[first] = row.request, row.sequence, row.index

    def entry(self, row: Any) -> None:
        table = self.tables[row.request, row.sequence]
        for place, slot in table[row.index : None if row.start_slot < 0 else row.index + 1]:
            self.named[slot] -= place == "device"
        if row.start_slot < 0:
            del table[row.index :]
            return
        self.named[row.start_slot] += row.place == "device"
        table[row.index : row.index + 1] = [(row.place, row.start_slot)]

    def check(self, step: Any) -> None:
        counts = np.bincount(self.use, minlength=6).tolist()
        told = [getattr(step, term) for term in TERMS]
        if told != counts:  # holes that the head of the queue does not fit into
            counts[EXTERNAL] += counts[FREE]
            counts[FREE] = 0
        assert told == counts
        assert (self.refs == self.named).all()

    def check_owners(self) -> None:
        for slot, (request, sequence, index) in self.owner.items():
            assert self.tables[request, sequence][index] == ("device", slot)


def replay(folder: Path, every: int) -> int:
    """Apply the rows of a run and compare at each iteration; how many were compared."""
    found = {name: pd.read_parquet(folder / f"{name}.parquet") for name in NAMES}
    compared = 0
    for replica, steps in found["iterations"].groupby("replica"):
        log = Log()
        rows = [
            [(row.time_s, apply, row) for row in table[table["replica"] == replica].itertuples()]
            for table, apply in (
                (found["block_events"], log.block),
                (found["table_events"], log.entry),
            )
        ]
        waiting = sorted(rows[0] + rows[1], key=lambda row: row[0])
        done = 0
        for step in steps.itertuples():
            while done < len(waiting) and waiting[done][0] <= step.start_s:
                waiting[done][1](waiting[done][2])
                done += 1
            log.check(step)
            if compared % 8 == 0:
                log.check_owners()
            compared += 1
        assert every > 1 or compared > 20
    return compared


def test_a_record_adds_up_to_the_run_at_every_iteration(recorded: Results) -> None:
    assert len(recorded) in {8, 32}
    for row, folder in recorded.values():
        assert replay(folder, row["record_every"]) > 0
    rows = [row for row, _ in recorded.values()]
    assert any(row.get("num_evicted_blocks") for row in rows)
    if len(rows) == 32:
        assert any(row["num_preemptions"] for row in rows)
    else:
        assert max(row["record_every"] for row in rows) > 1


def test_results_are_the_same_bytes_with_and_without_a_record(
    plain: Results, recorded: Results
) -> None:
    for name, (other, after) in recorded.items():
        row, before = plain[name]
        assert {key: other[key] for key in row} == row
        for path in before.iterdir():
            if path.name not in {"manifest.json", "summary.json"}:
                assert filecmp.cmp(path, after / path.name, shallow=False)
