"""A page stays under its size, and says what that leaves out."""

from __future__ import annotations

import csv
import json
from dataclasses import replace
from pathlib import Path

import pytest

from command import ROOT
from pages import all_of, assert_well_made, read_page, visible_text
from sim.report import page, write_claims_report, write_report
from sim.report.limits import LADDER
from sim.results.files import ResultsError


def multiplied(folder: Path, times: int) -> int:
    """Let the summary have many times its rows; how many it has then."""
    path = folder / "summary.csv"
    with path.open(newline="") as file:
        head, *rows = csv.reader(file)
    many = [[row[0], f"{row[1]}-{number}", *row[2:]] for number in range(times) for row in rows]
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([head, *many])
    facts = folder / "experiment.json"
    runs = [row[1] for row in many]
    facts.write_text(json.dumps({**json.loads(facts.read_text()), "runs": runs}))
    return len(many)


def test_a_page_of_very_many_runs_says_where_the_others_are(
    small: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    num_rows = multiplied(small, 600)
    monkeypatch.setattr(page, "LADDER", ((replace(LADDER[0][0], rows=50), ()),))
    shown = visible_text(read_page(write_report(small).path))
    assert f"{num_rows - 50:,} more runs are in summary.csv." in shown
    assert f"The first 50 of {num_rows:,} rows." in shown


def test_a_page_that_would_be_too_large_leaves_out_columns_then_rows(
    small: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    num_rows = multiplied(small, 100)
    monkeypatch.setattr(page, "MAX_BYTES", 110_000)
    written = write_report(small)
    assert written.path.stat().st_size < 110_000
    root = read_page(written.path)
    assert_well_made(root)
    shown = visible_text(root)
    assert written.left_out
    for sentence in written.left_out:
        assert sentence in shown
        assert sentence in written.line()
    num_shown = len(all_of(all_of(root, "tbody")[0], "tr"))
    assert f"{num_rows - num_shown:,} more runs are in summary.csv." in shown


def test_every_step_of_the_ladder_makes_a_smaller_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = ROOT / "results" / "block_size_forces"
    sizes = []
    for step in LADDER:
        monkeypatch.setattr(page, "LADDER", (step,))
        written = write_report(folder, tmp_path / "x.html")
        assert_well_made(read_page(written.path))
        assert written.left_out == step[1]
        sizes.append(written.num_bytes)
    assert sizes == sorted(set(sizes), reverse=True)


def test_a_figure_too_large_as_lines_is_one_of_dots(
    small: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    limits, _ = LADDER[0]
    size = (small / "figures" / "waste.png").stat().st_size * 4 // 3 + 1000
    path = small / "figures" / "waste.svg"
    path.write_text(path.read_text().replace("</svg>", "<path d='M 0 0'/>" * size + "</svg>"))
    monkeypatch.setattr(page, "LADDER", ((replace(limits, svg_bytes=size), ()),))
    root = read_page(write_report(small).path)
    assert_well_made(root)
    assert len(all_of(root, "img")) == 1
    assert "As dots, not lines: its SVG takes" in visible_text(root)


def test_a_page_that_cannot_be_small_enough_is_one_sentence(
    small: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(page, "MAX_BYTES", 1000)
    with pytest.raises(ResultsError, match="its page would be larger than 1 kB"):
        write_report(small)
    with pytest.raises(ResultsError, match="its page would be larger than 1 kB"):
        write_claims_report(ROOT / "results" / "claims")
    assert not list(small.glob("*.tmp"))
