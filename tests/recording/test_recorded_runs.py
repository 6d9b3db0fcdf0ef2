"""Experiments with `record: blocks`: what their runs leave, and what they may say."""

from __future__ import annotations

import filecmp
import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from experiment_files import GOOD, errors_of, load
from sim.executors import run_experiment
from sim.recording.tables import COLUMNS, NAMES
from sim.runs.outcome import sampled_warnings
from sim.runs.runner import RunOptions

FLEET = """\
name: example
kv_cache: {num_slots: 1000}
max_model_len: 2048
workload:
  kind: synthetic
  num_requests: 60
  arrivals: {kind: poisson, rate: 20}
  prompt_tokens: {kind: lognormal, mean: 120, cv: 0.6, max: 600}
  output_tokens: {kind: lognormal, mean: 60, cv: 0.6, max: 200}
  prefix: [48]
  turns: {kind: chat, count: 4, think_s: {kind: exponential, mean_s: 2}}
allocator: {kind: prefix, block_size: 16}
scheduler: {kind: vllm_v1, max_num_seqs: 24}
replicas: {count: 2, router: {kind: prefix_aware}}
"""
BLOCKS = "record: blocks\n"
FEW = "record: {max_events: 1000}\n"


def run(folder: Path, text: str) -> tuple[dict[str, Any], Path]:
    """The summary row of the only run of an experiment, and its folder."""
    folder.mkdir(exist_ok=True)
    experiment = load(folder, text)
    (row,) = run_experiment(experiment, folder, RunOptions())
    return row, folder / "runs" / experiment.runs()[0].run_id


def key_of(folder: Path) -> str:
    return str(json.loads((folder / "manifest.json").read_text())["key"])


@pytest.fixture(scope="module")
def fleets(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[dict[str, Any], Path]]:
    """Two replicas without a record, with one, with it again, and with a short one."""
    texts = {"without": "", "with": BLOCKS, "again": BLOCKS, "few": FEW}
    root = tmp_path_factory.mktemp("fleets")
    return {name: run(root / name, FLEET + text) for name, text in texts.items()}


@pytest.mark.parametrize("name", ["with", "few"])
def test_a_record_changes_no_other_table(
    fleets: dict[str, tuple[dict[str, Any], Path]], name: str
) -> None:
    (plain, before), (row, after) = fleets["without"], fleets[name]
    for table in ("requests.parquet", "timeline.parquet", "replicas.csv"):
        assert filecmp.cmp(before / table, after / table, shallow=False)
    assert {key: row[key] for key in plain} == plain
    assert set(row) - set(plain) == {"record_every", "record_block_size"}
    assert key_of(before) != key_of(after)


def test_the_same_run_leaves_the_same_bytes_and_lists_them(
    fleets: dict[str, tuple[dict[str, Any], Path]],
) -> None:
    first, second = fleets["with"][1], fleets["again"][1]
    files = json.loads((first / "manifest.json").read_text())["files"]
    for name in NAMES:
        assert f"{name}.parquet" in files
        assert filecmp.cmp(first / f"{name}.parquet", second / f"{name}.parquet", shallow=False)
        table = pd.read_parquet(first / f"{name}.parquet")
        assert tuple(column for column in table if column != "run") == COLUMNS[name]


def test_every_replica_records_its_own_requests(
    fleets: dict[str, tuple[dict[str, Any], Path]],
) -> None:
    row, folder = fleets["with"]
    assert (row["record_every"], row["record_block_size"]) == (1, 16)
    requests = pd.read_parquet(folder / "requests.parquet").set_index("request")
    tables = {name: pd.read_parquet(folder / f"{name}.parquet") for name in NAMES}
    for table in tables.values():
        assert set(table["replica"]) == {0, 1}
    phases = tables["phases"]
    assert (phases["replica"].to_numpy() == requests.loc[phases["request"], "replica"]).all()
    assert set(phases["request"]) == set(requests.index)
    steps = tables["iterations"]
    assert int((steps["num_running"] > 0).sum()) == row["num_iterations"]
    slots = steps[["token_states", "reserved", "internal", "external", "cached", "free"]]
    assert set(slots.sum(axis=1)) == {1000}
    for replica, own in steps.groupby("replica"):
        held = phases[(phases["replica"] == replica) & (phases["phase"] != "queued")]
        assert held["start_s"].min() == own[own["num_running"] > 0]["start_s"].min()


def test_a_run_with_more_events_than_it_may_record_is_sampled_and_says_so(
    fleets: dict[str, tuple[dict[str, Any], Path]],
) -> None:
    row, folder = fleets["few"]
    every = row["record_every"]
    assert every > 1
    assert every & (every - 1) == 0
    (warning,) = sampled_warnings([row, fleets["with"][0]])
    assert warning.endswith(f"fewest in {row['run']}, every {every}th")
    whole = pd.read_parquet(fleets["with"][1] / "iterations.parquet")
    steps = pd.read_parquet(folder / "iterations.parquet")
    assert len(steps) < len(whole) / every + 2 * every
    merged = steps.merge(whole, how="left", indicator=True)
    assert set(merged["_merge"]) == {"both"}  # what is left is as it was
    sizes = [len(pd.read_parquet(folder / f"{name}.parquet")) for name in NAMES if name != "phases"]
    assert sum(sizes) < 2000
    phases = folder / "phases.parquet"
    assert filecmp.cmp(phases, fleets["with"][1] / "phases.parquet", shallow=False)


def test_a_run_without_a_record_leaves_none_of_an_earlier_one(tmp_path: Path) -> None:
    _, folder = run(tmp_path / "x", GOOD + BLOCKS)
    assert (folder / "phases.parquet").exists()
    row, folder = run(tmp_path / "x", GOOD)
    assert not any((folder / f"{name}.parquet").exists() for name in NAMES)
    assert "record_every" not in row
    row, _ = run(tmp_path / "x", GOOD + "record: {blocks: false}\n")
    assert "record_every" not in row


@pytest.mark.parametrize(
    ("value", "sentence"),
    [
        ("block", "record: got 'block'; accepted: blocks, or {blocks: true, max_events: N}"),
        ("{max_events: 3}", "record.max_events: must be at least 1000, got 3"),
        ("{max_event: 3000}", "record.max_event: unknown key, did you mean max_events; accepted"),
        ("{blocks: 1}", "record.blocks: must be true or false, got 1"),
    ],
)
def test_a_wrong_record_is_one_sentence(tmp_path: Path, value: str, sentence: str) -> None:
    (line,) = errors_of(tmp_path, GOOD + f"record: {value}\n")
    assert sentence in line
