"""What the command line refuses: one sentence, and an exit code."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from command import ROOT, kvsim


def test_a_full_standard_output_is_one_sentence(small: Path) -> None:
    command = [sys.executable, "-m", "sim.cli", "check", str(small)]
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            command, stdout=full, stderr=subprocess.PIPE, text=True, check=False, cwd=ROOT
        )
    assert done.returncode == 1
    assert done.stderr.splitlines() == ["standard output: No space left on device"]


def test_simulated_time_without_end_is_a_row_with_its_error(small: Path) -> None:
    done = kvsim(
        "run",
        small,
        "--set",
        "cost={kind: constant, seconds: 999999}",
        "--set",
        "workload.requests=[{prompt_tokens: 1, output_tokens: 3000000}]",
        "--set",
        "max_model_len=4000000",
        "--set",
        "kv_cache={num_slots: 4000000}",
        "--set",
        "allocator={kind: paged}",
        "--set",
        "figures=[]",
        "--json",
        cwd=small.parent,
    )
    assert done.returncode == 1
    assert "146 years" in json.loads(done.stdout)["runs"][0]["reason"]


MISTAKES = {
    "a missing file": (["run", "nothing.yaml"], "nothing.yaml"),
    "an unknown key": (["run", "small.yaml", "--set", "allocatr={kind: paged}"], "allocator"),
    "an unknown allocator": (["run", "small.yaml", "--set", "allocator={kind: pagd}"], "paged"),
    "block size 0": (
        ["run", "small.yaml", "--set", "allocator={kind: paged, block_size: 0}"],
        "block_size",
    ),
    "a zero pool": (["run", "small.yaml", "--set", "kv_cache={num_slots: 0}"], "num_slots"),
    "a negative length": (
        ["run", "small.yaml", "--set", "workload.requests=[{prompt_tokens: -1, output_tokens: 1}]"],
        "prompt_tokens",
    ),
    "an empty trace": (["run", "small.yaml", "--set", "workload.requests=[]"], "request"),
    "a trace that is not there": (["trace", "info", "nothing.csv"], "nothing.csv"),
    "results that are not there": (["plot", "nothing"], "nothing"),
    "no jobs": (["run", "small.yaml", "-j", "0"], "-j"),
    "too many jobs": (["run", "small.yaml", "-j", "9999999"], "-j"),
    "an unknown figure": (["run", "small.yaml", "--set", "figures=[wast]"], "waste"),
}


@pytest.mark.parametrize(("arguments", "named"), MISTAKES.values(), ids=MISTAKES.keys())
def test_bad_input_is_one_sentence_and_exit_code_2(
    arguments: list[str], named: str, small: Path
) -> None:
    done = kvsim(*arguments, cwd=small.parent)
    assert done.returncode == 2, done.stdout + done.stderr
    assert done.stdout == ""
    assert len(done.stderr.splitlines()) == 1, done.stderr
    assert named in done.stderr
    assert "Traceback" not in done.stderr
    assert not (small.parent / "results").exists()


def test_an_unwritable_folder_is_one_sentence(small: Path) -> None:
    (small.parent / "results").write_text("a file in the way")
    done = kvsim("run", small, cwd=small.parent)
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1, done.stderr
