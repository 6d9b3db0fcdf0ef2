"""What a worker does with an order, without a cluster around it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from command import SMALL, files_below
from experiment_files import write
from sim.config.experiment import load_experiment
from sim.executors import ExecutorError
from sim.executors.worker import Made, Order, carry_out
from sim.results.files import write_run
from sim.runs.runner import Due, RunOptions, RunSpec, Work, code_digest, execute, look_up


def due_in(folder: Path, *overrides: str, code: str = "") -> tuple[Due, Work]:
    experiment = load_experiment(write(folder, SMALL), ["allocator={kind: paged}", *overrides])
    (spec,) = experiment.runs()
    work = Work(folder / "out", code or code_digest(), RunOptions())
    due = look_up(spec, work)
    assert isinstance(due, Due)
    return due, work


def test_what_a_worker_sends_back_is_what_a_local_run_writes(tmp_path: Path) -> None:
    due, work = due_in(tmp_path)
    made = carry_out(Order(due.spec, due.key, work), due.trace)
    assert made.files is not None
    write_run(tmp_path / "sent", made.files)
    assert not work.folder.exists()

    assert execute(due.spec, work) == made.row
    here, sent = files_below(work.folder / "runs" / due.spec.run_id), files_below(tmp_path / "sent")
    del here["manifest.json"], sent["manifest.json"]
    assert here == sent
    assert not isinstance(look_up(due.spec, work), Due)


def test_files_of_an_older_run_do_not_stay_beside_those_of_the_new_one(tmp_path: Path) -> None:
    write_run(tmp_path / "run", {"replicas.csv": b"1", "manifest.json": b"{}"})
    write_run(tmp_path / "run", {"summary.json": b"2", "manifest.json": b"{}"})
    assert files_below(tmp_path / "run") == {"summary.json": b"2", "manifest.json": b"{}"}


def test_other_code_is_refused_and_both_are_named(tmp_path: Path) -> None:
    due, work = due_in(tmp_path, code="abc")
    with pytest.raises(ExecutorError, match=f"has kvsim code {code_digest()}, this machine abc; "):
        carry_out(Order(due.spec, due.key, work), due.trace)


def test_a_file_that_a_worker_lacks_is_named_in_the_row(tmp_path: Path) -> None:
    due, work = due_in(tmp_path)
    assert isinstance(due.spec, RunSpec)
    lacking = {"kind": "measured", "profile": "own.yaml"}
    spec = replace(due.spec, config={**due.spec.config, "cost": lacking}, folder="/elsewhere")
    row, files = carry_out(Order(spec, due.key, work), due.trace)
    assert (row["status"], files) == ("error", None)
    assert "/elsewhere/own.yaml: No such file or directory" in row["reason"]


def test_other_files_than_those_of_who_asks_are_a_row(tmp_path: Path) -> None:
    due, work = due_in(tmp_path)
    made = carry_out(Order(due.spec, "another key", work), due.trace)
    assert isinstance(made, Made)
    assert made.row["status"] == "error"
    assert "the plug-ins or the cost profile on worker" in made.row["reason"]
