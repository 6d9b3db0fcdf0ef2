"""The command line in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]

SHARED = Path(os.environ.get("KVSIM_SHARED", ROOT.parent / "shared"))

SMALL = """
name: small
kv_cache: {num_slots: 160}
max_model_len: 64
workload:
  kind: inline
  requests:
    - {prompt_tokens: 20, output_tokens: 5}
    - {arrival_s: 0.01, prompt_tokens: 30, output_tokens: 9}
    - {arrival_s: 0.02, prompt_tokens: 10, output_tokens: 3}
allocator:
  - {kind: contiguous, reservation: max}
  - {kind: paged, block_size: 16}
figures: [waste]
"""


def kvsim(*arguments: object, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "sim.cli", *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        timeout=200,
    )


def runs(done: subprocess.CompletedProcess[str]) -> dict[str, dict[str, Any]]:
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    return {run["allocator"]: run for run in found["runs"]}


def files_below(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }
