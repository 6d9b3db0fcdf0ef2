"""All tables of an experiment in one folder."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from sim.cli import main
from sim.export.source import open_results

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
        for run in open_results(recorded).runs:
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


def test_every_column_has_its_row_with_unit_and_meaning(recorded: Path, tmp_path: Path) -> None:
    assert main(["export", str(recorded), "--csv", str(tmp_path)]) == 0
    columns = pd.read_csv(tmp_path / "columns.csv", keep_default_na=False)
    for path in tmp_path.glob("*.csv"):
        if path.stem != "columns":
            own = columns[columns["table"] == path.stem]
            assert own["column"].tolist() == pd.read_csv(path, nrows=1).columns.tolist()
    of_runs = columns[columns["table"].isin(TABLES)]
    assert of_runs[of_runs["meaning"] == ""].to_dict("records") == []
    seconds = columns[
        columns["column"].str.endswith("_s") & ~columns["column"].str.endswith("_req_s")
    ]
    assert set(seconds["unit"]) <= {"s", "tokens/s"}
