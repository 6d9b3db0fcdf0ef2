"""The command line in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from functools import cache
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


@cache
def _server() -> subprocess.Popen[str]:
    """A process that has imported what commands need, and forks for each: see command_server.py."""
    return subprocess.Popen(
        [sys.executable, str(Path(__file__).with_name("command_server.py"))],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )


def kvsim(*arguments: object, cwd: Path) -> subprocess.CompletedProcess[str]:
    """kvsim with these arguments in that folder, in a process of its own."""
    server = _server()
    assert server.stdin is not None
    assert server.stdout is not None
    with tempfile.TemporaryDirectory() as scratch:
        streams = {name: Path(scratch) / name for name in ("stdout", "stderr")}
        command = {
            "arguments": [*map(str, arguments)],
            "cwd": str(cwd),
            "env": {**os.environ, "PYTHONPATH": str(ROOT)},
            **{name: str(path) for name, path in streams.items()},
        }
        server.stdin.write(json.dumps(command) + "\n")
        server.stdin.flush()
        code = server.stdout.readline()
        assert code, "the server of commands has ended"
        out, err = (path.read_text(encoding="utf-8") for path in streams.values())
    return subprocess.CompletedProcess([*map(str, arguments)], int(code), out, err)


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
