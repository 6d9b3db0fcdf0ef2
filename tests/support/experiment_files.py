"""Experiment files as tests write them."""

from __future__ import annotations

from pathlib import Path

import pytest

from sim.config.experiment import ConfigError, Experiment, load_experiment

GOOD = """\
name: example
kv_cache: {num_slots: 256}
max_model_len: 64
workload:
  kind: inline
  requests:
    - {prompt_tokens: 20, output_tokens: 5}
allocator: {kind: paged}
"""
HEAD = GOOD.partition("workload:")[0]
INLINE = """\
workload:
  kind: inline
  requests:
    - {prompt_tokens: 20, output_tokens: 5}
    - {arrival_s: 1.5, prompt_tokens: 10, output_tokens: 30}
"""
SHAREGPT = "workload: {kind: sharegpt, num_requests: 20, arrivals: {kind: poisson, rate: 4}}\n"
PAGED = "allocator: {kind: paged}\n"
BOTH = "allocator:\n  - {kind: contiguous, reservation: pow2}\n  - {kind: paged}\n"


def write(folder: Path, text: str) -> Path:
    path = folder / "x.yaml"
    path.write_text(text, encoding="utf-8")
    return path


def errors_of(folder: Path, text: str, *overrides: str) -> list[str]:
    """The error lines, without the folder."""
    path = write(folder, text)
    with pytest.raises(ConfigError) as caught:
        load_experiment(path, overrides)
    assert str(caught.value) == "\n".join(caught.value.lines)
    return [line.removeprefix(f"{folder}/") for line in caught.value.lines]


def load(folder: Path, text: str, *overrides: str) -> Experiment:
    return load_experiment(write(folder, text), overrides)


def ids(experiment: Experiment) -> list[str]:
    return [spec.run_id for spec in experiment.runs()]
