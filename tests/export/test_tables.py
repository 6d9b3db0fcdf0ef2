"""All tables of an experiment in one folder."""

from __future__ import annotations

import errno
import shutil
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.csv as pc
import pyarrow.parquet as pq
import pytest

from sim.cli import main
from sim.export import tables as export_tables
from sim.export.meanings import COLUMNS, ROWS
from sim.export.meanings import column as column_of
from sim.recording.tables import COLUMNS as RECORDED
from sim.results import tables
from sim.results.files import ResultsError
from sim.stored import open_folder

TABLES = ("block_events", "iterations", "phases", "requests", "table_events", "timeline")


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_every_table_is_one_file_with_all_rows_of_all_runs(
    recorded: Path, tmp_path: Path, suffix: str
) -> None:
    assert main(["export", str(recorded), f"--{suffix}", str(tmp_path)]) == 0
    read = pd.read_csv if suffix == "csv" else pd.read_parquet
    names = {path.name for path in tmp_path.iterdir()}
    assert names == {f"{name}.{suffix}" for name in (*TABLES, "summary")} | {"columns.csv"}
    for name in TABLES:
        table = read(tmp_path / f"{name}.{suffix}")
        assert table.columns[0] == "run"
        for run in open_folder(recorded).made:
            own = table[table["run"] == run].drop(columns="run").reset_index(drop=True)
            told = pd.read_parquet(recorded / "runs" / run / f"{name}.parquet")
            told = told.drop(columns="run", errors="ignore")
            for column in told.select_dtypes("category"):
                told[column] = told[column].astype(object).replace("", None)
                own[column] = own[column].astype(object).replace("", None)
            pd.testing.assert_frame_equal(
                own.where(own.notna(), None),
                told.where(told.notna(), None),
                check_dtype=False,
            )


@pytest.fixture(scope="module")
def exported(fleet: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two replicas, as CSV and as Parquet."""
    folder = tmp_path_factory.mktemp("tables")
    assert main(["export", str(fleet), "--csv", str(folder), "--parquet", str(folder)]) == 0
    return folder


def test_every_column_has_its_row_with_unit_and_meaning(exported: Path) -> None:
    columns = pd.read_csv(exported / "columns.csv", keep_default_na=False)
    for path in exported.glob("*.parquet"):
        own = columns[columns["table"] == path.stem]
        assert own["column"].tolist() == pq.read_schema(path).names
    assert columns[columns["meaning"] == ""].to_dict("records") == []
    seconds = columns[columns["column"].str.contains(r"(?<!_req)(?<!_tokens)_s(?:_|$)")]
    assert set(seconds["unit"]) == {"s", "s/token"}
    for ending, unit in (("_slots", "slots"), ("_blocks", "blocks"), ("_bytes", "bytes")):
        own = columns[columns["column"].str.endswith(ending)]
        assert set(own["unit"]) == {unit}


def test_columns_are_described_that_are_there_and_no_others() -> None:
    told = {name: list(columns) for name, columns in COLUMNS.items()}
    written = {name: list(columns) for name, columns in RECORDED.items()}
    written["requests"] = list(tables.REQUEST_COLUMNS)
    written["timeline"] = list(tables.TIMELINE_COLUMNS)
    written["blocks"] = list(tables.BLOCK_COLUMNS)
    assert told == written
    assert set(ROWS) == set(COLUMNS)


def test_points_say_of_each_statistic_what_it_is_of() -> None:
    unit, meaning = column_of("points", "ttft_s_p50_low")
    assert unit == "s"
    assert meaning.startswith("time to first token of finished requests")
    assert meaning.endswith("lower end of the 95 % interval between seeds")
    assert column_of("summary", "ttft_s_p50_low") == ("", "")
    assert column_of("points", "num_seeds").unit == "runs"


def test_csv_and_parquet_say_the_same_and_counts_stay_whole(exported: Path) -> None:
    for path in exported.glob("*.parquet"):
        table = pq.read_table(path)
        schema = {field.name: field.type for field in table.schema}
        assert {str(kind) for kind in schema.values()} <= {"string", "int64", "double"}
        for name, kind in schema.items():
            if path.stem != "timeline" and name.startswith("num_") and "_mean" not in name:
                assert kind == pa.int64() or name.endswith("_sd"), (path.stem, name)
        assert schema.get("reason", pa.string()) == pa.string()
        options = pc.ConvertOptions(column_types=schema, strings_can_be_null=True)
        read = pc.read_csv(path.with_suffix(".csv"), convert_options=options)
        for name in table.column_names:
            assert read[name].to_pylist() == [
                None if cell == "" else cell for cell in table[name].to_pylist()
            ]


def test_what_users_read_tables_with_gives_the_same_types(exported: Path) -> None:
    duckdb, polars = pytest.importorskip("duckdb"), pytest.importorskip("polars")
    for name in TABLES:
        csv, parquet = exported / f"{name}.csv", exported / f"{name}.parquet"
        kinds = [
            [(row[0], row[1]) for row in duckdb.sql(f"describe from '{path}'").fetchall()]
            for path in (csv, parquet)
        ]
        assert kinds[0] == kinds[1]
        read = [polars.read_csv(csv), polars.read_parquet(parquet)]
        assert read[0].schema == read[1].schema
        assert read[0].fill_null("").equals(read[1].fill_null(""))


def test_an_export_that_fails_changes_nothing(
    fleet: Path, exported: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = Path(shutil.copytree(exported, tmp_path / "tables"))
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    source = open_folder(fleet)
    write, written = export_tables._write, []

    def until_full(*arguments: Any) -> Any:
        written.append(write(*arguments))
        if len(written) == 3:
            raise OSError(errno.ENOSPC, "No space left on device")
        return written[-1]

    monkeypatch.setattr(export_tables, "_write", until_full)
    with pytest.raises(ResultsError, match=r"iterations.csv: cannot be written: No space left"):
        export_tables.write_tables(folder, source, ".csv")
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


def test_tables_of_an_earlier_export_do_not_stay_beside_others(
    recorded: Path, unrecorded: Path, tmp_path: Path
) -> None:
    (tmp_path / "phases.txt").write_text("mine")
    for results in (recorded, unrecorded):
        assert main(["export", str(results), "--csv", str(tmp_path)]) == 0
    names = {path.name for path in tmp_path.iterdir()}
    tables_left = {"summary.csv", "requests.csv", "timeline.csv", "columns.csv"}
    assert names == {*tables_left, "phases.txt"}


@pytest.mark.parametrize("place", ["", "runs/paged_cow-seed=0"])
def test_a_folder_of_results_is_not_written_over(
    recorded: Path, place: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["export", str(recorded), "--csv", str(recorded / place)]) == 2
    assert "holds results, whose tables would be written over" in capsys.readouterr().err
