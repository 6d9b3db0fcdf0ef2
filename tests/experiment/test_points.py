"""points.csv: several seeds as one row, with their spread."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from experiment_files import BOTH, HEAD, SHAREGPT, load
from sim.metrics.points import SUFFIXES, bootstrap, points_table, spread
from sim.runs.outcome import run_and_write
from sim.runs.runner import RunOptions

SWEEP = "sweep: {allocator.block_size: [8, 16, 512]}\n"


def row(seed: int, status: str = "finished", **metrics: object) -> dict[str, object]:
    return {"run": f"r{seed}", "seed": seed, "status": status, "allocator": "paged", **metrics}


def test_several_seeds_give_one_row_a_point_beside_the_summary(tmp_path: Path) -> None:
    experiment = load(tmp_path, HEAD + SHAREGPT + BOTH + SWEEP + "seeds: 3\n")
    outcome = run_and_write(experiment, tmp_path / "out", RunOptions())
    written = [path.name for path in outcome.files]
    assert written == ["summary.csv", "summary.parquet", "points.csv"]
    runs, points = (pd.read_csv(tmp_path / f"out/{name}.csv") for name in ("summary", "points"))
    assert points["allocator"].tolist() == ["contiguous", "paged", "paged", "paged"]
    assert points["num_seeds"].tolist() == [3, 3, 3, 0]
    assert points["num_not_finished"].tolist() == [0, 0, 0, 1]
    own = runs[runs["allocator.block_size"] == 16]["throughput_req_s"]
    found = points.loc[2, [f"throughput_req_s{suffix}" for suffix in SUFFIXES]].astype(float)
    assert found.iloc[:2].tolist() == pytest.approx([own.mean(), own.std(ddof=1)])
    assert own.min() <= found.iloc[2] <= own.mean() <= found.iloc[3] <= own.max()
    assert points.loc[3].filter(like="throughput_req_s").isna().all()


def test_one_seed_has_no_points_and_leaves_none_of_an_earlier_run(tmp_path: Path) -> None:
    text = HEAD + SHAREGPT + BOTH
    run_and_write(load(tmp_path, text, "seeds=2"), tmp_path / "out", RunOptions())
    assert (tmp_path / "out/points.csv").exists()
    outcome = run_and_write(load(tmp_path, text), tmp_path / "out", RunOptions())
    assert [path.name for path in outcome.files] == ["summary.csv", "summary.parquet"]
    assert not (tmp_path / "out/points.csv").exists()


def test_the_same_runs_give_the_same_points(tmp_path: Path) -> None:
    experiment = load(tmp_path, HEAD + SHAREGPT + BOTH + "seeds: 3\n")
    texts = []
    for name in ("a", "b"):
        run_and_write(experiment, tmp_path / name, RunOptions())
        texts.append((tmp_path / name / "points.csv").read_bytes())
    assert texts[0] == texts[1]


def test_what_a_seed_lacks_is_left_out_and_failures_are_counted() -> None:
    rows = [row(0, x=1.0, y=None), row(1, x=3.0, y=5.0), row(2, "stalled", x=8.0, y=None)]
    rows += [row(3, "error", reason="no")]
    (point,) = points_table(rows, ["allocator"]).to_dict("records")
    assert (point["num_seeds"], point["num_not_finished"]) == (3, 2)
    assert (point["x"], point["y"]) == (4.0, 5.0)
    assert np.isnan([point["y_sd"], point["y_low"], point["y_high"]]).all()
    assert list(point) == ["allocator", "num_seeds", "num_not_finished"] + [
        name + suffix for name in ("x", "y") for suffix in SUFFIXES
    ]


@given(st.lists(st.floats(-1e6, 1e6), min_size=2, max_size=12))
def test_an_interval_holds_the_mean_and_lies_within_the_values(values: list[float]) -> None:
    mean, sd, low, high = spread(np.array(values)[:, None])[:, 0]
    slack = 1e-9 * max(map(abs, values)) + 1e-12
    assert mean == pytest.approx(np.mean(values), abs=slack)
    assert sd == pytest.approx(np.std(values, ddof=1), abs=slack)
    assert min(values) - slack <= low <= high <= max(values) + slack
    assert low - slack <= mean <= high + slack


def test_values_that_are_equal_have_an_interval_without_width() -> None:
    assert spread(np.full((5, 1), 0.1))[:, 0].tolist() == [0.1, pytest.approx(0), 0.1, 0.1]


@pytest.mark.parametrize(("num_seeds", "share"), [(3, 0.76), (5, 0.85), (10, 0.91)])
def test_the_interval_holds_the_true_mean_as_often_as_it_says(num_seeds: int, share: float) -> None:
    low, high = bootstrap(np.random.default_rng(3).normal(size=(num_seeds, 4000)))
    assert ((low <= 0) & (high >= 0)).mean() == pytest.approx(share, abs=0.02)
