"""How long an experiment will take, said before it runs."""

from __future__ import annotations

import json
from pathlib import Path

from command import SMALL, kvsim
from experiment_files import HEAD, PAGED, SHAREGPT, load
from sim.results.files import MANIFEST, SCHEMA
from sim.runs.estimate import REQUESTS_PER_S, RUN_S, time_line

RATES = "sweep: {workload.arrivals.rate: [1, 2], allocator.block_size: [8, 512]}\nseeds: 5\n"


def text(num_requests: int) -> str:
    return HEAD + SHAREGPT.replace("num_requests: 20", f"num_requests: {num_requests}") + PAGED


def test_an_estimate_counts_requests_and_runs_but_not_those_that_cannot_be(tmp_path: Path) -> None:
    specs = load(tmp_path, text(50_000) + RATES).runs()
    assert [spec.num_requests for spec in specs if not spec.skip] == [50_000] * 10
    seconds = 10 * (50_000 / REQUESTS_PER_S + RUN_S)
    basis = f"an estimate at {REQUESTS_PER_S:,} requests/s, which is assumed"
    on_one = time_line(specs, tmp_path, 1)
    assert on_one == f"time          about {seconds:.0f} s on one core: {basis}"
    assert f"about {seconds / 2:.0f} s on 2 cores" in time_line(specs, tmp_path, 2)


def manifest(wall_s: float) -> str:
    return json.dumps({"schema": SCHEMA, "key": "any", "files": {}, "wall_s": wall_s})


def test_earlier_runs_tell_their_time(tmp_path: Path) -> None:
    specs = load(tmp_path, text(20) + RATES).runs()
    made = [spec for spec in specs if not spec.skip]
    for number, spec in enumerate(made):
        folder = tmp_path / "runs" / spec.run_id
        folder.mkdir(parents=True)
        (folder / MANIFEST).write_text(manifest(1800.0) if number else "no JSON")
    earlier = "an estimate from the wall times of 9 earlier runs"
    line = time_line(specs, tmp_path, 1)
    assert line.startswith(f"time          about 4.5 h on one core: {earlier} and, for the others")
    (tmp_path / "runs" / made[0].run_id / MANIFEST).write_text(manifest(60.0))
    line = time_line(specs, tmp_path, 60)
    assert line == f"time          about 5 min on 60 cores: {earlier.replace('9', '10')}"


def test_check_prints_the_number_of_runs_and_the_time(tmp_path: Path) -> None:
    (tmp_path / "small.yaml").write_text(SMALL + "sweep: {allocator.block_size: [8, 9999]}\n")
    done = kvsim("check", "small.yaml", cwd=tmp_path)
    lines = done.stdout.splitlines()
    assert lines[0] == "small: 2 runs, and 1 that cannot be"
    assert "  time          about 1 s on one core: an estimate at " in done.stdout
    assert kvsim("run", "small.yaml", cwd=tmp_path).returncode == 0
    again = kvsim("check", "small.yaml", "-j", 2, cwd=tmp_path)
    assert "on 2 cores: an estimate from the wall times of 2 earlier runs" in again.stdout
    elsewhere = kvsim("check", "small.yaml", "--out", "other", cwd=tmp_path)
    assert elsewhere.stdout == done.stdout
    refused = kvsim("check", "small.yaml", "-j", 0, cwd=tmp_path)
    assert (refused.returncode, refused.stderr) == (2, "-j: must be 1 to 1024, got 0\n")
