"""kvsim capacity as a user meets it, beside what an engine printed when it started."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from sim.cli import main

LLAMA = ["--model", "llama-3-8b", "--device", "h100"]


def rows(capsys: pytest.CaptureFixture[str], *arguments: str) -> list[dict[str, Any]]:
    assert main(["capacity", *arguments, "--json"]) == 0
    found: list[dict[str, Any]] = json.loads(capsys.readouterr().out)["capacity"]
    return found


def test_terms_add_up_to_the_memory_and_blocks_to_the_kv_cache(capsys) -> None:
    given = ("--activation-gib", "1.26", "--non-torch-gib", "1.79", "--lengths", "100,8192")
    (row,) = rows(capsys, *LLAMA, *given)
    terms = ("weights", "activations", "non_torch", "kv", "unused")
    assert sum(row[f"{term}_gib"] for term in terms) == pytest.approx(row["memory_gib"])
    assert row["num_blocks"] == int(row["kv_gib"] * 2**30) // (16 * 131072)
    assert row["requests_of_100"] == row["num_blocks"] // 7
    assert row["requests_of_8192"] == int(row["max_concurrency"])


def test_the_blocks_are_those_of_a_published_start(capsys) -> None:
    """kubernetes-sigs/gateway-api-inference-extension pull request 550: 7,191 blocks of 16.

    Llama-2-7B on an A100-80GB that reports 79.19 GiB, where the preset has 79.14: 6 blocks.
    """
    given = ("--activation-gib", "2.38", "--non-torch-gib", "0.16")
    (row,) = rows(capsys, "--model", "llama-2-7b", "--device", "a100-80gb", *given)
    assert row["weights_gib"] == pytest.approx(12.55, abs=0.005)
    assert row["kv_gib"] == pytest.approx(56.18, abs=0.06)
    assert row["num_blocks"] == pytest.approx(7191, abs=7)
    assert row["max_concurrency"] == pytest.approx(7191 * 16 / 4096, abs=0.03)


def test_several_models_devices_and_degrees_are_rows_and_impossible_ones_have_a_reason(
    capsys, tmp_path: Path
) -> None:
    given = ["--model", "llama-3-8b,llama-3-70b", "--device", "h100", "--tensor-parallel-size"]
    assert main(["capacity", *given, "1,3,4", "--out", str(tmp_path)]) == 0
    shown = capsys.readouterr().out
    assert "llama-3-70b on 1 x h100-sxm: device: 131.42 GiB of weights" in shown
    assert "llama-3-8b on 3 x h100-sxm: tensor_parallel_size: 3 does not divide" in shown
    table = pd.read_csv(tmp_path / "capacity.csv")
    assert len(table) == 6
    assert table["reason"].notna().sum() == 3
    assert (tmp_path / "figures" / "capacity.png").stat().st_size > 10_000


def test_fp8_holds_twice_as_many_requests(capsys) -> None:
    (plain,), (half,) = (rows(capsys, *LLAMA, "--kv-cache-dtype", t) for t in ("auto", "fp8"))
    assert half["num_blocks"] // 2 == plain["num_blocks"]
    assert half["weights_gib"] == plain["weights_gib"]


def test_nothing_that_fits_is_exit_code_1(capsys, tmp_path: Path) -> None:
    given = ["--model", "llama-3-70b", "--device", "l4", "--out", str(tmp_path)]
    assert main(["capacity", *given]) == 1
    assert "leave no KV memory" in capsys.readouterr().out
    assert [path.name for path in tmp_path.iterdir()] == ["capacity.csv"]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--model", "llama-3-8", "--device", "h100"], "--model: unknown model 'llama-3-8'"),
        (["--model", "llama-3-8b", "--device", "h10"], "--device: unknown device 'h10'"),
        ([*LLAMA, "--lengths", "1,x"], "--lengths: must be whole numbers from 1 to"),
        ([*LLAMA, "--lengths", "1,2,3,4,5,6,7,8,9"], "--lengths: 9 are given; accepted: at most 8"),
        ([*LLAMA, "--block-size", "0"], "--block-size: must be whole numbers from 1 to"),
        ([*LLAMA, "--tensor-parallel-size", "2,"], "--tensor-parallel-size: must be whole"),
        ([*LLAMA, "--gpu-memory-utilization", "1.1"], "must be above 0 and at most 1, got 1.1"),
        ([*LLAMA, "--gpu-memory-utilization", "nan"], "must be above 0 and at most 1, got nan"),
        ([*LLAMA, "--dtype", "float15"], "--dtype: unknown 'float15', did you mean float16"),
        ([*LLAMA, "--kv-cache-dtype", "fp4"], "--kv-cache-dtype: unknown 'fp4'"),
        ([*LLAMA, "--activation-gib", "-1"], "--activation-gib: must be 0 to 1024"),
        ([*LLAMA, "--max-model-len", "0"], "--max-model-len: must be whole numbers from 1 to"),
    ],
)
def test_wrong_arguments_are_one_sentence(capsys, arguments: list[str], sentence: str) -> None:
    assert main(["capacity", *arguments]) == 2
    shown = capsys.readouterr()
    assert sentence in shown.err
    assert len(shown.err.splitlines()) == 1
    assert shown.out == ""
