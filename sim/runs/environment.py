"""What runs are made with: versions, the commit of the checkout, the machine."""

from __future__ import annotations

import importlib.metadata
import platform
import subprocess
import sys
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

PACKAGES = ("simpy", "numpy", "numba", "pandas", "pyarrow")


def environment() -> dict[str, Any]:
    """As a manifest has it."""
    versions = {name: importlib.metadata.version(name) for name in PACKAGES}
    return {
        "python": sys.version.split()[0],
        "machine": f"{platform.system()} {platform.machine()}",
        "versions": versions,
        "commit": _commit(),
    }


@cache
def _commit() -> str | None:
    """The checkout's commit, with + if it has changes; None outside of a checkout."""
    root = Path(__file__).parents[2]
    if not (root / ".git").exists():
        return None
    try:
        head = _git(root, ["rev-parse", "HEAD"])
        changes = _git(root, ["status", "--porcelain", "--", "sim", "workloads"])
    except (OSError, subprocess.CalledProcessError):
        return None
    return head + ("+" if changes else "")


def _git(root: Path, arguments: Sequence[str]) -> str:
    done = subprocess.run(
        ["git", *arguments], cwd=root, capture_output=True, text=True, check=True, timeout=10
    )
    return done.stdout.strip()
