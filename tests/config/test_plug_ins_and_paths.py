"""Plug-ins of somebody else's and paths in an experiment file."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from experiment_files import GOOD, HEAD, errors_of, write
from sim.config.experiment import load_experiment


def test_a_class_of_somebody_else_is_used_by_module_and_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = """\
from sim.allocators.paged import Paged
class Mine(Paged):
    kind = "mine"
    def __init__(self, block_size: int = 16, shape: tuple[int, int] = (1, 2)) -> None:
        super().__init__(block_size)
        if not isinstance(shape, tuple):
            raise ValueError("shape: is no tuple")
        self.shape = shape
class Strange:
    pass
"""
    (tmp_path / "kvsim_test_plugin.py").write_text(module)
    (tmp_path / "kvsim_test_broken.py").write_text("raise RuntimeError('broken\\nby design')\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    text = GOOD.replace("paged}", '"kvsim_test_plugin:Mine", shape: [3, 4]}')
    spec = load_experiment(write(tmp_path, text)).runs()[0]
    assert spec.config["allocator"]["shape"] == [3, 4]
    assert vars(spec.build()[3])["shape"] == (3, 4)
    assert spec.run_id == "kvsim_test_plugin_Mine-seed=0"
    refused = {
        "kvsim_test_plugin:Strange": "is no Allocator; accepted: a subclass of it",
        "kvsim_test_plugin:Nobody": "cannot be imported: AttributeError: module",
        "no_such_module:X": "cannot be imported: ModuleNotFoundError: No module named",
        "kvsim_test_broken:X": "cannot be imported: RuntimeError: broken by design",
        "sim.allocators:Allocator": "cannot be used: it does not define append, ",
    }
    for kind, reason in refused.items():
        lines = errors_of(tmp_path, GOOD.replace("paged}", f'"{kind}"}}'))
        assert len(lines) == 1, lines
        assert lines[0].startswith(f"x.yaml:8: allocator.kind: {kind} {reason}"), lines[0]


def test_an_error_within_a_trace_file_has_both_places(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("arrival_s,prompt_tokens,output_tokens\n0,NaN,2\n")
    text = HEAD + "workload: {kind: table, path: t.csv}\nallocator: {kind: paged}\n"
    lines = errors_of(tmp_path, text)
    assert len(lines) == 1
    assert lines[0].startswith(f"x.yaml:4: workload: {tmp_path}/t.csv: line 2: prompt_tokens ")


def test_a_path_starts_at_the_folder_of_the_file(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("arrival_s,prompt_tokens,output_tokens\n0,5,2\n")
    text = HEAD + ("workload: {kind: table, path: t.csv}\nallocator: {kind: paged}\n")
    spec = load_experiment(write(tmp_path, text)).runs()[0]
    assert spec.build()[0].prompt_tokens.tolist() == [5]
    assert spec.config["workload"]["path"] == "t.csv"


def test_a_path_may_start_at_the_shared_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "t.csv").write_text("arrival_s,prompt_tokens,output_tokens\n0,7,2\n")
    text = HEAD + ("workload: {kind: table, path: $KVSIM_SHARED/t.csv}\nallocator: {kind: paged}\n")
    monkeypatch.setenv("KVSIM_SHARED", str(tmp_path))
    spec = load_experiment(write(tmp_path, text)).runs()[0]
    assert spec.build()[0].prompt_tokens.tolist() == [7]
    monkeypatch.delenv("KVSIM_SHARED")
    assert errors_of(tmp_path, text) == [
        "x.yaml:4: workload.path: needs the environment variable KVSIM_SHARED, which is not set"
    ]


def test_reading_an_experiment_imports_neither_matplotlib_nor_torch() -> None:
    code = (
        "import sys, sim.config.experiment; print(sorted({'torch', 'triton', 'matplotlib'}"
        " & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.strip() == "[]"
