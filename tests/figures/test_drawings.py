"""What is drawn is what the tables say."""

import numpy as np
import pytest

from figure_data import (
    SHARES,
    SOURCE,
    engine_rows,
    footer,
    for_figure,
    make_results,
    policy_rows,
    routing_rows,
    sharing_rows,
    summary_row,
    sweep_rows,
)
from sim.figures import FIGURES, Results
from sim.figures.pool_map import draw_pool_map
from sim.figures.running import draw_requests
from sim.figures.sweep import METRICS, draw_metric_vs_sweep
from sim.figures.tables import TERMS
from sim.figures.timeline import draw_timeline
from sim.figures.waste import draw_waste


def test_waste_bars_are_the_points(example: Results) -> None:
    drawing = draw_waste(example)
    assert [ax.get_title(loc="left") for ax in drawing.figure.axes] == [
        "whole run",
        "while requests wait",
    ]
    for ax in drawing.figure.axes:
        points = drawing.points[drawing.points["panel"] == ax.get_title(loc="left")]
        widths = np.array([patch.get_width() for patch in ax.patches]).reshape(6, -1)
        order = ["token_states", "reserved", "internal", "external", "free", "cached"]
        for term, row in zip(order, widths, strict=True):
            np.testing.assert_allclose(row, points[f"{term}_frac"], rtol=1e-12)
    np.testing.assert_allclose(points[[f"{term}_frac" for term in TERMS]].sum(axis=1), 1)
    assert points["num_seeds"].tolist() == [2] * 5
    assert points["token_states_frac"].iloc[0] == pytest.approx(0.405)
    assert points["token_states_frac_sd"].iloc[0] == pytest.approx(0.01 / 2**0.5)


def test_timeline_and_requests_draw_the_points(example: Results) -> None:
    drawing = draw_timeline(example)
    token_states = drawing.figure.axes[0].collections[0].get_paths()[0].vertices
    own = drawing.points[drawing.points["run"] == "c-0"]
    assert token_states[:, 1].max() == own["token_states"].max()
    assert drawing.points["run"].unique().tolist() == ["c-0", "p-0-0", "p-1-0", "p-2-0", "p-3-0"]
    drawing = draw_requests(example)
    for ax, column in zip(drawing.figure.axes, ("num_running", "num_waiting"), strict=True):
        for line, run in zip(ax.lines, drawing.points["run"].unique(), strict=True):
            own = drawing.points[drawing.points["run"] == run]
            assert list(line.get_ydata())[:-1] == own[column].tolist()
            assert line.get_xdata()[-1] == 25.0


def test_metric_vs_sweep_draws_the_points(example: Results) -> None:
    drawing = draw_metric_vs_sweep(example)
    for ax, metric in zip(drawing.figure.axes, METRICS, strict=True):
        points = drawing.points[drawing.points["metric"] == metric]
        dashed, line = ax.lines[0], ax.lines[1]
        assert dashed.get_ydata()[0] == points["mean"].iloc[0]
        assert dashed.get_linestyle() == "--"
        assert list(line.get_xdata()) == [1, 8, 16, 32]
        assert list(line.get_ydata()) == points["mean"].tolist()[1:]
        assert ax.get_xscale() == "log"
    assert drawing.points["num_seeds"].tolist() == [2] * 20
    assert drawing.points["x"].isna().sum() == len(METRICS)


def test_pool_map_shows_the_time_with_most_requests(example: Results) -> None:
    drawing = draw_pool_map(example)
    assert drawing.points["time_s"].unique().tolist() == [1.0]
    paged = drawing.points[drawing.points["run"] == "p-0-0"]
    assert paged["num_written"].tolist() == [16, 9, 16, 16, 15, 12]
    assert "3 requests at 1 s" in drawing.figure.axes[0].get_title(loc="left")
    texts = [text.get_text() for text in drawing.figure.axes[1].texts]
    assert texts == ["0:0", "0:1", "1:0", "1:1", "1:2", "2:0"]


def test_pool_map_takes_every_kind_before_a_second_of_one() -> None:
    rows = [
        summary_row(f"r{i}", kind, **{"allocator.reservation": str(i)})
        for i, kind in enumerate(["contiguous"] * 5 + ["paged"])
    ]
    drawing = draw_pool_map(make_results(rows))
    assert drawing.points["run"].unique().tolist() == ["r0", "r1", "r2", "r5"]
    assert "4 of 6 allocators are drawn" in footer(drawing)


@pytest.mark.parametrize("name", FIGURES)
def test_every_figure_says_which_model_gave_the_times(name: str, example: Results) -> None:
    drawing = FIGURES[name](example)
    assert SOURCE in footer(drawing)
    assert drawing.figure.get_suptitle().startswith("example: ")


def test_a_line_is_hollow_where_requests_wait_longer_than_they_are_served() -> None:
    rows = [
        summary_row(f"r{i}", "paged", **{"workload.arrivals.rate": rate})
        | {"ttft_s_p50": wait, "e2e_s_p50": wait + 8.0, "ttft_s_p90": 0.1 * rate}
        for i, (rate, wait) in enumerate([(1.0, 0.1), (5.0, 7.9), (6.0, 8.1)])
    ]
    points = FIGURES["latency_vs_rate"](make_results(rows)).points
    assert points["keeps_up"].tolist() == [True, True, False]
    assert points["ttft_s_p90"].tolist() == [0.1, 0.5, 6.0 * 0.1]


def test_latencies_that_span_decades_are_drawn_on_a_log_axis_with_plain_numbers() -> None:
    rows = [
        summary_row(f"r{i}", "paged", **{"workload.arrivals.rate": float(i + 1)})
        | {"ttft_s_p90": 10.0 ** (i - 1), "itl_s_p90": 0.02 + 0.01 * i}
        for i in range(3)
    ]
    figure = FIGURES["latency_vs_rate"](make_results(rows)).figure
    figure.draw_without_rendering()
    normalized, ttft, itl, _ = figure.axes
    assert (ttft.get_yscale(), itl.get_yscale()) == ("log", "linear")
    labels = [label.get_text() for ax in (ttft, itl) for label in ax.get_yticklabels()]
    assert not [label for label in labels if "$" in label]
    assert {"0.1", "1", "10"} <= set(labels)
    assert [text.get_text() for text in normalized.texts] == ["no data"]


def test_engines_are_rows_by_who_runs_most_and_say_what_they_do_not_serve() -> None:
    drawing = FIGURES["engines"](make_results(engine_rows()))
    assert drawing.points["label"].tolist() == ["b", "c", "a", "d"]
    shares, running, preemptions, _ = drawing.figure.axes
    names = [label.get_text() for label in shares.get_yticklabels()]
    assert names == ["b", "c\n25 % not served", "a", "d"]
    assert [bar.get_width() for bar in running.patches] == [5.0, 4.0, 3.0, 0.0]
    assert [bar.get_width() for bar in preemptions.patches] == [3.0, 3.0, 3.0, 0.0]
    assert "needs what the trace has not" in [text.get_text() for text in shares.texts]
    widths = np.array([bar.get_width() for bar in shares.patches]).reshape(6, 4)
    np.testing.assert_allclose(widths.sum(axis=0), [1, 1, 1, 0])


def test_hits_lost_are_counted_from_the_smallest_blocks() -> None:
    drawing = FIGURES["block_size_sharing"](make_results(sharing_rows(sweep_rows())))
    assert drawing.points["lost_hit_rate"].tolist() == pytest.approx([0, 0.07, 0.15, 0.31])
    internal, lost, _, against = drawing.figure.axes
    assert list(lost.lines[0].get_ydata()) == drawing.points["lost_hit_rate"].tolist()
    assert list(internal.lines[0].get_xdata()) == [1, 8, 16, 32]
    assert list(against.lines[0].get_xdata()) == list(lost.lines[0].get_ydata())
    assert list(against.lines[0].get_ydata()) == list(internal.lines[0].get_ydata())


def test_routers_are_lines_against_the_memory_of_all_replicas() -> None:
    drawing = FIGURES["routing"](make_results(routing_rows()))
    hits, waits = drawing.figure.axes
    labels = ["one replica", "4 replicas, round_robin", "4 replicas, prefix_aware"]
    assert drawing.points["label"].unique().tolist() == labels
    assert [list(line.get_xdata()) for line in hits.lines] == [[100, 1000], *[[400, 4000]] * 2]
    assert list(hits.lines[2].get_ydata()) == pytest.approx([0.3, 0.4])
    assert list(waits.lines[2].get_ydata()) == pytest.approx([0.1 / 0.3, 0.1 / 0.4])


def test_policies_are_lines_and_a_trace_that_was_not_there_is_said() -> None:
    drawing = FIGURES["prefix_policies"](make_results(policy_rows()))
    (axes,) = drawing.figure.axes
    lines = {line.get_label(): list(line.get_ydata()) for line in axes.lines}
    assert lines == {"clairvoyant": [0.5, 0.6], "lru": [0.2, 0.6], "none": [0, 0]}
    assert "far: skipped" in footer(drawing)


def test_the_shares_by_rate_add_to_the_whole_pool() -> None:
    rows = for_figure("waste_vs_load", sweep_rows())
    points = FIGURES["waste_vs_load"](make_results(rows)).points
    shares = points[[f"{term}_frac" for term in TERMS]].sum(axis=1)
    own = points["internal_frac"] - SHARES[2]  # sweep_rows changes this one alone
    assert (shares - own).tolist() == pytest.approx([1.0] * len(points))
    assert points.groupby("label").size().tolist() == [2, 4]


def test_two_swept_keys_have_a_part_each() -> None:
    rows = [
        summary_row(f"r{b}-{r}", "paged", **{"allocator.block_size": b, "workload.rate": r})
        for b in (8, 16)
        for r in (1.0, 2.5, 7.0)
    ]
    drawing = draw_metric_vs_sweep(make_results(rows))
    assert len(drawing.figure.axes) == 2 * len(METRICS)
    assert drawing.points["label"].unique().tolist() == [
        "paged, rate=1", "paged, rate=2.5", "paged, rate=7", "paged, block_size=8",
        "paged, block_size=16",
    ]  # fmt: skip


def test_steps_add_up_in_either_order() -> None:
    def row(kind: str, value: float, **cells: object) -> dict[str, object]:
        named = {f"allocator.{name}": cell for name, cell in cells.items()}
        more = {"num_running_mean_queued": value, "token_states_frac_queued": value / 40}
        return summary_row(f"r{value}", kind, **named) | more

    rows = [row("paged", 38.0), row("prefix", 39.0)]
    values = {"max": (7.0, 7.1, 7.2), "pow2": (10.0, 15.5, 18.0), "oracle": (15.0, 20.0, 23.5)}
    for reservation, (buddy, first_fit, compacted) in values.items():
        knobs = {"reservation": reservation, "placement": "buddy", "compaction": False}
        rows.append(row("contiguous", buddy, **knobs))
        rows.append(row("contiguous", first_fit, **knobs | {"placement": "first_fit"}))
        slid = {"placement": "first_fit", "compaction": True}
        rows.append(row("contiguous", compacted, **knobs | slid))
    drawing = FIGURES["steps"](make_results(rows))
    by_order = drawing.points.groupby("order", sort=False)
    ends = [points["num_running_mean_queued"].tolist() for _, points in by_order]
    assert ends == [
        [7.0, 10.0, 15.0, 20.0, 23.5, 38.0, 39.0],
        [7.0, 7.1, 7.2, 18.0, 23.5, 38.0, 39.0],
    ]
    assert by_order["gain"].sum().tolist() == pytest.approx([39.0, 39.0])
    for ax, (_, points) in zip(drawing.figure.axes, by_order, strict=True):
        assert [bar.get_width() for bar in ax.patches] == pytest.approx(points["gain"].tolist())
        assert ax.texts[5].get_text() == "  38.0 (+14.5), 95 %"
