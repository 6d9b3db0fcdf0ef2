"""Recorded tables that are damaged, or not ours: one sentence in the report, one from exports."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from command import SMALL
from experiment_files import load
from sim.export.perfetto import write_trace
from sim.export.source import open_results
from sim.export.tables import write_tables
from sim.outcome import run_and_write
from sim.recording.tables import NAMES
from sim.report import write_report
from sim.report.player import recordings
from sim.results import ResultsError
from sim.runner import RunOptions

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


def without_a_column(table: pd.DataFrame) -> pd.DataFrame:
    return table.drop(columns=[c for c in ("replica", "request") if c in table][:1])


def foreign(table: pd.DataFrame) -> pd.DataFrame:
    return pd.DataFrame({"a": [1, 2]})


def as_texts(table: pd.DataFrame) -> pd.DataFrame:
    return table.astype(str)


def with_gaps(table: pd.DataFrame) -> pd.DataFrame:
    numbers = table.select_dtypes("number").columns
    return table.assign(**{name: table[name].where(table.index > 0) for name in numbers})


def without_end(table: pd.DataFrame) -> pd.DataFrame:
    return table.assign(**{name: np.inf for name in table if name.endswith("_s")})


DAMAGES = [without_a_column, foreign, as_texts, with_gaps, without_end]


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("name", NAMES)
def test_a_damaged_recording_is_one_sentence_of_the_report(
    broken: Path, name: str, damage: Callable[[pd.DataFrame], pd.DataFrame]
) -> None:
    path = broken / PAGED / f"{name}.parquet"
    damage(pd.read_parquet(path)).to_parquet(path)
    with pytest.raises(ResultsError, match=AGAIN) as raised:
        recordings(broken)
    assert str(path) in str(raised.value)
    source = open_results(broken)
    with pytest.raises(ResultsError, match=AGAIN):
        source.table("paged-seed=0", name)


def test_the_page_of_a_damaged_recording_is_written_and_says_so(broken: Path) -> None:
    path = broken / PAGED / "iterations.parquet"
    foreign(pd.DataFrame()).to_parquet(path)
    text = write_report(broken).path.read_text(encoding="utf-8")
    assert "iterations.parquet: has no column replica; run the experiment again" in text
    assert "kvp-data" not in text


@pytest.mark.parametrize("value", ["x", "inf", "-3", "../.."])
@pytest.mark.parametrize("column", ["record_every", "record_block_size"])
def test_a_summary_whose_counts_are_none_is_one_sentence(
    broken: Path, column: str, value: str
) -> None:
    path = broken / "summary.csv"
    pd.read_csv(path).assign(**{column: value}).to_csv(path, index=False)
    with pytest.raises(ResultsError, match=f"{column} is no count"):
        recordings(broken)


@pytest.mark.parametrize("name", ["requests", "timeline"])
def test_a_trace_without_what_it_needs_is_one_sentence(broken: Path, name: str) -> None:
    path = broken / PAGED / f"{name}.parquet"
    foreign(pd.DataFrame()).to_parquet(path)
    source = open_results(broken)
    with pytest.raises(ResultsError, match=f"{name}.parquet: is not what kvsim run writes"):
        write_trace(broken / "trace.json", source, source.runs)
    assert not (broken / "trace.json").exists()


def test_a_trace_of_requests_that_are_not_there_is_one_sentence(broken: Path) -> None:
    path = broken / PAGED / "requests.parquet"
    pd.read_parquet(path).iloc[1:].to_parquet(path)
    source = open_results(broken)
    with pytest.raises(ResultsError, match=AGAIN):
        write_trace(broken / "trace.json", source, source.runs)


def test_tables_that_differ_in_kind_are_not_put_together(broken: Path) -> None:
    path = broken / PAGED / "timeline.parquet"
    as_texts(pd.read_parquet(path)).to_parquet(path)
    with pytest.raises(ResultsError, match="timeline: the runs' tables differ in kind"):
        write_tables(broken / "tables", open_results(broken), ".csv")


def test_a_label_shows_what_cannot_be_seen_and_is_not_endless(broken: Path) -> None:
    path = broken / "summary.csv"
    table = pd.read_csv(path)
    names = [f"a\u202eb\x07{'long' * 2500}", "b"]
    table.assign(**{"allocator.placement": names}).to_csv(path, index=False)
    label = recordings(broken)[0].label
    assert "a⟨U+202E⟩b⟨U+0007⟩long" in label
    assert len(label) <= 240


@pytest.mark.parametrize("value", [-7, 2**40])
@pytest.mark.parametrize("name", ["iterations", "block_events", "table_events"])
def test_slots_that_the_pool_has_not_are_one_sentence(broken: Path, name: str, value: int) -> None:
    path = broken / PAGED / f"{name}.parquet"
    table = pd.read_parquet(path)
    counts = [c for c in table if table[c].dtype.kind == "i" and c not in {"request", "replica"}]
    table.assign(**dict.fromkeys(counts, value)).to_parquet(path)
    with pytest.raises(ResultsError, match=f"{name}.parquet: leaves its pool"):
        recordings(broken)


def test_memory_without_a_limit_is_no_damage(tmp_path: Path) -> None:
    text = SMALL.replace("figures: [waste]", "record: blocks").replace(
        "- {kind: paged, block_size: 16}", "- {kind: unbounded}"
    )
    assert "unbounded" in text
    run_and_write(load(tmp_path, text), tmp_path / "results", RunOptions(), draws=False)
    assert len(recordings(tmp_path / "results")) == 2
