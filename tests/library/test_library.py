"""The library runs what the command line runs, says the same sentences, and leaves nothing."""

from __future__ import annotations

import gc
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import pandas as pd
import pytest
import yaml

import sim
from command import ROOT, SMALL, files_below, kvsim
from sim.allocators.paged import Paged

BASE: dict[str, Any] = yaml.safe_load(SMALL)
INLINE = BASE["workload"]


class Mine(Paged):
    """Paged memory under another name."""

    kind = "mine"


def test_a_mapping_and_a_file_give_the_folder_that_the_command_writes(tmp_path: Path) -> None:
    (tmp_path / "small.yaml").write_text(SMALL)
    assert kvsim("run", "small.yaml", cwd=tmp_path).returncode == 0
    sim.run(BASE, tmp_path / "mapping")
    sim.run(tmp_path / "small.yaml", tmp_path / "file")
    folders = [tmp_path / "results" / "small", tmp_path / "mapping", tmp_path / "file"]
    whole, mapping, file = (files_below(folder) for folder in folders)
    for other in (mapping, file):
        assert whole.keys() == other.keys()
        differ = {Path(name).name for name in whole if whole[name] != other[name]}
        assert differ <= {"manifest.json", "experiment.json"}, "wall times, and which file it was"


def test_tables_are_the_same_in_memory_and_read_back(tmp_path: Path) -> None:
    made, written = sim.run(BASE), sim.run(BASE, tmp_path / "out")
    read = sim.read(tmp_path / "out")
    for other in (written, read):
        pd.testing.assert_frame_equal(made.summary, other.summary)
        pd.testing.assert_frame_equal(made.requests(1), other.requests(made.runs[1]))
        pd.testing.assert_frame_equal(made.timeline(0), other.timeline(0))
    assert made.config == read.config
    assert made.cost_source == read.cost_source == "linear: assumed coefficients"
    assert made.problems == []


def test_without_a_folder_nothing_stays_and_nothing_is_printed(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    results = sim.run(BASE, jobs=2)
    folder = results.folder
    assert folder.exists()
    assert len(results.figure("waste").points) == 2
    assert not folder.is_relative_to(tmp_path)
    del results
    gc.collect()
    assert not folder.exists()
    assert list(tmp_path.iterdir()) == []
    assert capfd.readouterr() == ("", "")


def test_a_run_that_is_interrupted_leaves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*arguments: object, **named: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("sim.library.experiments.run_and_write", interrupted)
    before = set(Path(tempfile.gettempdir()).glob("kvsim-*"))
    with pytest.raises(KeyboardInterrupt):
        sim.run(BASE)
    assert set(Path(tempfile.gettempdir()).glob("kvsim-*")) <= before


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (
            {"allocator": {"kind": "pagd"}},
            "allocator.kind: unknown kind 'pagd', did you mean",
        ),
        (
            {"allocator": {"kind": "paged", "block_size": 0}},
            "allocator.block_size: must be at",
        ),
        ({"max_model_len": "64"}, "max_model_len: must be a whole number, got '64'"),
        ({"workload": {**INLINE, "kind": object()}}, "workload.kind: <object object at"),
        ({"seeds": float("inf")}, "seeds: inf is no finite number of at most"),
        ({"slo": {3: 1.0}}, "slo: a key must be text, got 3"),
        ({"kv_cache": None, "model": "no/such.json"}, "model: no/such.json: No such file"),
        ({"sweep": {"allocator.block_sze": [1, 2]}}, "sweep.allocator.block_sze: no allocator"),
    ],
)
def test_a_wrong_key_of_a_mapping_is_named(change: dict[str, Any], sentence: str) -> None:
    with pytest.raises(sim.ConfigError) as caught:
        sim.load({**BASE, **change})
    assert caught.value.lines[0].startswith(f"experiment: {sentence}"), caught.value.lines


def test_paths_of_a_mapping_start_at_the_current_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "t.csv").write_text("arrival_s,prompt_tokens,output_tokens\n0,7,2\n")
    monkeypatch.chdir(tmp_path)
    for path in ("t.csv", Path("t.csv"), tmp_path / "t.csv"):
        results = sim.run({**BASE, "workload": {"kind": "table", "path": path}})
        assert results.requests(0)["prompt_tokens"].tolist() == [7]


def test_overrides_are_dotted_keys_and_wrong_ones_are_named() -> None:
    experiment = sim.load(BASE, {"allocator.1.block_size": np.int64(8), "seeds": (3,)})
    assert [spec.config["allocator"].get("block_size") for spec in experiment.runs()] == [None, 8]
    with pytest.raises(sim.ConfigError, match=r"^overrides: allocator is a list of 2; accepted"):
        sim.load(BASE, {"allocator.5.block_size": 8})
    with pytest.raises(sim.ConfigError, match=r"^overrides: must be a key like a.b"):
        sim.load(BASE, {"allocator.": 8})
    with pytest.raises(sim.ConfigError, match="is loaded already"):
        sim.load(experiment, {"seeds": 3})


def test_the_mapping_of_the_caller_stays_as_it_is() -> None:
    before = yaml.safe_load(SMALL)
    sim.load(BASE, {"allocator.1.block_size": 8})
    assert before == BASE


def test_a_class_stands_where_a_file_has_its_place() -> None:
    results = sim.run({**BASE, "allocator": {"kind": Mine, "block_size": 8}})
    assert results.summary["allocator"].tolist() == [f"{__name__}:Mine"]

    class Local(Paged):
        kind = "local"

    with pytest.raises(sim.ConfigError, match=r"allocator.kind: .*Local cannot be imported"):
        sim.run({**BASE, "allocator": {"kind": Local}})


def test_a_class_typed_into_a_session_runs_there_and_in_no_other_process(tmp_path: Path) -> None:
    """As in a notebook: there is no file that it could be read from."""
    code = f"""
import sim
from sim.allocators.paged import Paged
class Typed(Paged):
    kind = "typed"
base = {BASE!r}
base["allocator"] = {{"kind": Typed}}
print(sim.run(base).summary["num_finished"].tolist())
try:
    sim.run(base, jobs=2)
except sim.ConfigError as error:
    print(error)
"""
    done = subprocess.run([sys.executable], input=code, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == [
        "[3]",
        "jobs: __main__:Typed is known to this session alone; accepted: 1, or a class in a module",
    ]


def test_a_sweep_is_one_row_a_point_and_says_why_one_has_nothing() -> None:
    axes = {"allocator.block_size": [8, 512], "max_model_len": [64, 128]}
    points = sim.sweep(BASE, axes)
    paged = points[points["allocator"] == "paged"]
    assert paged["allocator.block_size"].tolist() == [8, 8, 512, 512]
    assert paged["num_seeds"].tolist() == [1, 1, 0, 0]
    assert paged["reason"].iloc[0] == ""
    assert "block_size: a block of 512 slots is larger than the pool" in paged["reason"].iloc[2]
    assert len(points) == 4 + 2
    with pytest.raises(sim.ConfigError, match=r"^sweep: sweep.nothing: cannot be swept"):
        sim.sweep(BASE, {"nothing": [1]})
    with pytest.raises(sim.ConfigError, match="jobs: must be 1 to 1024, got 0"):
        sim.sweep(BASE, {"max_model_len": [64]}, jobs=0)


def test_a_run_that_fails_is_a_row_and_a_problem() -> None:
    stuck = {**BASE, "allocator": {"kind": "paged"}, "scheduler": {"kind": "vllm_v1"}}
    stuck["scheduler"] |= {"wait_forever": True}
    stuck["workload"] = {"kind": "inline", "requests": [{"prompt_tokens": 60, "output_tokens": 2}]}
    stuck["kv_cache"] = {"num_slots": 32}
    results = sim.run(stuck)
    (problem,) = results.problems
    assert problem.startswith(f"{results.runs[0]}: stalled: 1 requests wait")


def test_asking_for_what_is_not_there_says_what_is(tmp_path: Path) -> None:
    results = sim.run(BASE, tmp_path)
    for run in (None, 7, "nobody"):
        with pytest.raises(sim.ResultsError, match=r"no run .*; accepted: contiguous"):
            results.requests(run)
    with pytest.raises(
        sim.ResultsError, match=r"has no blocks; accepted: one of requests, timeline"
    ):
        results.blocks(0)
    with pytest.raises(sim.ResultsError, match="of one seed the summary has all"):
        results.points  # noqa: B018
    with pytest.raises(sim.ResultsError, match=r"^unknown figure 'pie'; accepted: waste, "):
        results.figure("pie")
    committed = sim.read(ROOT / "results" / "worked_example")
    with pytest.raises(sim.ResultsError, match="run the experiment to have its tables"):
        committed.timeline(0)
    (tmp_path / "runs" / results.runs[0] / "manifest.json").unlink()
    with pytest.raises(sim.ResultsError, match="is missing, or made anew"):
        sim.read(tmp_path)


def test_a_picture_is_shown_and_saved(tmp_path: Path) -> None:
    picture = sim.read(ROOT / "results" / "fig02_memory_waste").figure("waste")
    content, metadata = picture._repr_png_()
    assert content.startswith(b"\x89PNG")
    assert metadata == {"alt": "fig02_memory_waste: where the KV slots are (14 points)"}
    picture.save(tmp_path / "waste.svg")
    assert (tmp_path / "waste.svg").read_text().startswith("<?xml")


def test_parts_made_by_hand_run_as_the_experiment_does() -> None:
    requests = INLINE["requests"]
    columns = [[r.get("arrival_s", 0) * 1e9 for r in requests]]
    columns += [[r[name] for r in requests] for name in ("prompt_tokens", "output_tokens")]
    trace = sim.Trace(*(np.array(column, np.float64).astype(np.int64) for column in columns))
    for allocator in (Paged(16), {"kind": "paged", "block_size": 16}):
        done = sim.simulate(trace, allocator, 160, max_model_len=64, check=True)
        expected = sim.run(BASE)
        pd.testing.assert_frame_equal(done.requests, expected.requests(1).drop(columns="run"))
        assert done.summary["num_finished"] == 3
        assert sum(done.timeline[["token_states", "free"]].iloc[0]) > 0
    with pytest.raises(sim.ConfigError, match=r"^allocator: prefix needs prefix identity of the"):
        sim.simulate(trace, {"kind": "prefix"}, 160)
    with pytest.raises(sim.ConfigError, match=r"^scheduler.kind: unknown kind 'fcfz'"):
        sim.simulate(trace, Paged(), 160, scheduler={"kind": "fcfz"})


def test_a_pool_by_hand_forks_and_copies_on_write() -> None:
    pool = sim.Pool({"kind": "paged_cow", "block_size": 4}, num_slots=32)
    first = pool.enter(prompt=7, output=5)
    (second,) = pool.fork(first)
    assert pool.block_table(first) == pool.block_table(second)
    assert pool.table()["ref_count"].tolist() == [2, 2, 2, 2]
    assert pool.write(first)
    assert pool.block_table(first)[0] == pool.block_table(second)[0]
    assert pool.block_table(first)[1] != pool.block_table(second)[1]
    assert pool.write(second)
    pool.check()
    assert len(pool.table()["block"].unique()) == 3
    with pytest.raises(ValueError, match="unbounded cannot fork"):
        sim.Pool({"kind": "unbounded"}, 32).fork(0)
    with pytest.raises(sim.ConfigError, match=r"allocator.block_size: must be at least 1"):
        sim.Pool({"kind": "paged", "block_size": 0}, 32)


def test_a_trace_and_its_options(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("arrival_s,prompt_tokens,output_tokens\n0,7,2\n1,8,3\n")
    assert len(sim.read_trace(path)) == 2
    assert len(sim.read_trace(str(path), kind="table", limit=1)) == 1
    for options in ({"limt": 1}, {"kind": "tabel"}, {"limit": 0}, {"kind": "table", "limt": 1}):
        with pytest.raises(sim.ConfigError):
            sim.read_trace(path, **options)
    with pytest.raises(sim.TraceError, match="no such file"):
        sim.read_trace(tmp_path / "absent.csv")
    with pytest.raises(sim.TraceError, match="cannot be written"):
        sim.write_trace(sim.read_trace(path), tmp_path / "no" / "folder.parquet")


def test_tables_without_a_run() -> None:
    with pytest.raises(sim.ConfigError, match="unknown table 'alocators', did you mean allocators"):
        sim.available("alocators")
    assert set(sim.available()["table"]) >= {"allocators", "engines", "models"}
    with pytest.raises(sim.ConfigError, match=r"blok_size: unknown key, did you mean block_size"):
        sim.capacity_table("llama-3-8b", "h100", blok_size=3)
    with pytest.raises(sim.ConfigError, match=r"^model: unknown model"):
        sim.capacity_table("no-such-model", "h100")
    table = sim.capacity_table(["llama-3-8b", "llama-3-70b"], "h100", [1, 4], block_size=32)
    assert table["reason"].astype(bool).tolist() == [False, False, True, False]


@pytest.mark.parametrize(
    ("act", "sentence"),
    [
        (lambda: sim.run(5), "experiment: 5 is no path; accepted: a mapping, or the path of a"),
        (lambda: sim.run(b"x.yaml"), "experiment: b'x.yaml' is no path"),
        (lambda: sim.run(BASE, 5), "folder: 5 is no path"),
        (lambda: sim.run(BASE, "a\0b"), r"folder: 'a\\x00b' is no path"),
        (lambda: sim.run(BASE, "a" * 300), "cannot be read: File name too long"),
        (lambda: sim.read(None), "folder: null is no path"),
        (lambda: sim.load(BASE, "x"), "overrides: 'x' is no mapping; accepted: dotted keys"),
        (lambda: sim.load(BASE, []), r"overrides: \[\] is no mapping"),
        (
            lambda: sim.sweep(BASE, None),
            "axes: null is no mapping; accepted: dotted",
        ),
        (
            lambda: sim.load({**BASE, "description": "\ud800"}),
            "description: .* has half a",
        ),
    ],
)
def test_what_cannot_be_read_as_it_is_meant_is_one_sentence(act: Any, sentence: str) -> None:
    with pytest.raises((sim.ConfigError, sim.ResultsError), match=sentence):
        act()


def test_numbers_and_lists_of_numpy_and_pandas_are_numbers_and_lists() -> None:
    axis = {"allocator.block_size": pd.Series([8, 16])}
    one = {**BASE, "kv_cache": {"num_slots": np.array(512)}, "allocator": {"kind": "paged"}}
    config = sim.load({**one, "sweep": axis}).config
    assert config["kv_cache"]["num_slots"] == 512
    assert config["sweep"] == {"allocator.block_size": [8, 16]}
    results = sim.run(BASE, jobs=np.int64(1))  # type: ignore[arg-type]
    assert len(results.requests(np.int64(0))) == len(results.requests(0))  # type: ignore[arg-type]


def test_no_more_processes_begin_than_there_are_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thousand jobs for two runs were a thousand processes, and the memory of the machine."""
    asked: list[int] = []
    real = joblib.Parallel

    def parallel(n_jobs: int, return_as: str) -> Any:
        asked.append(n_jobs)
        return real(1, return_as=return_as)

    monkeypatch.setattr(joblib, "Parallel", parallel)
    sim.run(BASE, jobs=1000)
    assert asked == [len(sim.load(BASE).runs())]


def test_a_figure_that_cannot_be_is_a_results_error(tmp_path: Path) -> None:
    results = sim.run(BASE)
    with pytest.raises(sim.ResultsError, match=r"^routing: needs an experiment with replicas$"):
        results.figure("routing")
    with pytest.raises(sim.ResultsError, match=r"unknown suffix; accepted: .png, .svg, .pdf"):
        results.figure("waste").save(tmp_path / "waste")
    with pytest.raises(sim.ResultsError, match="cannot be written: No such file"):
        results.figure("waste").save(tmp_path / "no" / "waste.png")


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"num_slots": 0}, "num_slots: must be a whole number from 1 to .*, got 0"),
        ({"num_slots": 1.5}, "num_slots: must be a whole number from 1 to .*, got 1.5"),
        ({"max_model_len": 0}, "max_model_len: must be a whole number from 1 to"),
        ({"max_tokens": -1}, "max_tokens: must be a whole number from 1 to"),  # ran for ever
        ({"max_tokens": "most"}, "max_tokens: got 'most'; accepted: column, output, max_model_len"),
        ({"seed": -1}, "seed: must be a whole number from 0 to .*, got -1"),
        ({"slo": {"ttft": 1}}, "slo: ttft: got 1; accepted: seconds above 0 for ttft_s"),
        ({"slo": {"ttft_s": float("nan")}}, "slo: ttft_s: got nan"),
        ({"trace": {}}, r"trace: {} is a dict; accepted: a Trace"),
    ],
)
def test_a_wrong_value_of_a_simulation_is_named(change: dict[str, Any], sentence: str) -> None:
    trace = sim.Trace(np.array([0]), np.array([25]), np.array([5]))
    values = {"trace": trace, "allocator": {"kind": "paged"}, "num_slots": 256, **change}
    with pytest.raises(sim.ConfigError, match=sentence):
        sim.simulate(**values)
