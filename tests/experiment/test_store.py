"""What runs leave is one table, whichever they are; DuckDB, polars and pandas read the same."""

from __future__ import annotations

import os
import shutil
from glob import glob
from pathlib import Path

import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sim.config.experiment import load_experiment
from sim.results import tables
from sim.results.files import ResultsError, replacing
from sim.runs.outcome import draw_again, run_and_write, summary_table
from sim.runs.runner import RunOptions

ROOT = Path(__file__).parents[2]
PLUGIN = """\
from sim.allocators.paged import Paged
class FailsAtLast(Paged):
    def counters(self):
        raise ZeroDivisionError("nothing to count")
"""
# prompts of 256 and more are rejected, for reasons of their own; a block exceeds the pool
SWEEP = """
name: mine
kv_cache: {num_slots: 640}
max_model_len: 256
workload:
  kind: synthetic
  num_requests: 60
  arrivals: {kind: poisson, rate: 30}
  prompt_tokens: {kind: uniform, low: 1, high: 300}
  output_tokens: {kind: uniform, low: 1, high: 30}
allocator: [{kind: contiguous, reservation: max}, {kind: paged}, {kind: "fails_here:FailsAtLast"}]
sweep: {allocator.block_size: [16, 1024]}
seeds: 2
figures: [pool_map]
"""
# nobody is rejected, nothing is logged, and there are replicas
FLEET = """
name: fleet
kv_cache: {num_slots: 8192}
max_model_len: 1024
workload: {kind: sharegpt, num_requests: 50, arrivals: {kind: poisson, rate: 30}}
allocator: {kind: paged}
replicas: {count: 2, router: {kind: round_robin}}
"""
STATUSES = {"finished": 4, "error": 2, "skipped": 2}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Results of both experiments, in results/mine and results/fleet."""
    folder = tmp_path_factory.mktemp("store")
    (folder / "fails_here.py").write_text(PLUGIN)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(folder))
        for name, text in (("mine", SWEEP), ("fleet", FLEET)):
            (folder / f"{name}.yaml").write_text(text)
            experiment = load_experiment(folder / f"{name}.yaml")
            run_and_write(experiment, folder / "results" / name, RunOptions(), draws=False)
    return folder


def shown_lines() -> str:
    """The code that docs/results.md shows for the files."""
    text = (ROOT / "docs" / "results.md").read_text(encoding="utf-8")
    return text.partition("```python\n")[2].partition("```")[0]


def test_the_lines_that_docs_show_give_the_same_numbers(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    found: dict[str, object] = {}
    exec(shown_lines(), found)
    by_pandas = found["by_pandas"]
    by_duckdb, by_polars = found["by_duckdb"].df(), found["by_polars"].collect().to_pandas()
    assert by_pandas["run"].nunique() == STATUSES["finished"]
    assert len(by_pandas) == 60 * STATUSES["finished"]
    columns = ["request", "finish_s", "replica", "seed", "num_slots", "allocator", "num_hit_tokens"]
    one, *others = (
        table.assign(run=table["run"].astype(str))
        .sort_values(["run", "request"], ignore_index=True)[["run", *columns]]
        .assign(num_hit_tokens=lambda t: t["num_hit_tokens"].astype("Int64"))
        for table in (by_pandas, by_duckdb, by_polars)
    )
    for other in others:
        pd.testing.assert_frame_equal(one, other, check_dtype=False)


def test_the_requests_of_a_run_are_what_its_summary_says(folder: Path) -> None:
    where = folder / "results" / "mine"
    rows = duckdb.sql(f"""
        select run, any_value(s.num_finished), any_value(s.num_rejected), any_value(s.ttft_s_p99),
               count(*) filter (r.status = 'finished'), count(*) filter (r.status = 'rejected'),
               quantile_cont(first_token_s - arrival_s, 0.99) filter (r.status = 'finished'),
               count(distinct r.reason) filter (r.status = 'rejected'),
               count(*) filter (r.reason = '')
        from read_parquet('{where}/runs/*/requests.parquet', hive_partitioning = false) r
        join '{where}/summary.parquet' s using (run) group by run
    """).fetchall()
    assert len(rows) == STATUSES["finished"]
    for _, finished, rejected, p99, num_finished, num_rejected, its_p99, reasons, without in rows:
        assert (num_finished, num_rejected) == (finished, rejected)
        assert its_p99 == pytest.approx(p99, rel=1e-9)
        assert reasons > 3
        assert without == finished


@pytest.mark.parametrize("kind", ["requests", "timeline", "blocks"])
def test_all_runs_have_one_schema(folder: Path, kind: str) -> None:
    files = sorted((folder / "results").glob(f"*/runs/*/{kind}.parquet"))
    assert len(files) == (4 if kind == "blocks" else 5)
    schemas = [pq.read_schema(file) for file in files]
    expected = getattr(tables, kind.upper())
    for file, schema in zip(files, schemas, strict=True):
        assert schema.equals(expected, check_metadata=True), file
        runs = pd.read_parquet(file)["run"]
        assert runs.empty or runs.unique().tolist() == [file.parent.name]
    assert schemas[0].names[0] == "run"


def test_a_run_without_a_block_to_log_has_the_same_schema() -> None:
    from sim.recording.blocklog import COLUMNS

    empty = pd.DataFrame([], columns=list(COLUMNS)).astype(COLUMNS)
    assert tables.arrow_table(empty, tables.BLOCKS, "r").schema.equals(tables.BLOCKS)


def test_replica_is_0_without_replicas(folder: Path) -> None:
    def replicas(name: str) -> list[int]:
        files = glob(str(folder / "results" / name / "runs/*/requests.parquet"))
        return sorted(pd.read_parquet(files, partitioning=None)["replica"].unique().tolist())

    assert replicas("mine") == [0]
    assert replicas("fleet") == [0, 1]


def test_the_summary_has_the_types_that_its_numbers_have(folder: Path) -> None:
    path = folder / "results" / "mine" / "summary.parquet"
    schema, table = pq.read_schema(path), pd.read_parquet(path)
    assert table["status"].value_counts().to_dict() == STATUSES
    for name in ("num_requests", "num_finished", "seed", "num_hit_tokens", "allocator.block_size"):
        assert schema.field(name).type == pa.int64(), name
    for name in ("ttft_s_p50", "goodput_req_s", "hit_rate"):
        assert schema.field(name).type == pa.float64(), name
    for name in ("experiment", "status", "allocator", "reason"):
        assert schema.field(name).type == pa.string(), name
    as_csv = pd.read_csv(path.with_suffix(".csv"))
    assert table.columns.tolist() == as_csv.columns.tolist()
    for name in as_csv.select_dtypes("number"):
        pd.testing.assert_series_equal(table[name], as_csv[name], check_dtype=False)
    assert pl.read_parquet(path)["num_finished"].dtype == pl.Int64


def test_a_column_of_words_and_numbers_is_text_and_one_of_truths_is_none() -> None:
    rows = [
        {"run": "a", "engine.size": 8, "is_on": True, "rate": 1, "reason": None},
        {"run": "b", "engine.size": "auto", "is_on": None, "rate": 0.5, "reason": None},
        {"run": "c", "engine.size": None, "is_on": False, "rate": None, "reason": None},
    ]
    stored = tables.summary_to_arrow(summary_table(rows, list(rows[0])))
    assert stored.column("engine.size").to_pylist() == ["8", "auto", None]
    assert stored.column("is_on").to_pylist() == [True, None, False]
    assert stored.column("rate").to_pylist() == [1.0, 0.5, None]
    assert stored.schema.field("reason").type == pa.string()
    assert stored.schema.field("run").type == tables.TEXT


def test_a_run_that_is_skipped_leaves_no_tables_of_the_run_before(folder: Path) -> None:
    where = folder / "results" / "again"
    few = SWEEP.replace(', {kind: "fails_here:FailsAtLast"}', "").replace("seeds: 2\n", "")
    (folder / "again.yaml").write_text(few.replace("640", "2048").replace("name: mine", "name: a"))
    run_and_write(load_experiment(folder / "again.yaml"), where, RunOptions(), draws=False)
    run = "paged-block_size=1024-seed=0"
    left = {path.name for path in (where / "runs" / run).iterdir()}
    assert {"requests.parquet", "timeline.parquet", "manifest.json"} <= left
    (folder / "again.yaml").write_text(few.replace("name: mine", "name: a"))
    run_and_write(load_experiment(folder / "again.yaml"), where, RunOptions(), draws=False)
    assert not list((where / "runs" / run).glob("*.parquet"))
    assert not (where / "runs" / run / "manifest.json").exists()
    joined = duckdb.sql(
        f"from '{where}/summary.parquet' join read_parquet('{where}/runs/*/requests.parquet', "
        "hive_partitioning = false) using (run)"
    )
    assert len(joined.df()) == 2 * 60


def test_pieces_of_a_table_are_row_groups_of_one_file(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "pieces.yaml").write_text(
        SWEEP.replace("[16, 1024]", "[16]").replace("name: mine", "name: p")
    )
    experiment = load_experiment(folder / "pieces.yaml", ["allocator=[{kind: paged}]", "seeds=[0]"])
    whole, pieces = folder / "results" / "whole", folder / "results" / "pieces"
    run_and_write(experiment, whole, RunOptions(), draws=False)
    monkeypatch.setattr(tables, "PIECE", 7)
    run_and_write(experiment, pieces, RunOptions(), draws=False)
    run = os.path.join("runs", experiment.runs()[0].run_id, "requests.parquet")
    assert pq.read_metadata(pieces / run).num_row_groups == 9
    pd.testing.assert_frame_equal(pd.read_parquet(whole / run), pd.read_parquet(pieces / run))
    assert (whole / "summary.csv").read_bytes() == (pieces / "summary.csv").read_bytes()


def test_figures_are_drawn_from_files_without_the_columns_too(folder: Path) -> None:
    """As those of earlier releases are."""
    where, names = folder / "results" / "old", ["timeline", "requests", "pool_map"]
    shutil.copytree(folder / "results" / "mine", where)
    drawn, problems = draw_again(where, names)
    assert not problems
    before = {path.name: path.read_bytes() for path in drawn}
    (where / "summary.parquet").unlink()
    for path in where.glob("runs/*/*.parquet"):
        table = pd.read_parquet(path)
        table.drop(columns=["run", "replica"], errors="ignore").to_parquet(path)
    draw_again(where, names)
    assert {path.name: path.read_bytes() for path in drawn} == before


def test_a_file_never_takes_the_place_of_a_pipe_or_a_folder(tmp_path: Path) -> None:
    """Nor of a device: a file renamed to /dev/null would be its end for the whole machine."""
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    for name in ("pipe", "folder"):
        with pytest.raises(ResultsError, match="not a file"), replacing(tmp_path / name):
            pytest.fail("nothing is to be written")
    assert (tmp_path / "pipe").is_fifo()
    assert (tmp_path / "folder").is_dir()


def test_a_link_stays_a_link_and_what_it_leads_to_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "far").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "far" / "table.csv")
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    with replacing(tmp_path / "link") as temporary:
        temporary.write_text("new")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "far" / "table.csv").read_text() == "new"
    with pytest.raises(ResultsError, match="loop"), replacing(tmp_path / "loop"):
        pytest.fail("nothing is to be written")
