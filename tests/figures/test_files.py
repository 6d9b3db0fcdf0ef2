"""The files that a figure leaves: all three or none, the same bytes again."""

from pathlib import Path

import matplotlib.style
import pandas as pd
import pytest
from matplotlib.figure import Figure

from figure_data import SOURCE, make_results, sweep_rows
from sim import figures
from sim.figures import FIGURES, FigureError, Results, draw


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


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("waste", "the summary has no runs"),
        ("timeline", "no run has a timeline"),
        ("requests", "no run has a timeline"),
        ("metric_vs_sweep", "no parameter with numbers was swept"),
        ("pool_map", "no run of at most 4,096 slots has recorded its blocks"),
        ("engines", "needs a sweep of engine"),
        ("block_size_sharing", "needs a sweep of allocator.block_size"),
        ("prefix_policies", "needs an experiment with policies"),
        ("block_tables", "no run that has recorded its blocks is small enough: at most 32 blocks"),
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


def test_figures_that_an_experiment_no_longer_names_are_removed_and_other_files_stay(
    tmp_path: Path,
) -> None:
    results = make_results(sweep_rows())
    draw("waste", results, tmp_path)
    draw("batched", results, tmp_path)
    (tmp_path / "mine.png").write_bytes(b"x")
    figures.remove(tmp_path, besides=["waste"])
    left = {path.name for path in tmp_path.iterdir()}
    assert left == {"waste.png", "waste.svg", "waste.csv", "mine.png"}
