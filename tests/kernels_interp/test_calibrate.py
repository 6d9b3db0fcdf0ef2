"""The calibration's arithmetic, files and flow; no GPU, so the times in here are made up."""

import csv
import json
import random
import time

import numpy as np
import pytest

from kernels.calibrate import __main__ as command
from kernels.calibrate import grid, output, points, sanity
from kernels.calibrate.build import build
from kernels.calibrate.dry import shrink
from kernels.calibrate.grid import Section, decode_point, ragged_lengths, sections
from kernels.calibrate.pool import Device, Pool
from kernels.calibrate.run import Calibration
from kernels.calibrate.timing import summarise

ALL = sections(seed=0)
EVERY_POINT = [p for s in ALL for p in s.points]


class MadeUpTimer:
    """Runs the first set once and invents a time."""

    def warm(self, sets):
        for step in sets[0]:
            step()
        return [None] * len(sets[0])

    def graph(self, sets, count):
        return summarise([100.0 * count] * 8, count)

    eager = graph


def small_pool():
    return Pool(Device("cpu", l2_bytes=2**12), 2**22)


def calibration(folder, seconds):
    document = {"ceilings": {}, "sentinels": [], "kernels": {}, "sections": {}}
    deadline = time.monotonic() + seconds
    return Calibration(
        folder, small_pool(), MadeUpTimer(), deadline, document, say=lambda line: None
    )


def test_the_grid_has_every_layout_at_every_batch_and_length_that_fits():
    decode = next(s for s in ALL if s.name == "decode").points
    assert len(decode) == 66 * 4
    assert max(p.total_kv for p in decode) == 2**20
    assert {(p.variant, p.block_size) for p in decode} == {
        ("contiguous", 0),
        ("auto", 16),
        ("auto", 64),
        ("auto", 128),
    }


def test_no_off_grid_point_is_on_the_grid():
    cells = {(len(p.lengths), p.lengths[0]) for s in ALL if s.name == "decode" for p in s.points}
    off = {(len(p.lengths), p.lengths[0]) for s in ALL if s.name == "off_grid" for p in s.points}
    assert len(off) == 40
    assert not off & cells


def test_points_are_shuffled_by_the_seed_and_by_nothing_else():
    assert sections(0)[0].points == ALL[0].points
    assert sections(1)[0].points != ALL[0].points
    assert set(sections(1)[0].points) == set(ALL[0].points)


@pytest.mark.parametrize("kind", ["lognormal", "bimodal", "one-long"])
def test_ragged_batches_hold_exactly_the_total(kind):
    lengths = ragged_lengths(kind, 16, 16 * 1024, random.Random(1))
    assert sum(lengths) == 16 * 1024
    assert len(lengths) == 16
    assert min(lengths) >= 1
    if kind == "one-long":
        assert 8 * 1024 <= max(lengths) < 8 * 1024 + 16  # half, and what rounding left over


def test_bytes_and_operations_of_a_decode_are_those_of_its_keys():
    point = decode_point("decode", 16, 32, 2048)
    assert points.moved_bytes(point) == 32 * 2048 * 8 * 2 * 128 * 2
    assert points.flops(point) == 4 * 32 * 128 * 32 * 2048


def test_operations_of_a_prefill_count_only_visible_keys():
    point = decode_point("prefill", 16, 1, 10, kernel="prefill", queries=4)
    assert points.flops(point) == 4 * 32 * 128 * (7 + 8 + 9 + 10)


def test_a_graph_goes_through_every_slice_at_least_once():
    point = decode_point("decode", 16, 1, 128)
    assert points.launches_per_graph(point, rotations=5000) == 5000
    assert points.launches_per_graph(point) > 500


def test_slices_of_the_pool_do_not_overlap():
    pool, lengths = small_pool(), np.array([100, 160, 7])
    point = shrink(decode_point("decode", 16, 2, 128))
    tables = pool.tables(pool.cache(point.model, 16), lengths, 3, "random")
    used = [block for each in tables for row, n in zip(each, lengths, strict=True)
            for block in row[: -(-n // 16)]]  # fmt: skip
    assert len(used) == 3 * (7 + 10 + 1)
    assert len(set(used)) == len(used)


def test_a_run_writes_a_row_a_point_and_stops_when_the_budget_is_spent(tmp_path):
    plan = [
        Section("decode", [shrink(decode_point("decode", 16, 1, 128))]),
        Section("moves", [shrink(p) for p in EVERY_POINT if p.kernel == "append"][:1]),
    ]
    run = calibration(tmp_path, 600)
    run.run(plan)
    run.finish()
    rows = list(csv.DictReader((tmp_path / "points.csv").read_text().splitlines()))
    assert tuple(rows[0]) == output.COLUMNS
    assert [r["section"] for r in rows] == ["decode", "moves"]
    assert [r["ok"] for r in rows] == ["1", "1"]
    assert "output checked" in rows[0]["note"]
    document = json.loads((tmp_path / "calibration.json").read_text())
    assert document["sections"]["decode"]["points"] == 1

    late = calibration(tmp_path, 0)
    late.run(plan)
    assert late.rows == []
    assert "needs" in late.document["sections"]["decode"]["skipped"]


def test_a_point_that_fails_gives_a_row_and_not_the_end_of_the_run(tmp_path):
    run = calibration(tmp_path, 600)
    too_large = decode_point("decode", 16, 256, 4096)
    row = run.measure(too_large)
    assert row["us"] is None
    assert row["ok"] == 0
    assert "failed: ValueError: the pool has" in row["note"]


def test_a_wrong_output_refuses_the_row(tmp_path):
    run = calibration(tmp_path, 600)
    point = shrink(decode_point("decode", 16, 1, 128))
    work = build(point, run.pool)
    row = output.empty_row(point)
    output.fill_times(row, summarise([100.0] * 8, 1))
    work.check = lambda index: 0.5
    run._judge(row, work, 1)
    assert row["ok"] == 0
    assert "output is off by 5.0e-01" in row["note"]


def timed_row(point, us):
    row = output.empty_row(point)
    output.fill_times(row, summarise([us] * 8, 1))
    row["ok"] = 1
    return row


def test_rows_faster_than_the_hardware_are_refused():
    point = decode_point("decode", 16, 32, 2048)  # 268 MB
    ceilings = {"read_tb_s": 4.2, "empty_graph_us": 2.0, "matmul_tflop_s": 700.0}
    assert sanity.impossible(timed_row(point, 80.0), ceilings, 60 * 2**20) == []
    assert "reads faster than the read ceiling" in sanity.impossible(
        timed_row(point, 60.0), ceilings, 60 * 2**20
    )
    assert "reads faster than the memory's peak" in sanity.impossible(
        timed_row(point, 50.0), ceilings, 60 * 2**20
    )
    linear = next(p for p in EVERY_POINT if p.kernel == "linear" and p.queries == 8192)
    assert "multiplies faster than the matmul ceiling" in sanity.impossible(
        timed_row(linear, 1.0), ceilings, 60 * 2**20
    )
    assert "faster than an empty kernel" in sanity.impossible(
        timed_row(decode_point("decode", 16, 1, 128), 1.0), ceilings, 60 * 2**20
    )


@pytest.mark.parametrize(
    "kernel", ["append", "copy_blocks", "linear", "prefill", "rope", "silu_and_mul", "layer"]
)
def test_every_kernel_that_moves_bytes_is_held_against_the_read_ceiling(kernel):
    point = max((p for p in EVERY_POINT if p.kernel == kernel), key=points.moved_bytes)
    slow, fast = timed_row(point, 1e6), timed_row(point, 0.01)
    ceilings, l2_bytes = {"read_tb_s": 4.2}, 2**20
    assert sanity.impossible(slow, ceilings, l2_bytes, sets=4) == []
    assert any("the read ceiling" in r for r in sanity.impossible(fast, ceilings, l2_bytes, sets=4))


@pytest.mark.parametrize(
    ("gpu", "fastest"), [("NVIDIA H200", 3995.0), ("NVIDIA GH200 480GB", 569.0)]
)
def test_a_copy_over_the_host_link_is_held_against_the_link_alone(gpu, fastest):
    point = max((p for p in EVERY_POINT if p.kernel == "h2d"), key=points.moved_bytes)
    ceilings = {"read_tb_s": 0.001, "link_tb_s": sanity.link_tb_s(gpu)}
    assert points.moved_bytes(point) == 2**28
    assert sanity.impossible(timed_row(point, fastest), ceilings, 2**20) == []
    assert sanity.impossible(timed_row(point, 0.98 * fastest), ceilings, 2**20) == [
        "moves bytes faster than the host link"
    ]


@pytest.mark.parametrize("us", [float("nan"), float("inf"), -5.0])
def test_what_is_no_time_is_refused(us):
    row = timed_row(decode_point("decode", 16, 1, 128), 1.0) | {"us": us}
    assert sanity.impossible(row, {}, 2**20) == ["not timed"]


def test_what_goes_round_in_less_than_twice_l2_is_called_warm(tmp_path):
    row = timed_row(decode_point("decode", 16, 1, 128), 10.0)  # 512 KiB
    assert sanity.is_warm(row, l2_bytes=2**20, sets=3)
    assert not sanity.is_warm(row, l2_bytes=2**20, sets=4)
    run = calibration(tmp_path, 600)
    run.pool.device = Device("cpu", l2_bytes=2**30)
    row = run.measure(shrink(decode_point("decode", 16, 1, 128)))
    assert row["l2"] == "warm"


def test_the_sum_of_parts_needs_every_part():
    from kernels.calibrate.layer import sum_of_parts

    layer = output.empty_row(next(p for p in EVERY_POINT if p.kernel == "layer"))
    wanted = [p for p in EVERY_POINT if p.section in ("linears", "moves", "decode")]
    rows = [timed_row(p, 10.0) for p in wanted]
    fp8 = [r for r in rows if r["kernel"] == "append" and r["dtype"] == "fp8"]
    assert fp8
    for row in fp8:
        row["us"] = 1e6  # the layer's cache is no fp8 one
    rows.sort(key=lambda r: r["dtype"], reverse=True)
    assert sum_of_parts(layer, rows) == 100.0  # ten launches
    assert sum_of_parts(layer, [r for r in rows if r["kernel"] != "rope"]) is None
    for row in rows:
        row["ok"] = int(row["kernel"] != "rope")
    assert sum_of_parts(layer, rows) is None


def test_points_csv_stays_small_enough_to_commit(tmp_path):
    rows = [timed_row(p, 123.456) for p in EVERY_POINT]
    output.write_points(tmp_path, rows)
    assert (tmp_path / "points.csv").stat().st_size < 200_000


def test_every_kind_of_point_has_a_builder():
    from kernels.calibrate.build import BUILDERS

    assert {p.kernel for p in EVERY_POINT} <= set(BUILDERS)
    assert set(grid.GRIDS) == {s.name for s in ALL}


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--budget", "0"], "--budget must be a positive number of seconds"),
        ([], "TRITON_INTERPRET is set"),
    ],
)
def test_a_run_that_cannot_start_says_why_and_exits_with_2(tmp_path, capsys, arguments, sentence):
    assert command.main(["--out", str(tmp_path / "new"), *arguments]) == 2
    assert sentence in capsys.readouterr().err
    assert not (tmp_path / "new").exists()


def test_a_machine_without_a_gpu_is_refused_without_dry(tmp_path, capsys, monkeypatch):
    monkeypatch.delenv("TRITON_INTERPRET")
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    assert command.main(["--out", str(tmp_path)]) == 2
    assert "there is no GPU here; use --dry" in capsys.readouterr().err
