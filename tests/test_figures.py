"""Figures from synthetic tables: the files they leave, what is in them, and odd input."""

from collections.abc import Iterator
from pathlib import Path

import matplotlib.style
import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure

from sim import figures
from sim.figures import FIGURES, FigureError, Results, draw
from sim.figures.base import Drawing
from sim.figures.pool_map import draw_pool_map, grid_columns
from sim.figures.running import draw_requests
from sim.figures.style import STYLE
from sim.figures.sweep import METRICS, draw_metric_vs_sweep, is_power_of_two
from sim.figures.tables import MAX_BUCKETS, TERMS, buckets, groups
from sim.figures.timeline import draw_timeline
from sim.figures.waste import draw_waste

SOURCE = "linear: a made-up model for tests"
NUM_SLOTS = 1024
LOAD_FIGURES = {"latency_vs_rate", "waste_vs_load"}
SHARES = (0.40, 0.25, 0.10, 0.05, 0.02, 0.18)


def summary_row(run: str, kind: str, seed: int = 0, **cells: object) -> dict[str, object]:
    shift = 0.01 * seed
    shares = dict(zip(TERMS, SHARES, strict=True))
    shares["token_states"] += shift
    shares["free"] -= shift
    row: dict[str, object] = {"experiment": "example", "run": run, "seed": seed}
    row |= {"status": "finished"}
    row |= {name: value for name, value in cells.items() if "." in name}
    row |= {"allocator": kind, "num_slots": NUM_SLOTS}
    row |= {f"{term}_frac": share for term, share in shares.items()}
    row |= {f"{term}_frac_queued": share for term, share in shares.items()}
    row |= {"num_running_mean": 12.5 + seed, "throughput_req_s": 3.25 + shift}
    return row | cells


def timeline(num_buckets: int = 50, scale: float = 1.0) -> pd.DataFrame:
    x = np.arange(num_buckets)
    swing = 0.2 * np.sin(x / 7)
    table = {"start_s": 0.5 * x * scale, "width_s": np.full(num_buckets, 0.5 * scale)}
    for term, share in zip(TERMS, SHARES, strict=True):
        table[term] = np.full(num_buckets, NUM_SLOTS * share)
    table["token_states"] = table["token_states"] + NUM_SLOTS * swing * 0.5
    table["free"] = table["free"] - NUM_SLOTS * swing * 0.5
    table["num_running"] = 10 + 20 * swing
    table["num_waiting"] = np.maximum(0, 30 * swing)
    table["queued_frac"] = (swing > 0).astype(float)
    return pd.DataFrame(table)


def blocks(paged: bool = True) -> pd.DataFrame:
    """Requests of 25, 47 and 12 tokens, alone at 0 s and all together at 1 s."""
    rows = [(0.0, 0, 0, 0, 16, 16)]
    start = 0
    for request, tokens in enumerate((25, 47, 12)):
        size = 16 if paged else 256
        for index in range(-(-tokens // size)):
            rows.append((1.0, request, index, start, size, min(size, tokens - index * size)))
            start += size
    columns = ["time_s", "request", "index", "start_slot", "num_slots", "num_written"]
    return pd.DataFrame(rows, columns=columns)


def make_results(rows: list[dict[str, object]], name: str = "example") -> Results:
    runs = [str(row["run"]) for row in rows]
    return Results(
        name=name,
        summary=pd.DataFrame(rows),
        timelines={run: timeline() for run in runs},
        requests={},
        blocks={row["run"]: blocks(row["allocator"] == "paged") for row in rows},
        cost_source=SOURCE,
    )


def sweep_rows(values: tuple[object, ...] = (1, 8, 16, 32), seeds: int = 2) -> list[dict]:
    rows = [
        summary_row(f"c-{seed}", "contiguous", seed, **{"allocator.block_size": None})
        for seed in range(seeds)
    ]
    for i, value in enumerate(values):
        for seed in range(seeds):
            row = summary_row(f"p-{i}-{seed}", "paged", seed, **{"allocator.block_size": value})
            row |= {"internal_frac": 0.01 * (i + 1), "num_running_mean": 20.0 - i + seed}
            rows.append(row)
    return rows


@pytest.fixture(autouse=True)
def _style() -> Iterator[None]:
    with matplotlib.style.context(STYLE, after_reset=True):
        yield


def for_figure(name: str, rows: list[dict]) -> list[dict]:
    """Rows that the figure can draw: some need a swept rate instead of a block size."""
    if name not in LOAD_FIGURES:
        return rows
    renamed = []
    for i, row in enumerate(rows):
        block_size = row["allocator.block_size"]
        rest = {key: cell for key, cell in row.items() if key != "allocator.block_size"}
        rate = float(i) if block_size is None else block_size
        renamed.append({**rest, "workload.arrivals.rate": rate})
    return renamed


@pytest.fixture
def example(request: pytest.FixtureRequest) -> Results:
    parameters = request.node.callspec.params if hasattr(request.node, "callspec") else {}
    return make_results(for_figure(parameters.get("name", ""), sweep_rows()))


@pytest.mark.parametrize("name", FIGURES)
def test_a_redraw_gives_the_same_bytes(name: str, example: Results, tmp_path: Path) -> None:
    first = draw(name, example, tmp_path / "a")
    second = draw(name, example, tmp_path / "b")
    assert [path.name for path in first] == [f"{name}.png", f"{name}.svg", f"{name}.csv"]
    for one, two in zip(first, second, strict=True):
        assert one.read_bytes() == two.read_bytes()
        assert one.stat().st_size > 100
    assert "<dc:date>" not in first[1].read_text()
    assert sorted(path.name for path in (tmp_path / "a").iterdir()) == sorted(
        path.name for path in first
    )


@pytest.mark.parametrize("name", FIGURES)
def test_the_csv_holds_the_points_of_the_figure(
    name: str, example: Results, tmp_path: Path
) -> None:
    paths = draw(name, example, tmp_path)
    points = FIGURES[name](example).points
    read = pd.read_csv(paths[2])
    pd.testing.assert_frame_equal(read, points, check_dtype=False)


def test_the_look_comes_from_the_style_file_not_from_the_user(
    example: Results, tmp_path: Path
) -> None:
    first = draw("waste", example, tmp_path / "a")
    with matplotlib.rc_context({"font.size": 30, "axes.facecolor": "red"}):
        second = draw("waste", example, tmp_path / "b")
        assert matplotlib.rcParams["font.size"] == 30
    assert first[1].read_bytes() == second[1].read_bytes()


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


def footer(drawing: Drawing) -> str:
    return drawing.figure.get_supxlabel()


@pytest.mark.parametrize("name", FIGURES)
def test_every_figure_says_which_model_gave_the_times(name: str, example: Results) -> None:
    drawing = FIGURES[name](example)
    assert SOURCE in footer(drawing)
    assert drawing.figure.get_suptitle().startswith("example: ")


@pytest.mark.parametrize("name", FIGURES)
def test_two_hundred_runs_are_cut_and_the_figure_says_so(name: str, tmp_path: Path) -> None:
    rows = [
        summary_row(
            f"r{i}", f"kind{i % 20}", **{"workload.rate": i * 0.5, "workload.mode": f"m{i}"}
        )
        for i in range(200)
    ]
    results = make_results(rows)
    draw(name, results, tmp_path)
    note = footer(FIGURES[name](results))
    said = {
        "waste": "The first 30 of 200 bars",
        "batched": "The first 30 of 200 bars",
        "timeline": "6 of 200 runs",
        "requests": "10 of 200 runs",
        "metric_vs_sweep": "the first 12 of 200 lines",
        "pool_map": "4 of 200 allocators",
        "latency_vs_rate": "The first 12 of 200 lines",
        "waste_vs_load": "The first 12 of 200 panels",
    }
    assert said[name] in note


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


def test_the_shares_by_rate_add_to_the_whole_pool() -> None:
    rows = for_figure("waste_vs_load", sweep_rows())
    points = FIGURES["waste_vs_load"](make_results(rows)).points
    shares = points[[f"{term}_frac" for term in TERMS]].sum(axis=1)
    own = points["internal_frac"] - SHARES[2]  # sweep_rows changes this one alone
    assert (shares - own).tolist() == pytest.approx([1.0] * len(points))
    assert points.groupby("label").size().tolist() == [2, 4]


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
    results = make_results(rows, name=odd)
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


@pytest.mark.parametrize("name", FIGURES)
def test_one_run_that_never_queued(name: str, tmp_path: Path) -> None:
    row = summary_row("r0", "paged", **{"allocator.block_size": 16})
    row |= {f"{term}_frac_queued": None for term in TERMS}
    results = make_results([row])
    if name in LOAD_FIGURES:
        with pytest.raises(FigureError, match="no rate was swept"):
            draw(name, results, tmp_path)
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


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("waste", "the summary has no runs"),
        ("timeline", "no run has a timeline"),
        ("requests", "no run has a timeline"),
        ("metric_vs_sweep", "no parameter with numbers was swept"),
        ("pool_map", "no run of at most 4,096 slots has recorded its blocks"),
    ],
)
def test_nothing_to_draw_is_one_sentence(name: str, sentence: str, tmp_path: Path) -> None:
    empty = Results("example", pd.DataFrame({"run": [], "allocator": []}), {}, {}, {}, SOURCE)
    with pytest.raises(FigureError, match=sentence):
        draw(name, empty, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_an_unknown_name_lists_the_accepted_ones(example: Results, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="unknown figure 'pie'; accepted: waste, timeline, req"):
        draw("pie", example, tmp_path)


def test_a_failing_draw_leaves_the_old_files_and_no_other(
    example: Results, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = draw("waste", example, tmp_path)
    before = {path: path.read_bytes() for path in paths}

    def fail(self: Figure, *args: object, **kwargs: object) -> None:
        if kwargs["format"] == "svg":
            raise RuntimeError("no svg today")

    monkeypatch.setattr(Figure, "savefig", fail)
    with pytest.raises(RuntimeError):
        draw("waste", example, tmp_path)
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_a_failing_write_leaves_the_old_files_and_no_other(
    example: Results, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = draw("waste", example, tmp_path)
    before = {path: path.read_bytes() for path in paths}
    real = figures._contents
    monkeypatch.setattr(figures, "_contents", lambda drawing: {**real(drawing), "csv": "text"})
    with pytest.raises(TypeError):
        draw("waste", example, tmp_path)
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_labels_name_what_differs() -> None:
    rows = [
        summary_row("a", "contiguous", **{"allocator.reservation": "max", "rate": 2.0}),
        summary_row("b", "paged", **{"allocator.block_size": 16.0}),
    ]
    frame = pd.DataFrame(rows)[
        ["run", "status", "allocator.reservation", "allocator.block_size", "allocator"]
    ]
    assert [group.label for group in groups(frame)] == [
        "contiguous, reservation=max",
        "paged, block_size=16",
    ]
    frame.loc[0, "status"] = "stalled"
    assert groups(frame)[0].label == "contiguous, reservation=max (stalled)"


def test_parameters_with_one_ending_keep_their_full_names() -> None:
    frame = pd.DataFrame({"run": ["a"], "x.rate": [1], "y.rate": [2.5], "allocator": ["paged"]})
    assert groups(frame)[0].label == "paged, x.rate=1, y.rate=2.5"


def test_neighbouring_buckets_merge_into_their_mean_over_time() -> None:
    table = timeline(1000)
    table.loc[999, "width_s"] = 0.1
    merged = buckets(table, TERMS)
    assert len(merged) <= MAX_BUCKETS
    assert merged["width_s"].sum() == pytest.approx(table["width_s"].sum())
    for term in TERMS:
        area = (table[term] * table["width_s"]).sum()
        assert (merged[term] * merged["width_s"]).sum() == pytest.approx(area)


def test_powers_of_two() -> None:
    assert [x for x in (0, 0.25, 1, 3, 4, -2, 1000, 1024) if is_power_of_two(x)] == [
        0.25,
        1,
        4,
        1024,
    ]


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


@pytest.mark.parametrize("num_slots", [1, 31, 100, 1024, 4096])
def test_the_grid_has_few_rows_and_room_for_every_slot(num_slots: int) -> None:
    columns = grid_columns(num_slots)
    assert 1 <= -(-num_slots // columns) <= 16


def test_a_pool_larger_than_a_picture_is_not_drawn() -> None:
    results = make_results([summary_row("r0", "paged", num_slots=5000)])
    with pytest.raises(FigureError):
        draw_pool_map(results)
