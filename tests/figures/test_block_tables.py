"""The storyboard: which moments are drawn, and what they say and show."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from matplotlib.patches import FancyArrowPatch

from figure_data import SOURCE, footer, summary_row
from sim.allocators import Paged, PagedCow
from sim.allocators.base import Allocator
from sim.branching import WorkloadBranches
from sim.costs import Constant
from sim.engine.simulation import Memory, Options, simulate
from sim.figures import FigureError, Results
from sim.figures.block_tables import draw_block_tables
from sim.figures.pool_map import draw_pool_map
from sim.recording.blocklog import BlockLog
from sim.results.tables import requests_tables
from sim.schedulers import VllmV0
from sim.sequence import Limits, new_requests

BLOCK = 4


def logged(
    allocator: Allocator,
    lengths: list[tuple[int, int]],
    samples: list[int],
    num_blocks: int,
    gap_ns: int = 0,
) -> Results:
    """A run of requests of (prompt, output) tokens that come gap_ns after each other."""
    prompt, output = np.array(lengths).T
    limits = Limits(64, output)
    requests = new_requests(np.arange(len(prompt)) * gap_ns, prompt, output, limits)
    log = BlockLog(allocator)
    branches = WorkloadBranches(np.array(samples), None, 0)
    options = Options(observe=log, observe_end=log.ended, branches=branches)
    memory = Memory(num_blocks * BLOCK, 64)
    run = simulate(requests, memory, allocator, VllmV0(), Constant(0.02), options)
    cells = {"num_slots": memory.num_slots, "num_blocks": num_blocks}
    row = summary_row("r0", allocator.kind, **cells)
    return Results(
        "example",
        pd.DataFrame([row]),
        timelines={},
        requests={"r0": next(requests_tables(run))},
        blocks={"r0": log.table()},
        cost_source=SOURCE,
    )


def swapping() -> Results:
    allocator = PagedCow(BLOCK, num_cpu_blocks=6)
    return logged(allocator, [(7, 8), (6, 8), (6, 2)], [2, 2, 1], num_blocks=9)


def titles(results: Results) -> list[str]:
    return [ax.get_title(loc="left") for ax in draw_block_tables(results).figure.axes]


def texts(results: Results, panel: int) -> list[str]:
    axes = draw_block_tables(results).figure.axes
    return [text.get_text() for text in axes[panel].texts if text.get_text()]


def test_a_panel_says_when_it_is_and_what_has_happened() -> None:
    assert titles(logged(PagedCow(BLOCK), [(7, 3)], [2], num_blocks=8)) == [
        "Iteration 1, 0 s: request 0 begins; blocks 7, 6 taken",
        "After iteration 1, 0.02 s: request 0 becomes 2 sequences",
        "Iteration 2, 0.02 s: block 6 copied to 5",
        "Iteration 3, 0.04 s: blocks 4, 3 taken",
    ]


def test_tables_and_blocks_are_labelled_with_what_they_hold() -> None:
    results = logged(PagedCow(BLOCK), [(7, 3)], [2], num_blocks=8)
    assert texts(results, 2) == [
        "logical block", "0", "1", "2",
        "request 0, seq. 0", "7", "4 of 4", "5", "4 of 4",
        "request 0, seq. 1", "7", "4 of 4", "6", "4 of 4",
        "GPU", "0", "1", "2", "3", "4", "5", "6", "ref 2 → 1", "7", "ref 2",
    ]  # fmt: skip


def test_a_swap_shows_the_host_and_arrows_to_it_and_back() -> None:
    results = swapping()
    moving = [i for i, text in enumerate(titles(results)) if "moved to" in text]
    assert [titles(results)[i].partition(": ")[2] for i in moving] == [
        "block 5 moved to h3; block 1 moved to h4; block 6 moved to h5; blocks 4, 3 taken",
        "block h3 moved to 3; block h4 moved to 7; block h5 moved to 8",
    ]
    axes = draw_block_tables(results).figure.axes
    arrows = [[p for p in ax.patches if isinstance(p, FancyArrowPatch)] for ax in axes]
    assert [len(arrows[i]) for i in moving] == [3, 3]
    assert {"host", "h3", "h4", "h5"} <= set(texts(results, moving[0]))
    assert not {"h0", "h1", "h2"} & set(texts(results, moving[0]))  # never used


def test_steps_that_only_write_are_left_out_of_a_long_run_and_counted() -> None:
    results = swapping()
    drawing = draw_block_tables(results)
    assert len(drawing.figure.axes) == 10
    assert "Left out, because tokens are only written in them: 7 steps" in footer(drawing)
    results = logged(Paged(BLOCK), [(3, 2), (3, 45)], [1, 1], num_blocks=14)
    drawing = draw_block_tables(results)
    assert len(drawing.figure.axes) == 10
    assert "The first 10 of 13 steps in which a table changes" in footer(drawing)


def test_a_short_run_is_drawn_whole() -> None:
    results = logged(Paged(BLOCK), [(3, 5)], [1], num_blocks=8)
    assert [text.partition(": ")[2] for text in titles(results)] == [
        "request 0 begins; block 0 taken",
        "tokens are written, nothing else",
        "block 1 taken",
        "tokens are written, nothing else",
        "tokens are written, nothing else",
    ]


def test_a_request_that_waits_is_named() -> None:
    results = logged(Paged(BLOCK), [(12, 2), (12, 2)], [1, 1], num_blocks=5)
    assert "request 1 waits" in texts(results, 0)


def test_of_a_larger_pool_only_the_blocks_that_are_held_are_drawn() -> None:
    results = logged(Paged(BLOCK), [(7, 2)], [1], num_blocks=100)
    drawing = draw_block_tables(results)
    assert "Not drawn, because nobody holds them: 98 blocks" in footer(drawing)
    shown = texts(results, 0)
    assert shown[shown.index("GPU") + 1 :] == ["0", "1"]


@pytest.mark.parametrize(
    ("lengths", "samples"),
    [
        ([(7, 2)], [13]),  # more sequences than fit
        ([(41, 2)], [1]),  # more logical blocks
        ([(16, 2)] * 9, [1] * 9),  # more physical blocks
    ],
)
def test_a_run_too_large_for_a_picture_is_refused_in_a_sentence(
    lengths: list[tuple[int, int]], samples: list[int]
) -> None:
    results = logged(PagedCow(BLOCK), lengths, samples, num_blocks=100)
    with pytest.raises(FigureError, match=r"no run .* is small enough: at most 32 blocks or 8 "):
        draw_block_tables(results)


def test_a_log_of_an_earlier_version_is_not_drawn() -> None:
    results = logged(Paged(BLOCK), [(7, 2)], [1], num_blocks=8)
    old = results.blocks["r0"].drop(columns=["moment", "sequence"])
    results.blocks["r0"] = old
    with pytest.raises(FigureError):
        draw_block_tables(results)
    draw_pool_map(results)


def test_the_pool_map_draws_what_samples_share_once() -> None:
    lengths = [(7, 8), (6, 8)]
    results = logged(PagedCow(BLOCK), lengths, [2, 1], num_blocks=9, gap_ns=50_000_000)
    points = draw_pool_map(results).points
    log = results.blocks["r0"]
    shown = log[(log["time_s"] == points["time_s"].iloc[0]) & (log["moment"] == "schedule")]
    assert len(points) == shown["start_slot"].nunique() < len(shown)


def test_the_pool_map_draws_the_device_alone() -> None:
    results = swapping()
    log = results.blocks["r0"]
    late = log[log["time_s"] > 0.041]
    results.blocks["r0"] = late
    points = draw_pool_map(results).points
    assert len(points) < len(late[late["time_s"] == points["time_s"].iloc[0]])
    assert points["request"].unique().tolist() == [0]
