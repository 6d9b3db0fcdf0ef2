"""The command line as a user meets it: one process a command, real files, real exit codes."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import pandas as pd
import pytest

from command import files_below, kvsim, runs


def test_run_prints_a_table_and_the_paths_of_the_files(small: Path) -> None:
    done = kvsim("run", small, cwd=small.parent)
    assert done.returncode == 0, done.stderr
    folder = small.parent / "results" / "small"
    assert "token" in done.stdout
    assert "<!-- small: " in (folder / "figures" / "waste.svg").read_text()  # its title
    for name in ("summary.csv", "figures/waste.png", "figures/waste.svg", "figures/waste.csv"):
        assert (folder / name).exists()
        assert name in done.stdout


def test_json_is_one_object_with_the_rows_of_summary_csv(small: Path) -> None:
    found = runs(kvsim("run", small, "--json", cwd=small.parent))
    table = pd.read_csv(small.parent / "results" / "small" / "summary.csv")
    assert list(table.columns[:4]) == ["experiment", "run", "seed", "status"]
    assert list(table["allocator"]) == list(found)
    for _, row in table.iterrows():
        terms = [
            f"{t}_frac"
            for t in ("token_states", "reserved", "internal", "external", "cached", "free")
        ]
        assert sum(row[terms]) == pytest.approx(1)
        assert row["num_finished"] == 3
        assert found[row["allocator"]]["makespan_s"] == pytest.approx(row["makespan_s"])


def test_sleeping_single_steps_and_checked_runs_write_the_same_bytes(small: Path) -> None:
    folders = []
    for number, flags in enumerate([[], ["--single-step"], ["--check"], ["-j", "2"]]):
        out = small.parent / str(number)
        done = kvsim("run", small, "--out", out, *flags, cwd=small.parent)
        assert done.returncode == 0, done.stderr
        folders.append({k: v for k, v in files_below(out).items() if "manifest" not in k})
    assert folders[0] == folders[1] == folders[2] == folders[3]


def test_a_finished_run_is_not_run_again_unless_its_files_changed(small: Path) -> None:
    def age() -> dict[str, int]:
        folder = small.parent / "results" / "small" / "runs"
        return {path.parent.name: path.stat().st_mtime_ns for path in folder.rglob("requests.*")}

    kvsim("run", small, cwd=small.parent)
    first = age()
    kvsim("run", small, cwd=small.parent)
    assert age() == first
    damaged = next((small.parent / "results" / "small" / "runs").glob("paged*")) / "summary.json"
    damaged.write_text("{}")
    kvsim("run", small, cwd=small.parent)
    second = age()
    assert [name for name in first if first[name] != second[name]] == [damaged.parent.name]
    kvsim("run", small, "--force", cwd=small.parent)
    assert all(age()[name] != first[name] for name in first)


def test_plot_draws_the_same_figures_again_from_files_alone(small: Path) -> None:
    kvsim("run", small, cwd=small.parent)
    folder = small.parent / "results" / "small"
    before = files_below(folder / "figures")
    for path in (folder / "figures").iterdir():
        path.unlink()
    small.unlink()
    done = kvsim("plot", folder, cwd=small.parent)
    assert done.returncode == 0, done.stderr
    assert files_below(folder / "figures") == before


def test_a_figure_that_cannot_be_drawn_keeps_the_results_and_exits_with_1(small: Path) -> None:
    """Case 30 of the behaviours real systems got wrong."""
    done = kvsim("run", small, "--set", "figures=[metric_vs_sweep]", cwd=small.parent)
    assert done.returncode == 1
    assert done.stderr.startswith("figure metric_vs_sweep: ")
    assert len(done.stderr.splitlines()) == 1
    assert len(pd.read_csv(small.parent / "results" / "small" / "summary.csv")) == 2


def test_a_request_larger_than_the_pool_is_rejected_and_the_rest_proceeds(small: Path) -> None:
    done = kvsim(
        "run",
        small,
        "--set",
        "max_model_len=4000",
        "--set",
        "workload.requests=[{prompt_tokens: 1002, output_tokens: 4},"
        "{prompt_tokens: 20, output_tokens: 4}]",
        "--set",
        "allocator={kind: paged}",
        "--json",
        cwd=small.parent,
    )
    row = runs(done)["paged"]
    assert (row["num_rejected"], row["num_finished"]) == (1, 1)
    folder = small.parent / "results" / "small" / "runs" / row["run"]
    requests = pd.read_parquet(folder / "requests.parquet")
    assert requests["reason"][0] == "needs 63 blocks of 16 slots, the pool has 10"


def test_a_plug_in_that_raises_is_a_row_with_its_error_and_the_other_runs_go_on(
    small: Path,
) -> None:
    (small.parent / "mine.py").write_text(
        "from sim.allocators.unbounded import Unbounded\n"
        "class Bad(Unbounded):\n"
        "    kind = 'bad'\n"
        "    def append(self, rows, counts):\n"
        "        raise RuntimeError('no more of this')\n"
    )
    allocators = "allocator=[{kind: 'mine:Bad'}, {kind: paged}]"
    done = kvsim("run", small, "--set", allocators, "--json", cwd=small.parent)
    assert done.returncode == 1
    bad, paged = json.loads(done.stdout)["runs"]
    assert (bad["status"], paged["status"]) == ("error", "finished")
    assert bad["reason"] == "RuntimeError: no more of this (mine.py, line 5)"
    assert done.stderr.splitlines() == [f"{bad['run']}: error: {bad['reason']}"]
    table = pd.read_csv(small.parent / "results" / "small" / "summary.csv")
    assert list(table["num_finished"].isna()) == [True, False]


def test_an_edited_plug_in_is_run_again(small: Path) -> None:
    plug_in = small.parent / "mine.py"
    text = (
        "from sim.allocators.paged import Paged\n"
        "class Mine(Paged):\n"
        "    kind = 'mine'\n"
        "    def __init__(self):\n"
        "        super().__init__(block_size=SIZE)\n"
    )
    reserved = []
    for size in ("4", "16"):
        plug_in.write_text(text.replace("SIZE", size))
        done = kvsim(
            "run", small, "--set", "allocator={kind: 'mine:Mine'}", "--json", cwd=small.parent
        )
        reserved.append(json.loads(done.stdout)["runs"][0]["num_blocks"])
    assert reserved == [40, 10]


def test_plot_refuses_runs_that_are_missing_or_were_made_anew(small: Path) -> None:
    kvsim("run", small, cwd=small.parent)
    folder = small.parent / "results" / "small"
    run = next((folder / "runs").glob("paged*"))
    (run / "manifest.json").unlink()
    done = kvsim("plot", folder, cwd=small.parent)
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1
    assert run.name in done.stderr
    (folder / "experiment.json").write_text("[]")
    assert (
        "is no JSON object; accepted: a folder that kvsim run"
        in kvsim("plot", folder, cwd=small.parent).stderr
    )


def test_check_says_what_would_run_and_writes_nothing(small: Path) -> None:
    done = kvsim("check", small, cwd=small.parent)
    assert done.returncode == 0
    assert "2 runs" in done.stdout
    assert [path.name for path in small.parent.iterdir()] == ["small.yaml"]


def test_list_names_every_table_and_an_unknown_one_is_refused(tmp_path: Path) -> None:
    done = kvsim("list", cwd=tmp_path)
    for name in ("contiguous", "paged", "unbounded", "fcfs", "linear", "sharegpt", "opt-13b"):
        assert name in done.stdout
    assert kvsim("list", "colours", cwd=tmp_path).returncode == 2


def test_help_shows_examples_without_loading_the_simulator(tmp_path: Path) -> None:
    code = "import sys, sim.cli; sim.cli.build_parser(); print(sorted(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    for heavy in ("numpy", "numba", "pandas", "matplotlib", "pydantic"):
        assert f"'{heavy}'" not in done.stdout
    start = time.perf_counter()
    shown = kvsim("--help", cwd=tmp_path)
    assert "examples:" in shown.stdout
    assert time.perf_counter() - start < 5  # 0.1 s on an idle machine
