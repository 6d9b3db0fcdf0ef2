"""Two experiments that have run: one whose runs were recorded, and the same one without."""

from __future__ import annotations

from pathlib import Path

import pytest

from experiment_files import load
from sim.outcome import run_and_write
from sim.runner import RunOptions

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
