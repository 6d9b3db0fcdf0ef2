"""Samples, beams and declared prefixes from an experiment's file to its tables."""

import json
from pathlib import Path
from typing import Any

import pytest

from command import files_below, kvsim
from experiment_files import errors_of, load
from sim.executors import run_experiment
from sim.runs.runner import RunOptions

EXPERIMENT = """\
name: forks
kv_cache: {num_slots: 300}
max_model_len: 64
workload:
  kind: synthetic
  num_requests: 25
  arrivals: {kind: poisson, rate: 40}
  prompt_tokens: {kind: uniform, low: 1, high: 20}
  output_tokens: {kind: uniform, low: 1, high: 24}
  prefix: [14]
  num_samples: 3
scheduler: {kind: vllm_v0, max_num_seqs: 16}
allocator:
  - {kind: paged_cow, block_size: 4, num_cpu_blocks: 300}
  - {kind: paged_cow, block_size: 4, num_cpu_blocks: 300, shared_prefix_tokens: 10}
  - {kind: paged, block_size: 4}
  - {kind: contiguous, reservation: oracle, compaction: true}
  - {kind: contiguous, reservation: pow2, placement: buddy}
"""
BEAMS = ("workload.num_samples=null", "workload.beam_width=4")
RESULTS = {"summary.json", "requests.parquet", "timeline.parquet"}


def results_of(folder: Path) -> dict[str, bytes]:
    """The files that say what came out, without those that say how it was made."""
    return {name: data for name, data in files_below(folder).items() if Path(name).name in RESULTS}


def rows_of(folder: Path, experiment: Any, **how: bool) -> list[dict[str, Any]]:
    return run_experiment(experiment, folder, RunOptions(**how))


@pytest.mark.parametrize("overrides", [(), BEAMS], ids=["samples", "beams"])
def test_checked_single_steps_write_the_files_that_sleeping_writes(
    tmp_path: Path, overrides: tuple[str, ...]
) -> None:
    experiment = load(tmp_path, EXPERIMENT, *overrides)
    rows = rows_of(tmp_path / "slept", experiment)
    rows_of(tmp_path / "stepped", experiment, single_step=True, check=True)
    slept, stepped = (results_of(tmp_path / name) for name in ("slept", "stepped"))
    assert len(slept) == 5 * len(RESULTS)
    assert slept == stepped
    assert [row["status"] for row in rows] == ["finished"] * 5
    assert rows[0]["num_preemptions"] > 0
    assert rows[0]["num_blocks_swapped_out"] == rows[0]["num_blocks_swapped_in"] > 0
    assert rows[0]["num_copied_blocks"] > 0
    saved = [row["shared_blocks_saved_frac"] for row in rows[:3]]
    assert saved[1] > saved[0] > 0.3
    assert saved[2] is None
    copied = [row["num_copied_tokens"] for row in rows]
    assert min(copied[2:]) > copied[0], "copies of whole sequences are more than of last blocks"


def test_more_samples_than_may_run_are_rejected_with_the_two_numbers(tmp_path: Path) -> None:
    one = EXPERIMENT.partition("  - {kind: paged_cow, block_size: 4, num_cpu_blocks: 300, sh")[0]
    experiment = load(tmp_path, one, "scheduler.max_num_seqs=2")
    (row,) = rows_of(tmp_path / "out", experiment)
    assert (row["num_rejected"], row["num_finished"]) == (25, 0)


@pytest.mark.parametrize("overrides", [(), BEAMS], ids=["samples", "beams"])
def test_one_token_of_output_never_forks(tmp_path: Path, overrides: tuple[str, ...]) -> None:
    experiment = load(tmp_path, EXPERIMENT, "workload.output_tokens=1", *overrides)
    cow, *_ = rows_of(tmp_path / "out", experiment)
    assert (cow["num_finished"], cow["num_copied_blocks"]) == (25, 0)
    assert cow["shared_blocks_saved_frac"] == 0


def test_a_host_that_is_too_small_ends_its_run_and_no_other(tmp_path: Path) -> None:
    (tmp_path / "x.yaml").write_text(EXPERIMENT)
    small = "allocator.0.num_cpu_blocks=2"
    done = kvsim("run", "x.yaml", "--set", small, "--out", "out", "--json", cwd=tmp_path)
    assert done.returncode == 1
    assert "must leave the device, and the host's memory has no room" in done.stderr
    assert "enlarge swap_space or num_cpu_blocks" in done.stderr
    assert "Traceback" not in done.stderr
    rows = json.loads(done.stdout)["runs"]
    assert [row["status"] for row in rows] == ["error", *["finished"] * 4]
    written = {Path(name).parent.name for name in results_of(tmp_path / "out")}
    assert written == {row["run"] for row in rows[1:]}, "nothing of the run that broke off"


def test_prefixes_without_room_are_found_before_anything_runs(tmp_path: Path) -> None:
    wide = EXPERIMENT.replace("shared_prefix_tokens: 10", "shared_prefix_tokens: 13")
    assert errors_of(tmp_path, wide, "kv_cache.num_slots=16") == [
        "x.yaml:15: allocator.1.shared_prefix_tokens: 1 x 4 blocks of prefixes leave none of the "
        "pool's 4"
    ]


def test_output_tokens_are_those_of_all_sequences(tmp_path: Path) -> None:
    one = EXPERIMENT.replace("num_samples: 3", "num_samples:  1")
    rows = [
        rows_of(tmp_path / str(i), load(tmp_path, text))[0]
        for i, text in enumerate((EXPERIMENT, one))
    ]
    three, single = (row["output_tokens_s"] * row["makespan_s"] for row in rows)
    assert three == pytest.approx(3 * single)


def test_a_host_pool_in_gib_needs_a_model_and_none_is_none(tmp_path: Path) -> None:
    text = EXPERIMENT.replace("num_cpu_blocks: 300}", "swap_space: 4}", 1)
    (error,) = errors_of(tmp_path, text)
    assert "allocator.0.swap_space: is in GiB, and no model says what a token takes" in error
    without = load(tmp_path, EXPERIMENT.replace("num_cpu_blocks: 300}", "swap_space: 0}", 1))
    row = rows_of(tmp_path / "without", without)[0]
    assert row["swapped_bytes"] is None
    assert row["num_preemptions"] > row["num_blocks_swapped_out"] == 0


def test_samples_that_exceed_the_token_budget_together_recompute_all_the_same(
    tmp_path: Path,
) -> None:
    changes = ("scheduler.max_num_batched_tokens=60", "scheduler.preemption_mode=recompute")
    row = rows_of(tmp_path, load(tmp_path, EXPERIMENT, *changes))[0]
    assert row["num_preemptions"] > 0
    assert row["num_finished"] + row["num_rejected"] == row["num_requests"]


def test_a_declared_prefix_that_no_two_prompts_share_is_warned_of(tmp_path: Path) -> None:
    experiment = load(tmp_path, EXPERIMENT.replace("prefix_tokens: 10", "prefix_tokens: 15"))
    wanted = "shared_prefix_tokens: no two prompts have the same first 15 tokens"
    assert wanted in experiment.warnings


def test_a_search_may_be_as_wide_as_a_model_can_search(tmp_path: Path) -> None:
    text = EXPERIMENT.replace("num_samples: 3", "beam_width: 10001")
    (error,) = errors_of(tmp_path, text)
    assert error.endswith("beam_width: draws 10001; accepted: at most 10000")
