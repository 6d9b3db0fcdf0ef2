"""The wheel: what it holds, and that it works in an environment with nothing else in it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "-o", str(folder)]
    done = subprocess.run([*command, str(ROOT)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return next(folder.glob("kvsim-*.whl"))


def test_the_wheel_holds_sim_and_workloads_with_their_data_and_nothing_else(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    tops = {name.split("/")[0] for name in names}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"sim", "workloads"}
    for needed in (
        "sim/py.typed",
        "sim/hardware/presets/models.yaml",
        "sim/hardware/presets/gpus.yaml",
        *(f"sim/engines/{path.name}" for path in (ROOT / "sim" / "engines").iterdir()),
        "sim/costs/profiles/h100.yaml",
        *(
            str(path.relative_to(ROOT))
            for path in (ROOT / "sim" / "report").rglob("*")
            if path.suffix in {".html", ".css", ".js"}
        ),
        "sim/costs/profiles/a100-40-2023.yaml",
        "workloads/py.typed",
        "workloads/data/sharegpt_lengths.csv",
    ):
        assert needed in names


@pytest.mark.slow
def test_the_wheel_runs_an_experiment_in_an_empty_environment(wheel: Path, tmp_path: Path) -> None:
    venv.create(tmp_path / "env", with_pip=True)
    python = tmp_path / "env" / "bin" / "python"
    subprocess.run([python, "-m", "pip", "install", "-q", wheel], check=True, timeout=280)
    experiment = ROOT / "experiments" / "quickstart.yaml"
    command = [tmp_path / "env" / "bin" / "kvsim", "run", experiment, "--json"]
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "KVSIM"))}
    done = subprocess.run(
        [*command, "--out", tmp_path / "results"],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
        env=environment,
    )
    assert done.returncode == 0, done.stderr
    assert {run["status"] for run in json.loads(done.stdout)["runs"]} == {"finished"}
    found = subprocess.run([python, "-c", "import torch"], capture_output=True, check=False)
    assert found.returncode != 0, "the simulator must not need torch"
