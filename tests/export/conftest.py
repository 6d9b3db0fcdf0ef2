"""Experiments that have run: recorded, the same one without, and two replicas with samples."""

from __future__ import annotations

from pathlib import Path

import pytest

from experiment_files import load
from sim.runs.outcome import run_and_write
from sim.runs.runner import RunOptions

TEXT = """\
name: watched
kv_cache: {num_slots: 96}
max_model_len: 64
workload:
  kind: inline
  requests:
    - {prompt_tokens: 20, output_tokens: 15}
    - {arrival_s: 0.01, prompt_tokens: 30, output_tokens: 19}
    - {arrival_s: 0.02, prompt_tokens: 10, output_tokens: 13}
    - {arrival_s: 0.03, prompt_tokens: 80, output_tokens: 3}
    - {arrival_s: 9.0, prompt_tokens: 10, output_tokens: 3}
allocator:
  - {kind: contiguous, reservation: oracle}
  - {kind: paged_cow, block_size: 4, num_cpu_blocks: 9}
scheduler: {kind: vllm_v0, preemption_mode: swap}
"""

FLEET = """\
name: fleet
kv_cache: {num_slots: 400}
max_model_len: 200
workload:
  kind: synthetic
  num_requests: 24
  arrivals: {kind: poisson, rate: 30}
  prompt_tokens: {kind: lognormal, mean: 40, cv: 0.6, max: 90}
  output_tokens: {kind: lognormal, mean: 30, cv: 0.6, max: 90}
  num_samples: 3
allocator: {kind: paged_cow, block_size: 8}
scheduler: {kind: vllm_v0}
replicas: {count: 2, router: {kind: round_robin}}
"""


def results_of(folder: Path, text: str) -> Path:
    folder.mkdir()
    experiment = load(folder, text)
    run_and_write(experiment, folder / "results", RunOptions(), draws=False)
    return folder / "results"


@pytest.fixture(scope="session")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return results_of(tmp_path_factory.mktemp("with") / "x", TEXT + "record: blocks\n")


@pytest.fixture(scope="session")
def unrecorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return results_of(tmp_path_factory.mktemp("without") / "x", TEXT)


@pytest.fixture(scope="session")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two replicas, and requests that fork."""
    return results_of(tmp_path_factory.mktemp("fleet") / "x", FLEET + "record: blocks\n")


@pytest.fixture(scope="session")
def sampled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same, of which not every iteration is recorded."""
    text = FLEET + "record: {max_events: 1000}\n"
    return results_of(tmp_path_factory.mktemp("sampled") / "x", text)
