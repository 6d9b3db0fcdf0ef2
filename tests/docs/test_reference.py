"""The reference pages, and the descriptions of metrics that they are made from."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

from command import ROOT, kvsim
from sim.metric_docs import METRICS, describe
from sim.reference import PAGES, page

FOLDER = ROOT / "docs" / "reference"
SUMMARIES = sorted((ROOT / "results").glob("*/summary.csv"))


@pytest.mark.parametrize("name", PAGES)
def test_a_reference_page_is_what_the_code_says(name: str) -> None:
    committed = (FOLDER / f"{name}.md").read_text(encoding="utf-8")
    assert committed == page(name), "run make docs-reference"


def test_there_is_no_reference_page_that_nothing_makes() -> None:
    assert {path.stem for path in FOLDER.iterdir()} == set(PAGES)


def test_the_command_writes_the_pages(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "sim.reference", tmp_path],
        capture_output=True,
        text=True,
        check=True,
        cwd=ROOT,
        timeout=120,
    )
    assert len(done.stdout.splitlines()) == len(PAGES)
    metrics = (tmp_path / "metrics.md").read_text(encoding="utf-8")
    assert metrics == (FOLDER / "metrics.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("path", SUMMARIES, ids=lambda path: path.parent.name)
def test_every_column_of_a_committed_summary_is_described(path: Path) -> None:
    columns = pd.read_csv(path, nrows=0).columns
    assert [name for name in columns if describe(name) is None] == []


def test_no_description_is_of_a_column_that_nobody_writes() -> None:
    written = {name for path in SUMMARIES for name in pd.read_csv(path, nrows=0).columns}
    assert set(METRICS) - written == set()


def test_a_description_says_how_a_number_is_made() -> None:
    for name, metric in METRICS.items():
        assert metric.formula, name
        assert metric.source, name
        is_number = name.startswith("num_") or name.endswith(("_s", "_bytes", "_frac"))
        assert metric.unit or not is_number, name


def test_kvsim_list_metrics_shows_them(tmp_path: Path) -> None:
    done = kvsim("list", "metrics", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "num_hit_tokens / num_queried_tokens [share of tokens, 0 to 1]" in done.stdout
