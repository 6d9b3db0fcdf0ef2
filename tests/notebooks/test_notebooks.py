"""The notebooks run, give what is committed, and use the public names alone."""

from __future__ import annotations

import ast
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import sim
import sim.parts

ROOT = Path(__file__).parents[2]
PATHS = sorted((ROOT / "notebooks").glob("*.ipynb"))
LIBRARIES = {"sim", "pandas", "matplotlib", "IPython"} | sys.stdlib_module_names
WRITES_A_FILE = re.compile(r"%%writefile (?:-a )?(\w+)\.py\n")
NUMBER = re.compile(r"(?<![\w.])(\d{1,3}(?:,\d{3})+(?:\.\d+)?|\d+(?:\.\d+)?)(?: (%|ms))?")
QUOTED = {"2023"}  # the year of a paper
OF_A_MACHINE = re.compile(r"/(?:home|root|work|tmp|Users)/|0x[0-9a-f]{6}|\b20\d\d-\d\d")
MAX_FUNCTION_LINES = 8  # longer ones belong into the library

every_notebook = pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)


def cells_of(path: Path, kind: str = "code") -> list[dict[str, Any]]:
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    return [cell for cell in cells if cell["cell_type"] == kind]


def texts(cell: dict[str, Any]) -> list[str]:
    """What a cell has printed and shown, pictures aside: fonts and versions draw them otherwise."""
    found = []
    for output in cell["outputs"]:
        data = output.get("data", {})
        found += ["".join(output.get("text", "")), "".join(data.get("text/plain", ""))]
        found += ["".join(data.get("text/html", "")), "a picture" if "image/png" in data else ""]
    return found


@every_notebook
def test_a_notebook_gives_what_is_committed(path: Path, tmp_path: Path) -> None:
    command = [sys.executable, str(ROOT / "tests" / "support" / "notebooks.py"), path.stem]
    done = subprocess.run(
        [*command, "--to", str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        timeout=280,
    )
    assert done.returncode == 0, done.stderr
    made, committed = cells_of(tmp_path / path.name), cells_of(path)
    for new, old in zip(made, committed, strict=True):
        assert texts(new) == texts(old), old["source"]


@every_notebook
def test_what_is_committed_reads_well_on_a_page(path: Path) -> None:
    """All cells have run in order, without warnings; nothing tells of a machine or a time."""
    notebook = json.loads(path.read_text(encoding="utf-8"))
    assert set(notebook["metadata"]) == {"kernelspec", "language_info"}
    code = cells_of(path)
    assert [cell["execution_count"] for cell in code] == list(range(1, len(code) + 1))
    assert all(cell["metadata"] == {} for cell in notebook["cells"])
    for cell in code:
        assert all(output.get("name") != "stderr" for output in cell["outputs"])
        assert all(output["output_type"] != "error" for output in cell["outputs"])
        for text in texts(cell):
            assert not OF_A_MACHINE.search(text)
        for output in cell["outputs"]:
            if "image/png" in output.get("data", {}):
                alt = output["metadata"]["image/png"]["alt"]
                assert len(alt) > 20, "who cannot see a picture is told what is on it"
    prose = [len("".join(cell["source"]).split()) for cell in cells_of(path, "markdown")]
    assert max(prose) < 160, "short is better"
    assert path.stat().st_size < 600_000


def numbers(text: str) -> Iterator[tuple[str, str]]:
    """The numbers in a text, and % or ms behind them."""
    for number, unit in NUMBER.findall(text):
        yield number.replace(",", ""), unit


def is_shown(number: str, unit: str, shown: set[float]) -> bool:
    """Whether a number in prose is one of those shown, rounded as it is; shares may be percents."""
    digits = len(number.partition(".")[2])
    factors = {"%": (1, 100), "ms": (1, 1000)}.get(unit, (1,))
    return any(
        round(value * factor, digits) == float(number) for value in shown for factor in factors
    )


@every_notebook
def test_every_number_in_prose_stands_in_an_output_or_in_the_code(path: Path) -> None:
    shown = set()
    for cell in cells_of(path):
        for text in ("".join(cell["source"]), *texts(cell)):
            shown |= {float(number) for number, _ in numbers(re.sub("<[^>]*>", " ", text))}
    for cell in cells_of(path, "markdown"):
        prose = "".join(cell["source"])
        missing = [n for n, unit in numbers(prose) if not is_shown(n, unit, shown)]
        assert set(missing) <= QUOTED, prose


def plain_code(path: Path) -> Iterator[str]:
    """The cells of code that are not files."""
    for cell in cells_of(path):
        source = "".join(cell["source"])
        if not WRITES_A_FILE.match(source):
            yield source


def modules_written(path: Path) -> set[str]:
    found = (WRITES_A_FILE.match("".join(cell["source"])) for cell in cells_of(path))
    return {match[1] for match in found if match}


def imported(tree: ast.AST) -> Iterator[tuple[str, str]]:
    """(module, name) of each import; the name is empty for a module itself."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name, "") for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from ((str(node.module), alias.name) for alias in node.names)


@every_notebook
def test_it_uses_public_names_and_defines_no_simulation(path: Path) -> None:
    own = modules_written(path)
    for source in plain_code(path):
        tree = ast.parse(source)
        for module, name in imported(tree):
            assert module.partition(".")[0] in LIBRARIES | own, module
            assert not module.startswith("sim."), source
            assert module != "sim" or not name, source
        for node in ast.walk(tree):
            assert not isinstance(node, ast.ClassDef), "a class belongs into a file"
            if isinstance(node, ast.FunctionDef):
                assert (node.end_lineno or 0) - node.lineno < MAX_FUNCTION_LINES
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
                assert node.value.id != "sim" or node.attr in sim.__all__, node.attr


def test_a_plug_in_that_a_notebook_writes_uses_the_parts_for_plug_ins() -> None:
    written = 0
    for path in PATHS:
        for cell in cells_of(path):
            source = "".join(cell["source"])
            if WRITES_A_FILE.match(source):
                written += 1
                for module, name in imported(ast.parse(source.split("\n", 1)[1])):
                    assert module == "numpy" or name in sim.parts.__all__, (module, name)
    assert written == 2


def test_the_five_notebooks_are_there() -> None:
    assert [path.stem[:2] for path in PATHS] == ["01", "02", "03", "04", "05"]
