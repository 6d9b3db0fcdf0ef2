"""`report: true`, `kvsim run` and `kvsim report`."""

from __future__ import annotations

from pathlib import Path

import pytest

from command import SMALL
from experiment_files import GOOD, errors_of
from pages import read_page, visible_text
from sim.cli import main


@pytest.fixture
def experiment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """small.yaml in the current folder."""
    monkeypatch.chdir(tmp_path)
    path = Path("small.yaml")
    path.write_text(SMALL.replace("figures: [waste]", "figures: []"))
    return path


def run(*options: str) -> int:
    return main(["run", "small.yaml", *options])


def test_an_experiment_may_ask_for_its_page(
    experiment: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run() == 0
    page = Path("results/small/report.html")
    assert not page.exists()
    assert run("--set", "report=true", "--set", "description=Why?") == 0
    assert f"\n{page}\n" in capsys.readouterr().out
    shown = visible_text(read_page(page))
    assert "kvsim run small.yaml --set report=true --set 'description=Why?'" in shown
    assert "Why?" in shown


def test_a_page_that_is_there_is_made_again_with_the_results(experiment: Path) -> None:
    assert run() == 0
    assert main(["report", "results/small"]) == 0
    page = Path("results/small/report.html")
    assert "paged-seed=0" in visible_text(read_page(page))
    assert run("--set", "allocator.1.block_size=32", "--set", "kv_cache.num_slots=320") == 0
    assert "kv_cache      320 slots, as given" in visible_text(read_page(page))


def test_a_page_that_cannot_be_written_is_a_problem_of_the_run(
    experiment: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run() == 0
    Path("results/small/report.html").mkdir()
    assert run("--set", "report=true") == 1
    assert "report: results/small/report.html: is a folder" in capsys.readouterr().err


def test_a_page_goes_where_it_is_told_to(
    experiment: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run() == 0
    capsys.readouterr()
    assert main(["report", "results/small", "-o", "pages/a.html"]) == 0
    assert capsys.readouterr().out.startswith("pages/a.html (")
    assert Path("pages/a.html").exists()
    assert not Path("results/small/report.html").exists()


def test_whether_there_is_a_report_is_a_truth_value(tmp_path: Path) -> None:
    (line,) = errors_of(tmp_path, GOOD + "report: page\n")
    assert line.startswith("x.yaml:9: report: must be true or false")
