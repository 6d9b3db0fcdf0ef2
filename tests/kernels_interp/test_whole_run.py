"""A calibration from its first line to its files, on small points and with made-up times."""

import csv
import json
import time
from argparse import Namespace

import pytest

from kernels.calibrate import __main__ as command
from kernels.calibrate import ceilings, correctness, grid, pool, precompile, provenance, timing
from kernels.calibrate.dry import shrink
from kernels.calibrate.grid import Section, sections
from kernels.calibrate.pool import Device, Pool
from kernels.calibrate.works import Work

RUN_CHECKS, DEVICE = correctness.run_checks, Device("cpu", l2_bytes=2**12)
CEILINGS = {"read_tb_s": 1e9, "matmul_tflop_s": 900.0}


class MadeUpTimer:
    """Runs every set once and invents a time."""

    def warm(self, sets):
        for step in sets[0]:
            step()
        return [None] * len(sets[0])

    def graph(self, sets, count):
        for steps in sets[:count]:
            for step in steps:
                step()
        return timing.summarise([1e5 * count] * 8, count)

    eager = graph


def small_plan(seed):
    """Two small points of every section, and of each kernel in it one."""
    plan = []
    for section in sections(seed):
        points = list(dict.fromkeys(shrink(p) for p in section.points))
        one_each = {(p.kernel, p.variant, p.model): p for p in points}
        plan.append(Section(section.name, list(one_each.values())[:6]))
    return plan


def ends_after(calls, what, monkeypatch):
    """Make the timer raise once that many points were timed."""
    made, seen = MadeUpTimer.graph, []

    def graph(self, sets, count):
        seen.append(count)
        if len(seen) > calls:
            raise what
        return made(self, sets, count)

    monkeypatch.setattr(MadeUpTimer, "graph", graph)


@pytest.fixture(name="arguments")
def a_machine_without_a_gpu(tmp_path, monkeypatch):
    monkeypatch.setattr(Device, "gpu", staticmethod(lambda: DEVICE))
    monkeypatch.setattr(grid, "sections", small_plan)
    monkeypatch.setattr("kernels.calibrate.run.sentinel", lambda: shrink(grid.sentinel()))
    monkeypatch.setattr(precompile, "compile_all", lambda *args: [])
    monkeypatch.setattr(timing, "GraphTimer", MadeUpTimer)
    monkeypatch.setattr(ceilings, "measure_ceilings", lambda *args: (dict(CEILINGS), {}))
    monkeypatch.setattr(provenance, "gpu", lambda: {"name": "none"})
    monkeypatch.setattr(
        Pool, "largest", staticmethod(lambda device, seed: Pool(device, 2**24, seed))
    )
    monkeypatch.setattr(
        correctness,
        "run_checks",
        lambda variants, device, deadline: RUN_CHECKS(
            variants[::5], "cpu", correctness.REHEARSAL, deadline
        ),
    )
    return Namespace(out=tmp_path, budget=600.0, seed=0, workers=1, dry=False, allow_dirty=True)


def written(folder):
    rows = list(csv.DictReader((folder / "points.csv").read_text().splitlines()))
    return json.loads((folder / "calibration.json").read_text()), rows


def test_a_calibration_writes_every_section_and_says_that_it_is_complete(arguments):
    code = command.calibrate(arguments, time.monotonic())
    document, rows = written(arguments.out)
    problems = [(r["kernel"], r["variant"], r["note"]) for r in rows if r["ok"] != "1"]
    assert not problems
    assert not document["failures"]
    assert code == 0
    assert document["status"] == "complete"
    assert document["pool_bytes"] == 2**24
    assert {r["section"] for r in rows} == set(grid.GRIDS)
    assert {name for name, s in document["sections"].items() if not s["skipped"]} == set(grid.GRIDS)
    assert all(check["ok"] for check in document["correctness"])
    assert document["sentinels"][0]["after_points"] == 0
    assert document["sentinels"][-1]["after_points"] == len(rows)
    assert document["repeats"]["share_within_2_percent"] == 1.0
    assert any("limited by" in r["note"] for r in rows if r["kernel"] == "h2d")
    assert any("output checked" in r["note"] for r in rows)


def test_a_broken_variant_costs_its_points_and_the_exit_code(arguments, monkeypatch):
    def checks(variants, device, deadline):
        return [
            {"variant": v.name, "ok": not (v.kernel == "append" and v.model.kv_dtype)}
            for v in variants
        ]

    monkeypatch.setattr(correctness, "run_checks", checks)
    assert command.calibrate(arguments, time.monotonic()) == 1
    _, rows = written(arguments.out)
    lost = {(r["kernel"], r["dtype"]) for r in rows if not r["us"]}
    assert lost == {("append", "fp8")}
    assert any("append fp8 failed its check" in r["note"] for r in rows)


def test_a_run_that_ends_in_the_middle_has_kept_its_points(arguments, monkeypatch, capsys):
    ends_after(12, KeyboardInterrupt, monkeypatch)
    with pytest.raises(KeyboardInterrupt):
        command.calibrate(arguments, time.monotonic())
    document, rows = written(arguments.out)
    assert document["status"] == "incomplete"
    assert len(rows) >= 6
    assert sum(section["points"] for section in document["sections"].values()) == len(rows)


def one_large_section(seed):
    return [Section("decode", [shrink(grid.decode_point("decode", 16, 1, 128))] * 200)]


@pytest.mark.parametrize("ended_by", [KeyboardInterrupt, SystemExit])
def test_a_run_that_ends_inside_a_section_has_kept_every_row_of_it(
    arguments, monkeypatch, ended_by
):
    monkeypatch.setattr("kernels.calibrate.run.build", lambda *args: Work([[lambda: None]]))
    monkeypatch.setattr(grid, "sections", one_large_section)
    ends_after(1 + 140 + 4, ended_by, monkeypatch)  # sentinels at 0, 30, 60, 90 and 120 points
    with pytest.raises(ended_by):
        command.calibrate(arguments, time.monotonic())
    document, rows = written(arguments.out)
    assert len(rows) == 140
    assert document["sections"]["decode"]["points"] == 140
    assert document["sections"]["decode"]["skipped"] == "ended early"
    assert [s["after_points"] for s in document["sentinels"]] == [0, 30, 60, 90, 120]


def test_an_exception_in_the_sixth_sentinel_leaves_all_rows_and_one_sentence(
    arguments, monkeypatch, capsys
):
    monkeypatch.setattr("kernels.calibrate.run.build", lambda *args: Work([[lambda: None]]))
    monkeypatch.setattr(grid, "sections", one_large_section)
    asked = []

    def state():
        asked.append(1)
        if len(asked) == 6:
            raise RuntimeError("nvidia-smi is gone")
        return {}

    monkeypatch.setattr(provenance, "machine_state", state)
    assert command.calibrate(arguments, time.monotonic()) == 1
    document, rows = written(arguments.out)
    assert (document["status"], len(rows)) == ("failed", 150)
    assert document["sections"]["decode"]["points"] == 150
    assert document["failures"]["run"] == "RuntimeError: nvidia-smi is gone"


def test_a_budget_that_preparing_uses_up_ends_without_rows_and_says_so(arguments, monkeypatch):
    monkeypatch.setattr(grid, "sections", one_large_section)
    arguments.budget = 1e-3
    assert command.calibrate(arguments, time.monotonic()) == 1
    document, rows = written(arguments.out)
    assert (document["status"], rows) == ("failed", [])
    assert "left out, its share of the budget was spent" in document["failures"]["correctness"]
    assert "no row can be used" in document["failures"]["run"]


def test_every_output_wrong_is_told_by_the_exit_code_and_costs_all_rows_of_the_variant(
    arguments, monkeypatch
):
    from kernels.calibrate import works

    wrong = []
    monkeypatch.setattr(grid, "sections", one_large_section)
    monkeypatch.setattr(works, "relative_error", lambda *args: 1.0 if wrong else 0.0)
    made = MadeUpTimer.graph

    def graph(self, sets, count):
        wrong.extend([1] * (self.made >= 100))
        self.made += 1
        return made(self, sets, count)

    monkeypatch.setattr(MadeUpTimer, "made", 0, raising=False)
    monkeypatch.setattr(MadeUpTimer, "graph", graph)
    assert command.calibrate(arguments, time.monotonic()) == 1
    document, rows = written(arguments.out)
    assert {r["ok"] for r in rows} == {"0"}
    assert len([r for r in rows if "output is off by 1.0e+00" in r["note"]]) == 1
    assert "gave a wrong output later" in rows[0]["note"]
    assert "failed its check" in rows[-1]["note"]
    assert document["status"] == "failed"


def test_a_pool_that_cannot_be_had_ends_the_run_with_the_checks_written(
    arguments, monkeypatch, capsys
):
    def none(device, seed):
        return Pool(device, pool.POOL_BYTES * 2**20)

    monkeypatch.setattr(Pool, "largest", staticmethod(none))
    assert command.calibrate(arguments, time.monotonic()) == 1
    document = json.loads((arguments.out / "calibration.json").read_text())
    assert document["status"] == "failed"
    assert document["correctness"]
    assert capsys.readouterr().err.startswith("the calibration ended early: ")
