"""An experiment of policies, as a user runs it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from command import kvsim

LINE = '{{"timestamp": {0}, "input_length": 1024, "output_length": 5, "hash_ids": [{1}, {2}]}}\n'
EXPERIMENT = """
name: small
policies: [lru]
traces:
  chat: {workload: {kind: file, path: chat.jsonl}, block_size: 512}
capacity_tokens: [1024, 2048]
figures: [prefix_policies]
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    lines = [LINE.format(i * 1000, i % 2, 2 + i % 2) for i in range(6)]
    (tmp_path / "chat.jsonl").write_text("".join(lines))
    (tmp_path / "small.yaml").write_text(EXPERIMENT)
    return tmp_path


def test_run_prints_hit_rates_and_writes_the_figure(folder: Path) -> None:
    done = kvsim("run", "small.yaml", cwd=folder)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert "  lru                0.00   66.67" in lines
    assert "  clairvoyant       33.33   66.67" in lines
    assert lines[-1] == "results/small/figures/prefix_policies.csv"
    assert (folder / "results/small/figures/prefix_policies.png").stat().st_size > 10_000
    as_json = kvsim("run", "small.yaml", "--json", cwd=folder)
    assert len(json.loads(as_json.stdout)["runs"]) == 8


def test_check_says_what_would_be_replayed(folder: Path) -> None:
    done = kvsim("check", "small.yaml", cwd=folder)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0] == "small: 8 runs"
    assert "  chat-lru-capacity=2048" in lines


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["run", "small.yaml", "--check"], "--check and --single-step are of engines; "),
        (["trace", "policies", "small.yaml"], "small.yaml: names policies itself; kvsim run "),
        (["run", "small.yaml", "--set", "policies.0=mru"], "--set policies.0=mru: policies.0: "),
    ],
)
def test_what_does_not_go_together_is_one_line(
    folder: Path, arguments: list[str], sentence: str
) -> None:
    done = kvsim(*arguments, cwd=folder)
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert line.startswith(sentence)
