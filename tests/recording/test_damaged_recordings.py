"""Recorded tables that are damaged, or not ours: one sentence in the report, one from exports."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest

from command import SMALL
from experiment_files import load
from sim.export.tables import write_tables
from sim.recording.tables import NAMES
from sim.report import write_report
from sim.report.player import recordings
from sim.results.files import MANIFEST, ResultsError, file_digest
from sim.runs.outcome import run_and_write
from sim.runs.runner import RunOptions
from sim.stored import open_folder

PAGED = "runs/paged-seed=0"
AGAIN = "run the experiment again"


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("recorded")
    text = SMALL.replace("figures: [waste]", "record: blocks")
    run_and_write(load(folder, text), folder / "results", RunOptions(), draws=False)
    return folder / "results"


@pytest.fixture
def broken(results: Path, tmp_path: Path) -> Path:
    """A copy, to break."""
    return Path(shutil.copytree(results, tmp_path / "small"))


def rewrite(folder: Path, name: str, change: Callable[[pd.DataFrame], pd.DataFrame]) -> None:
    """Change a table of a run, and its manifest with it: as if the run had written that."""
    path = folder / PAGED / f"{name}.parquet"
    change(pd.read_parquet(path)).to_parquet(path)
    place = path.with_name(MANIFEST)
    manifest = json.loads(place.read_text())
    manifest["files"][path.name] = file_digest(path)
    place.write_text(json.dumps(manifest))


def as_texts(table: pd.DataFrame) -> pd.DataFrame:
    return table.astype(str)


def foreign(table: pd.DataFrame) -> pd.DataFrame:
    return pd.DataFrame({"a": [1, 2]})


def with_gaps(table: pd.DataFrame) -> pd.DataFrame:
    numbers = table.select_dtypes("number").columns
    return table.assign(**{name: table[name].where(table.index > 0) for name in numbers})


@pytest.mark.parametrize(
    ("name", "change"), [*zip(NAMES, (foreign, as_texts, with_gaps, foreign), strict=True)]
)
def test_tables_of_another_version_are_one_sentence(
    broken: Path, name: str, change: Callable[[pd.DataFrame], pd.DataFrame]
) -> None:
    rewrite(broken, name, change)
    with pytest.raises(ResultsError, match=rf"{name}.parquet: .*; {AGAIN}"):
        recordings(open_folder(broken))


def test_the_page_of_a_damaged_recording_is_written_and_says_so(broken: Path) -> None:
    (broken / PAGED / "iterations.parquet").write_bytes(b"")
    text = write_report(broken).path.read_text(encoding="utf-8")
    assert "iterations.parquet: is missing, or is not what the run wrote; run the" in text
    assert "kvp-data" not in text


def test_tables_that_differ_in_kind_are_not_put_together(broken: Path) -> None:
    rewrite(broken, "timeline", as_texts)
    with pytest.raises(ResultsError, match="timeline: the runs' tables differ in kind"):
        write_tables(broken / "tables", open_folder(broken), ".csv")


def test_a_label_shows_what_cannot_be_seen_and_is_not_endless(broken: Path) -> None:
    path = broken / "summary.csv"
    table = pd.read_csv(path)
    names = [f"a\u202eb\x07{'long' * 2500}", "b"]
    table.assign(**{"allocator.placement": names}).to_csv(path, index=False)
    label = recordings(open_folder(broken))[0].label
    assert "a⟨U+202E⟩b⟨U+0007⟩long" in label
    assert len(label) <= 240


@pytest.mark.parametrize("value", [-7, 2**40])
@pytest.mark.parametrize("name", ["iterations", "block_events", "table_events"])
def test_slots_that_the_pool_has_not_are_one_sentence(broken: Path, name: str, value: int) -> None:
    def change(table: pd.DataFrame) -> pd.DataFrame:
        others = {"request", "replica"}
        counts = [c for c in table if table[c].dtype.kind == "i" and c not in others]
        return table.assign(**dict.fromkeys(counts, value))

    rewrite(broken, name, change)
    with pytest.raises(ResultsError, match=f"{name}.parquet leaves its pool"):
        recordings(open_folder(broken))


def test_memory_without_a_limit_is_no_damage(tmp_path: Path) -> None:
    text = SMALL.replace("figures: [waste]", "record: blocks").replace(
        "- {kind: paged, block_size: 16}", "- {kind: unbounded}"
    )
    assert "unbounded" in text
    run_and_write(load(tmp_path, text), tmp_path / "results", RunOptions(), draws=False)
    assert len(recordings(open_folder(tmp_path / "results"))) == 2
