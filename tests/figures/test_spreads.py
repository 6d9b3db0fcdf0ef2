"""Every figure of means shows how far seeds are apart, and says so."""

from __future__ import annotations

import numpy as np
import pytest
from matplotlib.container import ErrorbarContainer

from figure_data import footer, for_figure, make_results, sweep_rows
from sim.figures import FIGURES
from sim.figures.base import Drawing

OF_ONE_SEED = {"timeline", "requests", "pool_map", "block_tables"}  # they show the first seed
WITHOUT_SEEDS = {"prefix_policies"}  # what is replayed has none
OF_MEANS = sorted(FIGURES.keys() - OF_ONE_SEED - WITHOUT_SEEDS)


FIRST = ("experiment", "run", "seed", "status", "allocator", "engine", "reason")  # as in a summary

QUEUED = (
    "hit_rate",
    "internal_frac_queued",
    "token_states_frac_queued",
    "num_running_mean_queued",
)


def rows_of(name: str, seeds: int) -> list[dict]:
    """Rows of so many seeds that differ in all that a figure may show."""
    sizes = (16,) if name == "steps" else (1, 8, 16, 32)
    rows = for_figure(name, sweep_rows(sizes, seeds))
    if name in {"engines", "routing"}:
        once = for_figure(name, [])
        rows = [row | {"seed": seed} for seed in range(seeds) for row in once]
    found = []
    for made in rows:
        row = dict.fromkeys(FIRST if name == "engines" else ()) | made
        row["run"] = f"{row['run']}-{row['seed']}"
        for metric in QUEUED:
            if metric in row:
                row[metric] += 0.01 * row["seed"] * (row.get("allocator.block_size") or 1)
        if name == "engines" and row["status"] == "finished":
            row["num_running_mean"] += row["seed"]
        found.append(row)
    return found


def longest_bars(drawing: Drawing) -> list[float]:
    """The longest error bar of each container, in units of its axes."""
    found = []
    for axes in drawing.figure.get_axes():
        for container in axes.containers:
            if isinstance(container, ErrorbarContainer):
                for lines in container.lines[2]:
                    ends = [np.ptp(segment, axis=0).max() for segment in lines.get_segments()]
                    found.append(max(ends, default=0.0))
    return found


@pytest.mark.parametrize("name", OF_MEANS)
def test_a_figure_of_means_has_error_bars_of_two_seeds_and_none_of_one(name: str) -> None:
    two = FIGURES[name](make_results(rows_of(name, 2)))
    assert max(longest_bars(two)) > 0
    assert "standard deviation" in footer(two)
    spread_columns = [c for c in two.points if c == "sd" or c.endswith("_sd")]
    assert two.points[spread_columns].gt(0).any(axis=None)
    assert two.points["num_seeds"].max() == 2
    one = FIGURES[name](make_results(rows_of(name, 1)))
    assert not any(longest_bars(one))
    assert one.points["num_seeds"].max() == 1
    assert "standard deviation" not in footer(one)


def test_an_error_bar_is_as_long_as_two_standard_deviations() -> None:
    drawing = FIGURES["engines"](make_results(rows_of("engines", 2)))
    assert drawing.points["num_running_mean"].iloc[0] == 5.5
    assert drawing.points["num_running_mean_sd"].iloc[0] == pytest.approx(0.5**0.5)
    assert max(longest_bars(drawing)) == pytest.approx(2 * 0.5**0.5)


def test_hits_lost_are_those_of_the_same_seed() -> None:
    rows = for_figure("block_size_sharing", sweep_rows(seeds=2))
    rows = [row | {"hit_rate": row["hit_rate"] + 0.1 * row["seed"]} for row in rows]
    points = FIGURES["block_size_sharing"](make_results(rows)).points
    assert points["lost_hit_rate_sd"].abs().max() == pytest.approx(0, abs=1e-12)
    assert points["hit_rate_sd"].to_numpy() == pytest.approx(0.1 * 0.5**0.5)
