"""Searches of capacities on queues whose limits are known."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from sim.cli import main

LLAMA = ["--model", "llama-3-8b", "--device", "h100"]
# one request at a time, five iterations of 20 ms each: 0.1 s, so 10 requests a second and no more
SINGLE = """
name: single
kv_cache: {num_slots: 4096}
max_model_len: 64
workload:
  kind: synthetic
  num_requests: 10
  arrivals: {kind: constant, rate: 3}
  prompt_tokens: 10
  output_tokens: 5
allocator: {kind: paged}
scheduler: {kind: fcfs, max_num_seqs: 1}
cost: {kind: constant, seconds: 0.02}
"""


def rows(
    capsys: pytest.CaptureFixture[str], folder: Path, text: str, slo: str, *arguments: object
) -> dict[str, dict[str, Any]]:
    path = folder / "x.yaml"
    path.write_text(text)
    given = ["capacity", str(path), "--slo", slo, "--json", *map(str, arguments)]
    assert main(given) == 0
    found: list[dict[str, Any]] = json.loads(capsys.readouterr().out)["capacity"]
    return {row["label"]: row for row in found}


def trace(folder: Path, count: int, gap_s: float = 1.0) -> Path:
    path = folder / "requests.csv"
    lines = [f"{number * gap_s},10,5" for number in range(count)]
    path.write_text("\n".join(["arrival_s,prompt_tokens,output_tokens", *lines]) + "\n")
    return path
