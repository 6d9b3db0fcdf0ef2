"""What `import sim` offers: a stable list, loaded when used, and each with an example that runs."""

from __future__ import annotations

import ast
import doctest
import importlib
import importlib.metadata
import inspect
import os
import subprocess
import sys
import warnings
from pathlib import Path

import pytest

import sim
import sim.parts
import sim.testing

ROOT = Path(__file__).parents[2]

NAMES = (
    "Admission Allocator ConfigError ConservationError CostModel Experiment Picture Pool Results "
    "ResultsError Router Scheduler Simulation Trace TraceError TraceFile Workload __version__ "
    "available capacity_table load parts read read_trace run simulate sweep testing write_trace"
)

# the examples are in the functions and classes of these modules
WITH_EXAMPLES = (
    "sim",
    "sim.library.experiments",
    "sim.library.pool",
    "sim.library.results",
    "sim.library.simulation",
    "sim.library.tables",
    "sim.parts",
    "sim.testing",
    "sim.testing.allocators",
    "sim.testing.costs",
    "sim.testing.routers",
    "sim.testing.schedulers",
    "sim.testing.traces",
)
# what is made by functions that have the example, or is told apart by its name alone
SHOWN_ELSEWHERE = {"Admission", "Experiment", "Picture", "Simulation", "Trace", "__version__"}


def test_the_names_are_these() -> None:
    """Whoever takes one away breaks somebody's program: say so in CHANGELOG.md."""
    assert sim.__all__ == NAMES.split()
    assert set(dir(sim)) >= set(NAMES.split())


def test_every_name_is_there_and_documented() -> None:
    for name in sim.__all__:
        found = getattr(sim, name)
        assert name == "__version__" or inspect.getdoc(found), name
    assert sim.__version__ == importlib.metadata.version("kvsim")
    with pytest.raises(AttributeError, match="module 'sim' has no attribute 'nothing'"):
        sim.nothing  # noqa: B018


def test_type_checkers_are_told_the_same_places() -> None:
    tree = ast.parse((ROOT / "sim" / "__init__.py").read_text())
    block = next(node for node in tree.body if isinstance(node, ast.If))
    told = {
        alias.name: node.module if node.module != "sim" else f"sim.{alias.name}"
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert told == sim._PLACES
    assert sorted([*told, "__version__"]) == sorted(sim.__all__)


TYPED = """\
import sim
from sim import Allocator, sweep
results: sim.Results = sim.run({}, jobs=2)
reveal_type(results.summary)
reveal_type(sim.Pool({"kind": "paged"}, 1024).block_table(0))
reveal_type(sim.__version__)
sim.run(3)
sim.nothing
class Mine(Allocator): ...
Mine()
"""


def test_type_checkers_see_the_names_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "typed.py").write_text(TYPED)
    command = [sys.executable, "-m", "mypy", "--strict", "--cache-dir", str(ROOT / ".mypy_cache")]
    done = subprocess.run(
        [*command, "--config-file", str(ROOT / "pyproject.toml"), "typed.py"],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
        env={**os.environ, "MYPYPATH": str(ROOT)},
    )
    lines = [line.partition("typed.py:")[2] for line in done.stdout.splitlines()]
    said = [line for line in lines if line]
    assert [line.partition(":")[0] for line in said] == ["4", "5", "6", "7", "8", "10"], done.stdout
    assert 'type is "pandas.core.frame.DataFrame"' in said[0]
    assert 'type is "list[int]"' in said[1]
    assert 'type is "str"' in said[2]
    assert 'Argument 1 to "run" has incompatible type "int"' in said[3]
    assert 'Module has no attribute "nothing"' in said[4]
    assert 'Cannot instantiate abstract class "Mine"' in said[5]


def test_importing_loads_nothing_and_every_name_is_found_from_nothing() -> None:
    code = "import sys; import sim; print(sorted({'numpy', 'pandas', 'torch'} & set(sys.modules)))"
    code += "; import sim.config.experiment, sim.config.cells"
    code += "; print(callable(sim.sweep), callable(sim.run), 'torch' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT
    )
    assert done.stdout.split("\n")[:2] == ["[]", "True True False"]


def test_no_public_name_is_hidden_by_a_module() -> None:
    """`import sim.x` sets sim.x: a function of that name would be gone."""
    modules = {path.stem for path in (ROOT / "sim").iterdir()} - {"parts", "testing"}
    assert modules.isdisjoint(sim.__all__)


@pytest.mark.parametrize("name", WITH_EXAMPLES)
def test_the_examples_in_docstrings_give_what_they_say(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    with warnings.catch_warnings(action="error"):
        module = importlib.import_module(name)
        results = doctest.testmod(module, optionflags=doctest.ELLIPSIS)
    assert results.failed == 0
    assert results.attempted > 0


def test_every_function_has_an_example() -> None:
    for name in set(sim.__all__) - SHOWN_ELSEWHERE - {"parts", "testing"}:
        found = getattr(sim, name)
        if found.__module__.startswith("sim.library"):
            assert ">>> " in (found.__doc__ or ""), name
    for name in sim.testing.__all__:
        if name.startswith("check_"):
            assert ">>> " in getattr(sim.testing, name).__doc__, name


def test_what_plug_ins_are_written_with_is_all_there() -> None:
    assert sorted(sim.parts.__all__, key=str) == sorted(set(sim.parts.__all__))
    for name in sim.parts.__all__:
        assert getattr(sim.parts, name) is not None
