"""A small experiment to run."""

from __future__ import annotations

from pathlib import Path

import pytest

from command import SMALL


@pytest.fixture
def small(tmp_path: Path) -> Path:
    path = tmp_path / "small.yaml"
    path.write_text(SMALL)
    return path
