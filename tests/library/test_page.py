"""The lines of Python in docs/library.md run."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Any

import pandas as pd

import sim

ROOT = Path(__file__).parents[2]


def test_the_lines_of_the_page_run() -> None:
    section = (ROOT / "docs" / "library.md").read_text(encoding="utf-8")
    (code,) = re.findall(r"^```python\n(.*?)^```$", section, re.MULTILINE | re.DOTALL)
    names: dict[str, Any] = {}
    shown = []
    for node in ast.parse(code).body:
        source = ast.unparse(node)
        if isinstance(node, ast.Expr):
            shown.append(eval(source, names))
        else:
            exec(source, names)
    summary, ttft_s, picture, points, written, (table, usage) = shown
    assert summary["token_states_frac"].is_monotonic_increasing
    assert ttft_s > 0
    assert picture._repr_png_()
    assert isinstance(points, pd.DataFrame)
    assert points["allocator.block_size"].dropna().tolist() == [8, 16, 64]
    assert (points["throughput_req_s_low"] <= points["throughput_req_s_high"]).all()
    assert written
    assert (table, sum(usage)) == ([0, 1, 2, 3], 1024)
    for name in re.findall(r"`sim\.(\w+)", section):
        assert name in sim.__all__ or name == "__all__", name


def test_the_notebooks_that_it_names_are_there() -> None:
    text = (ROOT / "docs" / "library.md").read_text(encoding="utf-8")
    named = set(re.findall(r"\(\.\./notebooks/(\w+\.ipynb)\)", text))
    assert named == {path.name for path in (ROOT / "notebooks").glob("*.ipynb")}
