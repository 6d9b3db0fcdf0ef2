"""Traces for Perfetto: their format, and that they show what the tables say."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import pytest
from trace_events import Checked, read_trace

from sim.allocators.terms import TERM_NAMES
from sim.cli import main
from sim.export.perfetto import MAX_NAME, known_phases, label, write_trace
from sim.stored import open_folder

PAGED = "paged_cow-seed=0"


def trace_of(folder: Path, path: Path) -> Checked:
    stored = open_folder(folder)
    write_trace(path, stored, stored.made)
    return Checked(read_trace(path))


def test_a_recorded_run_shows_every_phase_iteration_and_term(
    recorded: Path, tmp_path: Path
) -> None:
    trace = trace_of(recorded, tmp_path / "all.json")
    for run in open_folder(recorded).made:
        folder = recorded / "runs" / run
        phases = pd.read_parquet(folder / "phases.parquet")
        iterations = pd.read_parquet(folder / "iterations.parquet")
        shown = [
            (args_of(own)["request"], name, start, end)
            for (process, _), own in trace.slices.items()
            if process == f"{run}: requests"
            for name, start, end, _ in own
        ]
        told = zip(
            phases["request"],
            phases["phase"],
            phases["start_s"] * 1e6,
            phases["end_s"] * 1e6,
            strict=True,
        )
        assert [row[:2] for row in sorted(shown)] == [row[:2] for row in sorted(told)]
        ran = iterations[iterations["num_running"] > 0]
        steps = trace.slices[f"{run}: engine", "iterations"]
        assert [start for _, start, _, _ in steps] == pytest.approx(ran["start_s"] * 1e6)
        assert [end for _, _, end, _ in steps] == pytest.approx(ran["end_s"] * 1e6)
        for term in TERM_NAMES:
            values = [value for _, value in trace.counters[f"{run}: engine", term]]
            assert set(values) == set(iterations[term])
        total = sum(trace.counters[f"{run}: engine", term][0][1] for term in TERM_NAMES)
        assert total == 96
    swapped = [own for own in trace.slices.values() if any(s[0] == "swapped" for s in own)]
    assert len(swapped) >= 1


def args_of(slices: list) -> dict:
    """The first slice of a track has the facts of its request."""
    return slices[0][3]


def test_a_run_without_records_shows_what_its_tables_know_and_says_what_is_missing(
    unrecorded: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "one.json.gz"
    assert main(["export", str(unrecorded), "--perfetto", str(path), "--run", PAGED]) == 0
    shown = capsys.readouterr()
    assert shown.out == f"{path}\n"
    assert shown.err.startswith(f"note: {PAGED}: phases and iterations were not recorded")
    data = read_trace(path)
    assert len(data["otherData"]["missing"]) == 1
    trace = Checked(data)
    requests = pd.read_parquet(unrecorded / "runs" / PAGED / "requests.parquet")
    own = trace.slices[f"{PAGED}: requests", "request 1"]
    assert [name for name, *_ in own][-2:] == ["prefill", "decode"]
    bounds = [own[-2][1], own[-2][2], own[-1][2]]
    row = requests.iloc[1]
    times = [row["first_scheduled_s"], row["first_token_s"], row["finish_s"]]
    assert bounds == pytest.approx([1e6 * time for time in times])
    assert trace.slices[f"{PAGED}: engine", "iterations"] == []
    assert trace.counters[f"{PAGED}: averages", "token_states"]


def test_without_a_file_there_is_one_for_each_run_and_the_same_results_are_the_same_bytes(
    recorded: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["export", str(recorded), "--perfetto"]) == 0
    paths = [Path(line) for line in capsys.readouterr().out.splitlines()]
    runs = open_folder(recorded).made
    assert paths == [recorded / "perfetto" / f"{run}.json.gz" for run in runs]
    before = [path.read_bytes() for path in paths]
    assert main(["export", str(recorded), "--perfetto"]) == 0
    assert [path.read_bytes() for path in paths] == before
    for path in paths:
        Checked(read_trace(path))


@pytest.mark.parametrize(
    "name",
    [
        "<script>alert(1)</script>",
        "a\x00b\x1b[31m",
        "x" * 5000,
        "\u202eabc\u202c",
        'a"b\\c',
        "ש\nلا",
    ],
)
def test_hostile_names_stay_text(name: str) -> None:
    shown = label(name)
    assert shown.isprintable()
    assert len(shown) <= MAX_NAME
    assert json.loads(json.dumps(shown)) == shown
    if name.isprintable() and len(name) <= MAX_NAME:
        assert shown == name


def test_requests_that_never_ran_or_never_ended_are_shown_as_far_as_they_came() -> None:
    nan = float("nan")
    requests = pd.DataFrame(
        {
            "request": [0, 1, 2, 3],
            "arrival_s": [0.0, 1.0, 2.0, 3.0],
            "first_scheduled_s": [0.0, 1.5, nan, nan],
            "first_token_s": [0.5, nan, nan, nan],
            "finish_s": [2.0, nan, 2.5, nan],
        }
    )
    phases = known_phases(requests, end_s=9.0)
    rows = phases[["request", "phase", "start_s", "end_s"]].itertuples(index=False, name=None)
    assert list(rows) == [
        (0, "prefill", 0.0, 0.5),
        (0, "decode", 0.5, 2.0),
        (1, "queued", 1.0, 1.5),
        (1, "prefill", 1.5, 9.0),
        (2, "queued", 2.0, 2.5),
        (3, "queued", 3.0, 9.0),
    ]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ([], "says not what to write; accepted: --perfetto, --csv, --parquet"),
        (["--perfetto", "--run", "nobody"], "has no finished run 'nobody'; accepted: contiguous"),
    ],
)
def test_what_cannot_be_exported_is_one_sentence(
    recorded: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], sentence: str
) -> None:
    assert main(["export", str(recorded), *arguments]) == 2
    assert sentence in capsys.readouterr().err


def test_a_folder_without_results_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["export", str(tmp_path), "--csv", str(tmp_path)]) == 2
    assert "accepted: a folder that kvsim run has written" in capsys.readouterr().err
