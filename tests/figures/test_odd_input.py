"""Figures of odd names and numbers, of too much and of nothing."""

from pathlib import Path

import pytest

from figure_data import (
    LOAD_FIGURES,
    footer,
    for_figure,
    make_results,
    summary_row,
    sweep_rows,
    timeline,
)
from sim.figures import FIGURES, FigureError, draw
from sim.figures.pool_map import draw_pool_map
from sim.figures.tables import TERMS
from sim.figures.waste import draw_waste


def varied(name: str, rows: list[dict]) -> list[dict]:
    """The rows with what the figure needs to differ."""
    policy = {"policy": "lru", "capacity_tokens": 8, "num_requests": 9, "block_size": 16}
    more = {
        "block_size_forces": lambda i, row: {"allocator.block_size": 8 << i % 2},
        "block_size_sharing": lambda i, row: {"allocator.block_size": 8 << i % 2, "hit_rate": 0.5},
        "engines": lambda i, row: {"engine": f"{row['allocator']} {i}", "reason": None},
        "prefix_policies": lambda i, row: {
            **policy,
            "trace": f"{row['allocator']} {i}",
            "hit_rate": 0.5,
        },
        "steps": lambda i, row: {"allocator": "contiguous", "num_running_mean_queued": 3.0},
        "routing": lambda i, row: {"num_replicas": 2, "router": "round_robin", "hit_rate": 0.5},
    }
    return [row | more.get(name, lambda *_: {})(i, row) for i, row in enumerate(rows)]


@pytest.mark.parametrize("name", FIGURES)
def test_two_hundred_runs_are_cut_and_the_figure_says_so(name: str, tmp_path: Path) -> None:
    rows = [
        summary_row(
            f"r{i}", f"kind{i % 20}", **{"workload.rate": i * 0.5, "workload.mode": f"m{i}"}
        )
        for i in range(200)
    ]
    results = make_results(varied(name, rows))
    draw(name, results, tmp_path)
    note = footer(FIGURES[name](results))
    said = {
        "waste": "The first 30 of 200 bars",
        "batched": "The first 30 of 200 bars",
        "timeline": "6 of 200 runs",
        "requests": "10 of 200 runs",
        "metric_vs_sweep": "the first 12 of 200 lines",
        "pool_map": "4 of 200 allocators",
        "block_tables": "1 of 200 allocators is drawn",
        "latency_vs_rate": "The first 12 of 200 lines",
        "waste_vs_load": "The first 12 of 200 panels",
        "block_size_forces": "The first 12 of 200 lines",
        "block_size_sharing": "The first 12 of 200 lines",
        "engines": "The first 30 of 200 rows",
        "prefix_policies": "The first 12 of 200 traces",
        "steps": "The first 6 of 200 workloads",
        "routing": "The first 12 of 200 lines",
    }
    assert said[name] in note


ODD_NAMES = [
    "cost $x_1$ of a_b^c \\alpha {}",
    "_hidden",
    "配置 مخصص \u0007 🎉\nsecond line",
    "very long " * 60,
    "x" * 500,
    " ",
]


@pytest.mark.parametrize("odd", ODD_NAMES[2:4])
@pytest.mark.parametrize("name", FIGURES)
def test_odd_names_are_drawn_as_text(name: str, odd: str, tmp_path: Path) -> None:
    rows = [
        summary_row(f"r{i}", kind, **{"workload.rate": 1.0 + i, "workload._path$": kind})
        for i, kind in enumerate(ODD_NAMES)
    ]
    results = make_results(varied(name, rows), name=odd)
    paths = draw(name, results, tmp_path)
    assert all(path.exists() for path in paths)


@pytest.mark.parametrize("name", FIGURES)
@pytest.mark.parametrize("factor", [0.0, 1e-9, 1e30])
def test_numbers_of_any_size(name: str, factor: float, tmp_path: Path) -> None:
    rows = for_figure(name, sweep_rows(values=(1.0, 1.5, 1e15)))
    for row in rows:
        row["throughput_req_s"] = 3.0 * factor
        row["num_running_mean"] = row["ttft_s_p90"] = 2.0 * factor
    results = make_results(rows)
    for run, table in results.timelines.items():
        scaled = [column for column in table if column != "queued_frac"]
        results.timelines[run] = table.assign(**{c: table[c] * factor for c in scaled})
    draw(name, results, tmp_path)


NEEDS = {
    "block_size_forces": r"needs a sweep of allocator\.block_size",
    "block_size_sharing": r"needs a sweep of allocator\.block_size",
    "engines": "needs a sweep of engine",
    "prefix_policies": "needs an experiment with policies",
    "routing": "needs an experiment with replicas",
}


@pytest.mark.parametrize("name", FIGURES)
def test_one_run_that_never_queued(name: str, tmp_path: Path) -> None:
    row = summary_row("r0", "paged", **{"allocator.block_size": 16})
    row |= {f"{term}_frac_queued": None for term in TERMS}
    results = make_results([row])
    if name in LOAD_FIGURES:
        with pytest.raises(FigureError, match="no rate was swept"):
            draw(name, results, tmp_path)
        return
    if name in NEEDS:
        with pytest.raises(FigureError, match=NEEDS[name]):
            draw(name, results, tmp_path)
        return
    if name == "steps":
        with pytest.raises(FigureError, match="needs contiguous with reservation max"):
            draw(name, results, tmp_path)
        with pytest.raises(FigureError, match="no request waited"):
            draw(name, make_results([row | {"allocator": "contiguous"}]), tmp_path)
        return
    draw(name, results, tmp_path)
    if name == "waste":
        assert len(draw_waste(results).figure.axes) == 1


@pytest.mark.parametrize("cell", [None, float("nan"), float("inf"), "n/a"])
def test_a_summary_without_values(cell: object, tmp_path: Path) -> None:
    keep = ("experiment", "run", "seed", "status", "allocator", "allocator.block_size")
    rows = [
        {name: value if name in keep else cell for name, value in row.items()}
        for row in sweep_rows()
    ]
    for name in ("waste", "metric_vs_sweep", "pool_map"):
        draw(name, make_results(rows), tmp_path)


@pytest.mark.parametrize("name", ["timeline", "requests"])
@pytest.mark.parametrize("num_buckets", [0, 1])
def test_a_timeline_of_no_length(name: str, num_buckets: int, tmp_path: Path) -> None:
    results = make_results([summary_row("r0", "paged"), summary_row("r1", "contiguous")])
    results.timelines["r0"] = timeline(num_buckets, scale=0.0)
    draw(name, results, tmp_path)
    results.timelines["r1"] = timeline(num_buckets, scale=0.0)
    draw(name, results, tmp_path)


def test_a_pool_larger_than_a_picture_is_not_drawn() -> None:
    results = make_results([summary_row("r0", "paged", num_slots=5000)])
    with pytest.raises(FigureError):
        draw_pool_map(results)
