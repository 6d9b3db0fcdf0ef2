"""The questions of docs/what_ifs.md: their experiments run, and their commands do what they say."""

from __future__ import annotations

import re
from pathlib import Path

import pandas as pd
import pytest

from command import ROOT
from doc_blocks import read_page
from sim.cli import main

PATH = ROOT / "docs" / "what_ifs.md"
PAGE = PATH.read_text(encoding="utf-8")
FILES = sorted((ROOT / "experiments" / "what_ifs").glob("*.yaml"))
SWEPT = [path for path in FILES if path.stem != "price"]
FEW = ["--set", "seeds=2", "--set", "workload.num_requests=20"]


def commands(name: str) -> list[list[str]]:
    """The commands of the page that name an experiment or its results."""
    split = [command.words[1:] for command in read_page(PATH).commands]
    places = {f"experiments/what_ifs/{name}.yaml", f"results/{name}"}
    found = [words for words in split if places & set(words)]
    return [list(words) for words in dict.fromkeys(map(tuple, found))]


@pytest.mark.parametrize("path", SWEPT, ids=lambda path: path.stem)
def test_an_experiment_runs_and_its_commands_find_their_rows(
    capsys, tmp_path: Path, monkeypatch, path: Path
) -> None:
    """In short: two seeds of twenty requests."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "experiments").symlink_to(ROOT / "experiments")
    run, *compared = commands(path.stem)
    assert run[0] == "run"
    assert compared
    assert main([*run, *FEW]) == 0
    summary = pd.read_csv(tmp_path / "results" / path.stem / "summary.csv")
    assert (summary["status"] == "finished").all()
    assert (summary["num_finished"] == summary["num_requests"]).all()
    capsys.readouterr()
    for words in compared:
        assert words[0] == "compare"
        assert main(words) == 0
        shown = capsys.readouterr().out
        assert f"B             results/{path.stem}, " in shown
        assert "pair" in shown  # of two seeds


def test_a_table_of_the_page_is_what_its_commands_print(
    capsys, tmp_path: Path, monkeypatch
) -> None:
    """The prefix cache's, complete: the lines that are shown are there, to the last digit."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "experiments").symlink_to(ROOT / "experiments")
    for words in commands("prefix_cache"):
        assert main(words) == 0
    printed = {" ".join(line.split()) for line in capsys.readouterr().out.splitlines()}
    section = PAGE.split("## … the prefix cache were off?")[1].split("```")[3]
    shown = {" ".join(line.split()) for line in section.strip().splitlines()}
    assert len(shown) == 4
    assert shown <= printed


def test_the_price_is_asked_of_capacity(capsys, monkeypatch) -> None:
    monkeypatch.chdir(ROOT)
    asked, other = commands("price")
    assert asked[0] == other[0] == "capacity"
    short = ["--requests", "20", "--seeds", "1", "--tolerance", "1", "--set", "max_model_len=2048"]
    assert main([*asked, *short]) in {0, 1}
    assert "per M tokens" in capsys.readouterr().out


def test_every_experiment_is_on_the_page_and_none_is_missing() -> None:
    named = set(re.findall(r"experiments/what_ifs/(\w+)\.yaml", PAGE))
    assert named == {path.stem for path in FILES}
