"""The reference pages, and the descriptions of metrics that they are made from."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

import pandas as pd
import pytest

from command import ROOT
from sim.cli import main
from sim.metrics.docs import METRICS, describe
from sim.reference import PAGES, page
from sim.reference.markdown import prose

FOLDER = ROOT / "docs" / "reference"
SUMMARIES = sorted((ROOT / "results").glob("*/summary.csv"))


@pytest.mark.parametrize("name", PAGES)
def test_a_reference_page_is_what_the_code_says(name: str) -> None:
    committed = (FOLDER / f"{name}.md").read_text(encoding="utf-8")
    assert committed == page(name), "run make docs-reference"


def test_there_is_no_reference_page_that_nothing_makes() -> None:
    assert {path.stem for path in FOLDER.iterdir()} == set(PAGES)


def test_the_command_writes_the_pages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["sim.reference", str(tmp_path)])
    runpy.run_module("sim.reference", run_name="__main__")
    assert len(capsys.readouterr().out.splitlines()) == len(PAGES)
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


def test_kvsim_list_metrics_shows_them(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list", "metrics"]) == 0
    shown = capsys.readouterr().out
    assert "num_hit_tokens / num_queried_tokens [share of tokens, 0 to 1]" in shown


def test_every_key_of_a_plug_in_and_of_a_trace_format_is_described() -> None:
    """A docstring names it, or the schema's common.py does: the last cell of no row is empty."""
    for name in ("plugins", "traces", "experiments"):
        rows = [line for line in page(name).splitlines() if line.startswith("| `")]
        assert len(rows) > 20
        assert [row for row in rows if row.endswith("|  |")] == []


def test_dashes_of_a_docstring_are_a_list() -> None:
    shown = prose("Accepted:\n- one, which\n  goes on\n- two_things\n\nNext.")
    assert shown == "Accepted:\n\n- one, which goes on\n- `two_things`\n\nNext."
