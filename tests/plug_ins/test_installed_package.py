"""A package of plug-ins, installed for real: its names are used, listed and checked by name."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "tests" / "plug_in_package"

EXPERIMENT = """
name: foreign
kv_cache: {num_slots: 400}
max_model_len: 64
workload: {kind: tab_log, path: requests.tab}
allocator: [{kind: one_range, granularity: 4}, {kind: paged}]
scheduler: {kind: shortest_first, max_num_seqs: 8}
cost: {kind: square_root, base_s: 0.005}
replicas: {count: 2, router: {kind: by_length, long_tokens: 20}}
"""
LOG = "at_s\tin\tout\n0\t10\t5\n0.01\t30\t9\n0.02\t12\t3\n0.02\t25\t7\n"

CHECKS = """
import json
from sim.config.classes import find_class
from sim.config.plugin_keys import TABLES
from sim.testing import *
found = {key: find_class(kind, *TABLES[key]) for key, kind in {
    "allocator": "one_range", "scheduler": "shortest_first", "cost": "square_root",
    "router": "by_length", "workload": "tab_log"}.items()}
check_allocator(found["allocator"])
check_allocator(lambda: found["allocator"](granularity=16))
check_scheduler(found["scheduler"], seeds=range(1))
check_cost(found["cost"])
check_router(lambda: found["router"](long_tokens=15))
check_workload(lambda: found["workload"]("requests.tab"))
from workloads import open_file
print(json.dumps([type(open_file("requests.tab")).__name__, found["router"].__module__]))
"""


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that pip has installed the package into."""
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--no-index"]
    options = ["--no-build-isolation", "--disable-pip-version-check", "--target", str(folder)]
    done = subprocess.run(
        [*command, *options, str(PACKAGE)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


@pytest.fixture
def here(tmp_path: Path) -> Path:
    (tmp_path / "foreign.yaml").write_text(EXPERIMENT)
    (tmp_path / "requests.tab").write_text(LOG)
    return tmp_path


def python(installed: Path, here: Path, *arguments: str) -> str:
    paths = os.pathsep.join([str(installed), str(ROOT)])
    done = subprocess.run(
        [sys.executable, *arguments],
        capture_output=True,
        text=True,
        check=False,
        cwd=here,
        env={**os.environ, "PYTHONPATH": paths},
        timeout=280,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_its_names_stand_in_an_experiment_like_built_in_ones(installed: Path, here: Path) -> None:
    out = python(installed, here, "-m", "sim.cli", "run", "foreign.yaml", "--json")
    runs = json.loads(out)["runs"]
    assert [run["allocator"] for run in runs] == ["one_range", "paged"]
    assert {(run["status"], run["num_finished"], run["router"]) for run in runs} == {
        ("finished", 4, "by_length")
    }
    assert {run["times_from"] for run in runs} == {"square_root: assumed: a square root"}
    folder = here / "results" / "foreign" / "runs"
    before = {path: path.read_bytes() for path in folder.glob("*/manifest.json")}
    python(installed, here, "-m", "sim.cli", "run", "foreign.yaml", "--json")
    assert before == {path: path.read_bytes() for path in folder.glob("*/manifest.json")}
    module = installed / "kvsim_example" / "__init__.py"  # no class is in it
    text = module.read_text()
    try:
        module.write_text(text + "# changed\n")
        python(installed, here, "-m", "sim.cli", "run", "foreign.yaml", "--json")
    finally:
        module.write_text(text)
    after = {path: path.read_bytes() for path in folder.glob("*/manifest.json")}
    assert all(before[path] != after[path] for path in before), "the package is part of the key"


def test_it_keeps_the_contracts_and_its_format_is_recognized(installed: Path, here: Path) -> None:
    assert json.loads(python(installed, here, "-c", CHECKS)) == ["TabLog", "kvsim_example.router"]


def test_its_names_are_listed_with_the_package(installed: Path, here: Path) -> None:
    listed = python(installed, here, "-m", "sim.cli", "list", "allocators")
    line = next(line for line in listed.splitlines() if line.split()[0] == "one_range")
    assert line.split(maxsplit=1)[1] == (
        "[kvsim-example 0.1.0] A range for prompt and max_tokens, in the largest hole. "
        "(granularity=1)"
    )
    schema = json.loads(python(installed, here, "-m", "sim.cli", "check", "--schema"))
    kinds = schema["$defs"]["scheduler.shortest_first"]["properties"]
    assert kinds["max_num_seqs"]["minimum"] == 1
