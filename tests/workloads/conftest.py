"""Shared data, and files to read."""

from __future__ import annotations

import gzip
import os
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from trace_files import COMPANION_FILES

ROOT = Path(__file__).parents[2]
PACK = {".gz": gzip.compress, ".zst": lambda data: pa.compress(data, codec="zstd", asbytes=True)}


@pytest.fixture(scope="session")
def traces() -> Path:
    """The folder of public traces; without it the test is skipped."""
    folder = Path(os.environ.get("KVSIM_SHARED", ROOT.parent / "shared")) / "traces"
    if not folder.is_dir():
        pytest.skip(f"no public traces at {folder}; set KVSIM_SHARED")
    return folder


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., str]:
    """Write text or bytes to a file of this name, packed if it ends in .gz or .zst; its path."""

    def write_file(name: str, content: str | bytes) -> str:
        data = content if isinstance(content, bytes) else content.encode()
        path = tmp_path / name
        path.write_bytes(PACK.get(path.suffix, bytes)(data))
        return str(path)

    return write_file


@pytest.fixture
def companions(write: Callable[..., str]) -> Path:
    """The folder of written files, with what some examples of formats need beside them."""
    for name, content in COMPANION_FILES.items():
        folder = Path(write(name, content)).parent
    return folder
