"""The papers' figures: printed numbers beside measured ones, and what is missing."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from comparisons import folder_of
from sim.claims.pictures import draw_all
from sim.claims.record import Judged
from sim.claims.statement import Claim, Statement
from sim.config.yaml_nodes import ConfigError

BARS = """
name: bars
title: a figure
panels:
  - title: sizes
    unit: bytes
    bars: {plain: size, part: [parts, a.b], range: [parts, c]}
"""
CURVES = """
name: curves
title: a figure
panels:
  - title: latency
    unit: s
    x_label: requests/s
    curves:
      results: one
      x: rate
      y: latency
      scale: 1000
      lines: {first: {kind: a}, second: {from: other, kind: a}}
      marks: {first: 2.5}
"""


def judged(name: str, expected: object, measured: dict[str, dict[str, object]]) -> Judged:
    given = {
        "id": name,
        "source": "paper",
        "where": "§1",
        "statement": "…",
        "kind": "trace",
        "priority": 1,
        "evidence": "primary",
        "expected": expected,
        "comparator": "range" if isinstance(expected, dict) and "c" in expected else "approx",
        "out_of_scope": "a test",
    }
    claim = Claim(Statement.model_validate(given), "A paper", "none", Path("x.yaml"))
    return Judged(claim, "confirmed", measured)


JUDGED = [
    judged("size", 10, {"": {"mean": 11.0, "sd": 0.5, "seeds": 5}}),
    judged("parts", {"a.b": 3, "c": [1, 2]}, {"c": {"mean": 1.5, "sd": None, "seeds": 1}}),
]


def summary(folder: Path, name: str, factor: float) -> None:
    rows = [
        {"run": f"{rate}-{seed}", "seed": seed, "status": "finished", "reason": "", "kind": "a"}
        | {"rate": rate, "latency": factor * rate * (1 + seed)}
        for rate in (1.0, 2.0)
        for seed in (0, 1)
    ]
    folder_of(folder / name, rows)


def draw(tmp_path: Path, text: str) -> tuple[list[Path], list[str]]:
    (tmp_path / "figures").mkdir()
    (tmp_path / "figures" / "one.yaml").write_text(text)
    return draw_all(tmp_path / "figures", JUDGED, tmp_path / "results", tmp_path / "out")


def test_bars_have_what_is_printed_and_what_was_measured(tmp_path: Path) -> None:
    paths, problems = draw(tmp_path, BARS)
    assert problems == []
    assert [path.name for path in paths] == ["bars.png", "bars.svg", "bars.csv"]
    points = pd.read_csv(paths[2]).set_index("label")
    assert points.loc["plain", ["printed", "measured", "sd"]].tolist() == ["10.0", 11.0, 0.5]
    assert points.loc["part", "printed"] == "3.0"
    assert pd.isna(points.loc["part", "measured"])
    assert points.loc["range", ["printed", "measured"]].tolist() == ["(1.0, 2.0)", 1.5]


def test_curves_are_means_over_seeds_of_the_experiments_they_name(tmp_path: Path) -> None:
    summary(tmp_path / "results", "one", 1.0)
    summary(tmp_path / "results", "other", 10.0)
    paths, problems = draw(tmp_path, CURVES)
    assert problems == []
    points = pd.read_csv(paths[2])
    assert points["measured"].tolist() == [1500.0, 3000.0, 15000.0, 30000.0]
    assert points["printed"].tolist()[:2] == [2.5, 2.5]


def test_a_figure_whose_experiment_was_not_run_is_one_sentence(tmp_path: Path) -> None:
    summary(tmp_path / "results", "one", 1.0)
    paths, problems = draw(tmp_path, CURVES)
    assert paths == []
    assert len(problems) == 1
    assert "other: is missing; kvsim claims makes it" in problems[0]


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        ("plain: size", "plain: sise", "one.yaml:7: panels.0.bars.plain: unknown claim 'sise'"),
        ("unit: bytes", "units: bytes", "panels.0.units: unknown key, did you mean unit"),
        ("name: bars\n", "", "name: is required"),
    ],
)
def test_a_wrong_file_is_one_sentence(tmp_path: Path, old: str, new: str, sentence: str) -> None:
    with pytest.raises(ConfigError) as caught:
        draw(tmp_path, BARS.replace(old, new))
    assert sentence in "\n".join(caught.value.lines)
