"""Any file of a folder of results may be damaged: whoever reads it says one sentence, or is right.

Permissions are not tried: who runs the tests may be allowed everything.
"""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pandas as pd
import pytest
from damages import ANY, HARMLESS, Damage, damages_of

import sim
from command import SMALL, files_below
from experiment_files import load
from sim.cli import main
from sim.report import write_report
from sim.results.files import ResultsError
from sim.runs.outcome import run_and_write
from sim.runs.runner import RunOptions

PAGED = "runs/paged-seed=0"
WASTE = "figures: [waste]"
SEEDS = (
    SMALL.partition("workload:")[0]
    + """\
workload:
  kind: synthetic
  num_requests: 9
  arrivals: {kind: constant, rate: 9}
  prompt_tokens: {kind: uniform, low: 5, high: 20}
  output_tokens: 5
allocator: {kind: paged}
seeds: 2
"""
)
# a small experiment, and one with what else a folder may have
KINDS = {
    "single": SMALL.replace("  - {kind: contiguous, reservation: max}\n", ""),
    "seeds": SEEDS,
    "fleet": SMALL.replace(WASTE, "replicas: {count: 2, router: {kind: round_robin}}"),
    "recorded": SMALL.replace(WASTE, "record: blocks"),
    "logged": SMALL.replace(WASTE, "figures: [block_tables]"),
    "skipped": SMALL.replace(WASTE, "sweep: {allocator.block_size: [16, 256]}"),
    "truncated": SMALL.replace("max_model_len: 64", "max_model_len: 32"),
}
# the files that are damaged: of each kind those that no other kind has, or not so
FILES = {
    "single": ("experiment.json", "summary.csv", "runs/keys.json", f"{PAGED}/manifest.json"),
    "seeds": ("points.csv",),
    "fleet": (f"{PAGED}/replicas.csv",),
    "recorded": (f"{PAGED}/block_events.parquet",),
    "logged": (f"{PAGED}/blocks.parquet",),
    "skipped": ("runs/keys.json",),
    "truncated": (f"{PAGED}/requests.parquet",),
}
Capture = pytest.CaptureFixture[str]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of each kind, without figures; do not write there."""
    root = tmp_path_factory.mktemp("made")
    for kind, text in KINDS.items():
        run_and_write(load(root, text), root / kind, RunOptions(), draws=False)
    return root


@pytest.fixture
def copy(made: Path, tmp_path: Path) -> Callable[[str], Path]:
    def fresh(kind: str) -> Path:
        """A whole folder of a kind, to damage, in the place of the one before."""
        shutil.rmtree(tmp_path / kind, ignore_errors=True)
        return Path(shutil.copytree(made / kind, tmp_path / kind))

    return fresh


def library(folder: Path) -> None:
    """All that sim.read gives, but for figures."""
    found = sim.read(folder)
    assert found.problems == []
    tables = (found.requests, found.timeline, found.blocks, found.replicas)
    for read in (*(partial(table, 0) for table in tables), lambda: found.points):
        try:
            assert len(read())
        except ResultsError as error:
            assert_a_sentence(f"{error}\n")


def assert_a_sentence(text: str) -> None:
    assert text.count("\n") == 1, text
    assert "Traceback" not in text
    assert 20 < len(text) < 700


COMMANDS = (
    ("report", "{folder}", "-o", "{out}/x.html"),
    ("compare", "{folder}", "{whole}"),
    ("export", "{folder}", "--parquet", "{out}"),
    ("export", "{folder}", "--perfetto", "{out}/x.json"),
)


def chosen(kind: str, path: Path) -> dict[str, Damage]:
    """What any file may suffer is tried on one file of each suffix."""
    damages = damages_of(path)
    if kind in {"single", "recorded"}:
        return damages
    return {what: damage for what, damage in damages.items() if what not in ANY}


@pytest.mark.parametrize("kind", KINDS)
def test_a_reader_of_a_damaged_folder_says_one_sentence_or_is_right(
    kind: str, copy: Callable[[str], Path], made: Path, tmp_path: Path, capsys: Capture
) -> None:
    """Commands take turns: all of them read through sim.stored, as the library does."""
    turns = itertools.cycle(COMMANDS)
    for name in FILES[kind]:
        for what, damage in chosen(kind, made / kind / name).items():
            folder, command = copy(kind), next(turns)
            damage(folder / name)
            places = {"folder": folder, "out": tmp_path, "whole": made / "single"}
            try:
                code = main([part.format(**places) for part in command])
                said = capsys.readouterr().err
                assert code == 0 or (code == 2 and said)
                if code == 2:
                    assert_a_sentence(said)
                library(folder)
            except ResultsError as error:
                assert_a_sentence(f"{error}\n")
            except Exception as error:
                raise AssertionError(f"{command[0]}, {name}: {what}") from error


@pytest.mark.parametrize("name", ["experiment.json", "summary.csv", "runs/keys.json"])
def test_nothing_is_drawn_from_a_damaged_folder(
    name: str, copy: Callable[[str], Path], capsys: Capture
) -> None:
    for what in ("missing", "truncated", "not UTF-8", "a folder", "a loop of links"):
        folder = copy("single")
        ANY[what](folder / name)
        assert main(["plot", str(folder)]) == 2, what
        assert_a_sentence(capsys.readouterr().err)
        assert not (folder / "figures").exists()


@pytest.mark.parametrize("name", ["experiment.json", "summary.csv", "runs/keys.json"])
@pytest.mark.parametrize("what", HARMLESS)
def test_what_an_editor_adds_changes_nothing(
    what: str, name: str, copy: Callable[[str], Path], tmp_path: Path
) -> None:
    folder, pages = copy("single"), (tmp_path / "before.html", tmp_path / "after.html")
    write_report(folder, pages[0])
    HARMLESS[what](folder / name)
    write_report(folder, pages[1])
    assert pages[0].read_bytes() == pages[1].read_bytes()


def test_a_summary_that_was_sorted_is_read_in_the_order_of_the_runs(
    copy: Callable[[str], Path], tmp_path: Path
) -> None:
    folder = copy("skipped")
    summary = sim.read(folder).summary
    head, *rows = (folder / "summary.csv").read_text().splitlines(keepends=True)
    (folder / "summary.csv").write_text("".join([head, *reversed(rows)]))
    pd.testing.assert_frame_equal(sim.read(folder).summary, summary)
    assert main(["plot", str(folder), "--figure", "waste"]) == 0
    assert main(["export", str(folder), "--csv", str(tmp_path / "csv")]) == 0
    for changed in (rows[:1], [*rows, rows[0]], [rows[0], rows[0]]):  # fewer, more, one twice
        (folder / "summary.csv").write_text("".join([head, *changed]))
        with pytest.raises(ResultsError, match="has not the runs of"):
            len(sim.read(folder).summary)


def test_without_the_tables_of_runs_a_figure_of_the_summary_is_drawn_and_others_say_why(
    copy: Callable[[str], Path], capsys: Capture
) -> None:
    """As results are committed."""
    folder = copy("single")
    assert main(["plot", str(folder)]) == 0
    waste = files_below(folder / "figures")
    shutil.rmtree(folder / "runs")
    shutil.rmtree(folder / "figures")
    capsys.readouterr()
    assert main(["plot", str(folder), "--figure", "waste", "--figure", "timeline"]) == 1
    assert files_below(folder / "figures") == waste
    said = capsys.readouterr().err
    assert said.startswith("figure timeline: ")
    assert said.endswith("; the tables of runs are not here: run the experiment again\n")


@pytest.mark.parametrize("name", ["manifest.json", "requests.parquet"])
def test_a_run_with_a_damaged_file_is_made_again(
    name: str, made: Path, copy: Callable[[str], Path], tmp_path: Path
) -> None:
    """Or one sentence, where a folder stands in a file's place."""
    experiment = load(tmp_path, KINDS["single"])
    for what, damage in ANY.items():
        folder = copy("single")
        damage(folder / PAGED / name)
        if what == "a folder":
            with pytest.raises(ResultsError, match=f"{name}: cannot be removed"):
                run_and_write(experiment, folder, RunOptions(), draws=False)
            continue
        run_and_write(experiment, folder, RunOptions(), draws=False)
        now, before = files_below(folder), files_below(made / "single")
        differ = {name for name in before if now.get(name) != before[name]}
        # which have the wall time, and where the experiment was loaded from
        assert differ <= {f"{PAGED}/manifest.json", "experiment.json"}, what
