"""Experiments that name public traces, and what happens where one is not there."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import pytest

from command import SHARED, files_below, kvsim
from experiment_files import HEAD, PAGED, errors_of, ids, load, write
from sim.config import runspec
from sim.runs.outcome import run_and_write
from sim.runs.runner import RunOptions

AZURE = (
    "TIMESTAMP,ContextTokens,GeneratedTokens\n"
    "2023-11-16 18:15:46.6805900,37,4\n"
    "2023-11-16 18:15:50.9951690,39,10\n"
)
ONE = "workload: {kind: trace, name: %s}\n"
SWEPT = "workload: {kind: trace}\nsweep: {workload.name: [%s]}\n"


@pytest.fixture(autouse=True)
def shared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of traces with one of them, and an empty cache."""
    folder = tmp_path / "shared"
    copy = folder / "traces/azure/AzureLLMInferenceTrace_conv.csv"
    copy.parent.mkdir(parents=True)
    copy.write_text(AZURE)
    monkeypatch.setenv("KVSIM_SHARED", str(folder))
    monkeypatch.setenv("KVSIM_CACHE", str(tmp_path / "cache"))
    return folder


def test_a_trace_is_found_by_its_name_and_said_to_be_what_it_is(tmp_path: Path) -> None:
    experiment = load(tmp_path, HEAD + PAGED + ONE % "azure-conv-2023")
    assert "workload      2 requests; taken for azure: 2" in experiment.budget_lines()
    trace, *_ = experiment.runs()[0].build()
    assert trace.prompt_tokens.tolist() == [37, 39]


def test_a_file_needs_only_its_path(tmp_path: Path) -> None:
    (tmp_path / "conv.csv").write_text(AZURE)
    experiment = load(tmp_path, HEAD + PAGED + "workload: {kind: file, path: conv.csv}\n")
    assert "workload      2 requests; taken for azure: 2" in experiment.budget_lines()


def test_an_absent_trace_is_one_sentence(tmp_path: Path) -> None:
    assert errors_of(tmp_path, HEAD + PAGED + ONE % "mooncake-1000") == [
        f"x.yaml:5: workload.name: trace mooncake-1000: is not in the cache "
        f"{tmp_path}/cache/mooncake-1000, nor at {tmp_path}/shared/traces/mooncake/"
        "mooncake_trace_1000.jsonl; get it with: kvsim trace fetch mooncake-1000"
    ]


def test_a_name_that_is_unknown_is_refused(tmp_path: Path) -> None:
    (line,) = errors_of(tmp_path, HEAD + PAGED + SWEPT % "azure-conv-2023, azure")
    assert line.startswith("x.yaml:6: sweep.workload.name.1: \"azure\": 'azure' is unknown")


def test_an_absent_trace_of_a_sweep_is_a_skipped_row(tmp_path: Path) -> None:
    text = HEAD + PAGED + SWEPT % "azure-conv-2023, mooncake-1000" + "figures: [waste, timeline]\n"
    experiment = load(tmp_path, text)
    assert ids(experiment) == [
        "paged-name=azure-conv-2023-seed=0",
        "paged-name=mooncake-1000-seed=0",
    ]
    assert any("skipped: trace mooncake-1000" in line for line in experiment.budget_lines())
    outcome = run_and_write(experiment, tmp_path / "out", RunOptions())
    assert outcome.problems == []
    here, absent = outcome.rows
    assert here["status"] == "finished"
    assert absent["status"] == "skipped"
    assert absent["reason"].endswith("get it with: kvsim trace fetch mooncake-1000")
    table = pd.read_csv(tmp_path / "out/summary.csv")
    assert table["status"].tolist() == ["finished", "skipped"]
    assert table["reason"][1] == absent["reason"]


def test_a_trace_that_went_away_leaves_its_earlier_run_out(tmp_path: Path, shared: Path) -> None:
    copy = shared / "traces/mooncake/mooncake_trace_1000.jsonl"
    copy.parent.mkdir()
    copy.write_text('{"timestamp": 0, "input_length": 9, "output_length": 5, "hash_ids": [0]}\n')
    text = HEAD + PAGED + SWEPT % "azure-conv-2023, mooncake-1000" + "figures: [timeline]\n"
    both = run_and_write(load(tmp_path, text), tmp_path / "out", RunOptions())
    assert [row["status"] for row in both.rows] == ["finished", "finished"]
    copy.unlink()
    runspec._load_trace.cache_clear()  # as in another process
    one = run_and_write(load(tmp_path, text), tmp_path / "out", RunOptions())
    assert [row["status"] for row in one.rows] == ["finished", "skipped"]
    assert one.problems == []


def test_a_finished_run_waits_until_its_trace_is_back(tmp_path: Path, shared: Path) -> None:
    """Twice skipped, it is as it was, not made again; the store is without it meanwhile."""
    copy = shared / "traces/mooncake/mooncake_trace_1000.jsonl"
    copy.parent.mkdir()
    trace = '{"timestamp": 0, "input_length": 9, "output_length": 5, "hash_ids": [0]}\n'
    text = HEAD + PAGED + SWEPT % "azure-conv-2023, mooncake-1000"
    seen = []
    for content in (trace, None, None, trace, None, trace.replace("9", "8")):
        copy.unlink(missing_ok=True)
        if content is not None:
            copy.write_text(content)
        runspec._load_trace.cache_clear()  # as in another process
        run_and_write(load(tmp_path, text), tmp_path / "out", RunOptions())
        seen.append(files_below(tmp_path / "out"))
        num_tables = len(list((tmp_path / "out").glob("runs/*/requests.parquet")))
        assert num_tables == (1 if content is None else 2)
    first, *_, again, _, other = seen
    assert first == again  # manifests have the wall time: nothing was made twice
    run = "runs/paged-name=mooncake-1000-seed=0/requests.parquet"
    assert other[run] != first[run]


def test_an_experiment_none_of_whose_traces_is_there_is_refused(tmp_path: Path) -> None:
    lines = errors_of(tmp_path, HEAD + PAGED + SWEPT % "mooncake-1000, ragpulse")
    assert [line.partition(": trace")[0] for line in lines] == [
        'x.yaml:6: sweep.workload.name.0: "mooncake-1000"',
        'x.yaml:6: sweep.workload.name.1: "ragpulse"',
    ]


def test_the_command_line_shows_skipped_runs_and_ends_well(tmp_path: Path) -> None:
    path = write(tmp_path, HEAD + PAGED + SWEPT % "azure-conv-2023, mooncake-1000")
    done = kvsim("run", path, "--out", tmp_path / "out", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "warning: skipped: trace mooncake-1000: is not in the cache" in done.stdout
    as_json = kvsim("run", path, "--out", tmp_path / "out", "--json", cwd=tmp_path)
    assert [run["status"] for run in json.loads(as_json.stdout)["runs"]] == ["finished", "skipped"]


def test_the_command_line_lists_and_refuses(tmp_path: Path) -> None:
    listed = kvsim("trace", "fetch", cwd=tmp_path)
    assert listed.returncode == 0
    assert "azure-conv-2023" in listed.stdout
    assert "CC-BY-4.0" in listed.stdout
    refused = kvsim("trace", "fetch", "ragpulse", cwd=tmp_path)
    assert refused.returncode == 2
    assert refused.stderr.startswith("trace ragpulse: cannot be fetched: ")
    nowhere = kvsim("trace", "fetch", "mooncake-1000", "--from", "http://127.0.0.1:9", cwd=tmp_path)
    assert nowhere.returncode == 2
    assert "cannot be reached" in nowhere.stderr
    assert nowhere.stderr.count("\n") == 1


@pytest.mark.skipif(not (SHARED / "traces").is_dir(), reason="no public traces")
def test_the_shared_traces_are_found_by_their_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KVSIM_SHARED", str(SHARED))
    text = HEAD + PAGED + "workload: {kind: trace, limit: 10}\n"
    experiment = load(
        tmp_path, text + "sweep: {workload.name: [azure-conv-2023, apex-lmsys, llmservingsim-300]}"
    )
    assert [spec.skip for spec in experiment.runs()] == ["", "", ""]


def test_a_file_that_cannot_be_read_is_an_error_also_in_a_sweep(tmp_path: Path) -> None:
    """A named trace may be absent from this machine; a path or a bad row can be put right."""
    (tmp_path / "conv.csv").write_text(AZURE)
    (tmp_path / "bad.csv").write_text(AZURE + "2023-11-16 18:15:51.0000000,many,10\n")
    text = HEAD + PAGED + "workload: {kind: file}\nsweep: {workload.path: [conv.csv, %s]}\n"
    (absent,) = errors_of(tmp_path, text % "absent.csv")
    assert absent.startswith('x.yaml:6: sweep.workload.path.1: "absent.csv": ')
    (bad,) = errors_of(tmp_path, text % "bad.csv")
    assert "bad.csv: line 4: ContextTokens is 'many'" in bad
    assert bad.endswith('(with workload.path "bad.csv")')
