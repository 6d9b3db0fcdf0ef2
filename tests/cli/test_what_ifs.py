"""The questions of docs/what_ifs.md: their experiments run, and their commands do what they say."""

from __future__ import annotations

import re
from pathlib import Path

import pandas as pd
import pytest

from command import ROOT
from doc_blocks import FENCE, read_page
from sim.cli import main

PATH = ROOT / "docs" / "what_ifs.md"
PAGE = PATH.read_text(encoding="utf-8")
FILES = sorted((ROOT / "experiments" / "what_ifs").glob("*.yaml"))
SWEPT = [path for path in FILES if path.stem != "price"]
# the tables of these are made again, in about ten seconds; of the others, which take as long again,
# only that the commands run
COMPLETE = ["watermark", "max_num_seqs", "block_size", "prefix_cache", "fp8_kv", "more_gpus"]
COMPLETE += ["system_prompt"]
SHORT = [path for path in SWEPT if path.stem not in COMPLETE]
SECTIONS = re.split(r"(?m)^## … ", PAGE)[1:]
PAGE_COMMANDS = read_page(PATH).commands
FEW = ["--set", "seeds=2", "--set", "workload.num_requests=20"]


def commands(name: str) -> list[list[str]]:
    """The commands of the page that name an experiment or its results."""
    split = [command.words[1:] for command in PAGE_COMMANDS]
    places = {f"experiments/what_ifs/{name}.yaml", f"results/{name}"}
    found = [words for words in split if places & set(words)]
    return [list(words) for words in dict.fromkeys(map(tuple, found))]


@pytest.mark.parametrize("path", SHORT, ids=lambda path: path.stem)
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


@pytest.mark.parametrize("name", COMPLETE)
def test_the_tables_of_a_question_are_what_its_commands_print(
    capsys, tmp_path: Path, monkeypatch, name: str
) -> None:
    """Complete: each line that is shown is printed, to the last digit; widths are of all rows."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "experiments").symlink_to(ROOT / "experiments")
    section = next(part for part in SECTIONS if f"what_ifs/{name}.yaml" in part)
    for command in PAGE_COMMANDS:
        if command.line in section.replace("\\\n", " "):
            assert main(command.words[1:]) == 0
    printed = {" ".join(line.split()) for line in capsys.readouterr().out.splitlines()}
    tables = [block["body"] for block in FENCE.finditer(section) if not block["kind"]]
    shown = {" ".join(line.split()) for table in tables for line in table.splitlines()} - {""}
    assert len(shown) > 3
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
