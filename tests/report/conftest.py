"""A small experiment, run once for the tests that only read its results."""

from __future__ import annotations

import shutil
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path

import pytest

from command import SMALL
from sim.cli import main


@pytest.fixture(scope="session")
def small_results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """results/small; do not write there."""
    folder = tmp_path_factory.mktemp("report")
    text = SMALL.replace("figures: [waste]", "figures: [waste]\nreport: true\n")
    (folder / "small.yaml").write_text(text)
    with redirect_stdout(StringIO()):
        assert main(["run", str(folder / "small.yaml"), "--out", str(folder / "results")]) == 0
    return folder / "results" / "small"


@pytest.fixture
def small(small_results: Path, tmp_path: Path) -> Path:
    """A copy of it, to break."""
    return Path(shutil.copytree(small_results, tmp_path / "results" / "small"))
