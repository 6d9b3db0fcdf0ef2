"""The sweep that is sent to clusters."""

from __future__ import annotations

from pathlib import Path

import pytest
from executed import SWEEP, TOLD


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "told.py").write_text(TOLD)
    (tmp_path / "swept.yaml").write_text(SWEEP)
    monkeypatch.setenv("TOLD", str(tmp_path / "told.txt"))
    return tmp_path
