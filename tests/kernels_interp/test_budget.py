"""What a calibration is predicted to take, and what it takes of a machine's memory."""

import json
from argparse import Namespace
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from kernels.calibrate import __main__ as command
from kernels.calibrate import (
    ceilings,
    correctness,
    dry,
    output,
    pool,
    precompile,
    provenance,
    sanity,
)
from kernels.calibrate.build import build
from kernels.calibrate.dry import shrink
from kernels.calibrate.grid import decode_point, sections
from kernels.calibrate.points import FAST, LLAMA, SLOW, Point, moved_bytes, nodes, predicted_s
from kernels.calibrate.pool import Device, Pool
from kernels.calibrate.timing import summarise
from kernels.calibrate.variants import Variant
from kernels.launch import FP8
from kernels.standins import Model

ALL = sections(seed=0)
EVERY_POINT = [p for s in ALL for p in s.points]
DEVICE = Device("cpu", l2_bytes=2**12)


def test_the_estimates_enclose_each_other_for_every_point():
    for point in EVERY_POINT:
        assert predicted_s(point, FAST) < predicted_s(point, SLOW)


def test_the_sections_that_the_fit_needs_fit_the_budget_by_the_upper_estimate():
    seconds = dry.predicted(ALL, num_compiled=75)
    needed = ("start", "compile", "correctness", "ceilings", "decode", "off_grid", "slices")
    assert sum(seconds[name][1] for name in needed) < 250
    assert sum(low for low, _ in seconds.values()) < 150
    assert len(EVERY_POINT) > 900


def test_an_estimate_has_every_step_and_both_bounds_are_printed(capsys):
    seconds = dry.predicted(ALL, num_compiled=75)
    assert {"start", "compile", "correctness", "ceilings", "repeats", "sentinels"} < set(seconds)
    assert {s.name for s in ALL} < set(seconds)
    dry.print_plan(ALL, seconds, budget=1000.0)
    lines = capsys.readouterr().out.splitlines()
    assert "lower  upper" in lines[0]
    total = lines[-1].split()
    assert float(total[-2]) == pytest.approx(sum(low for low, _ in seconds.values()), abs=1)
    assert float(total[-1]) == pytest.approx(sum(high for _, high in seconds.values()), abs=1)


@pytest.mark.parametrize(("budget", "word"), [(200.0, "may"), (20.0, "would")])
def test_a_plan_over_the_budget_says_so(capsys, budget, word):
    dry.print_plan(ALL, {"decode": (100.0, 300.0)}, budget)
    assert f"over the budget of {budget:.0f} s: the last sections {word} be skipped" in (
        capsys.readouterr().out
    )


def test_copies_of_many_blocks_count_every_one_of_them_as_a_launch():
    assert nodes(Point("x", "h2d", "memcpy", size=(256, 4096))) == 256
    assert nodes(Point("x", "h2d", "kernel", size=(256, 4096))) == 1
    assert nodes(decode_point("x", 16, 1, 128, kernel="layer", variant="32 layers")) == 384


def test_an_append_into_an_fp8_cache_writes_half_of_what_it_reads():
    tokens = Point("x", "append", "auto", 16, Model(kv_dtype=FP8), queries=10)
    read = 10 * 2 * LLAMA.num_kv_heads * LLAMA.head_dim * 2
    assert moved_bytes(tokens) == read * 3 // 2


def out_of_memory(above):
    made = Pool.__init__

    def init(self, device, num_bytes=pool.POOL_BYTES, seed=0):
        if num_bytes > above:
            raise torch.OutOfMemoryError("CUDA out of memory.\nmore lines")
        made(self, device, num_bytes, seed)

    return init


def test_a_machine_with_less_memory_gets_a_smaller_pool(monkeypatch):
    monkeypatch.setattr(Pool, "__init__", out_of_memory(above=2**20))
    assert Pool.largest(DEVICE, sizes=(2**22, 2**21, 2**20)).num_bytes == 2**20
    with pytest.raises(torch.OutOfMemoryError):
        Pool.largest(DEVICE, sizes=(2**22, 2**21))


def test_what_does_not_fit_a_smaller_pool_is_refused_and_not_read_beyond_its_end():
    small = Pool(DEVICE, 2**22)  # 1024 slots of the model
    with pytest.raises(ValueError, match="the pool has 1024 slots, 1030 are needed"):
        small.first_slots(LLAMA, np.array([1000, 30]), 1)
    with pytest.raises(ValueError, match="the pool holds no matrix of 4096 x 4096"):
        small.weights(4096, 4096, 1)


def test_what_the_deadline_leaves_out_is_reported_by_every_step_before_the_timing():
    shared = precompile._compile_share(90, EVERY_POINT[:3], (0, 1), 0.0)
    checked = correctness.run_checks([Variant("append")], "cpu", correctness.REHEARSAL, 0.0)
    for each in (*shared, *checked):
        assert (each["ok"], each["failure"]) == (False, sanity.OUT_OF_TIME)
    found, failures = ceilings.measure_ceilings(Pool(DEVICE, 2**20), None, 0.0)
    assert found == {}
    assert set(failures.values()) == {sanity.OUT_OF_TIME}
    said = command.left_out({"compiled": shared, "correctness": checked})
    reason = "left out, its share of the budget was spent"
    assert said["compiled"] == f"{len(shared)} variants {reason}; they compile when timed"
    assert said["correctness"] == f"1 variants {reason}; they are not timed"


def test_memory_for_the_matrices_is_taken_by_the_ceiling_that_needs_it(monkeypatch):
    class Timer:
        def graph(self, sets, count):
            return summarise([100.0] * 8, count)

        eager = graph

    def random(self, *size, **rest):
        raise torch.OutOfMemoryError("CUDA out of memory.")

    words = Pool(DEVICE, 2**24)
    monkeypatch.setattr(Pool, "random", random)
    found, failures = ceilings.measure_ceilings(words, Timer())
    assert set(failures) == {"matmul_tflop_s"}
    assert "OutOfMemoryError" in failures["matmul_tflop_s"]
    assert {"read_tb_s", "l2_read_tb_s", "copy_tb_s", "empty_graph_us"} <= set(found)


def arguments(folder):
    return Namespace(out=folder, budget=60.0, seed=0, workers=1, dry=False, allow_dirty=True)


def test_a_run_without_memory_ends_in_one_sentence_with_its_files_written(
    tmp_path, monkeypatch, capsys
):
    def fails(args, begin, document):
        document["correctness"] = [{"variant": "decode", "ok": True}]
        raise torch.OutOfMemoryError("CUDA out of memory.\nTried to allocate more.")

    monkeypatch.setattr(command, "new_document", lambda args: {"failures": {}})
    monkeypatch.setattr(command, "measure", fails)
    assert command.calibrate(arguments(tmp_path), 0.0) == 1
    said = capsys.readouterr().err
    assert said == "the calibration ended early: OutOfMemoryError: CUDA out of memory.\n"
    written = json.loads((tmp_path / "calibration.json").read_text())
    assert written["status"] == "failed"
    assert written["correctness"][0]["ok"]
    assert "out of memory" in written["failures"]["run"]


def test_reading_again_within_a_launch_reads_every_word_every_time():
    words = torch.arange(4 * 64, dtype=torch.int32)
    launch = ceilings.read_again_launch(words, 64, passes=3)
    launch()
    parts = words.view(4, 64).sum(1)
    expected = [sum(parts[(i + j) % 4] for j in range(3)).item() for i in range(4)]
    assert launch.args[1].tolist() == expected


def test_a_compiled_kernel_takes_its_stack_from_the_machine_code_of_the_same_ptx():
    kernel = SimpleNamespace(
        n_regs=96, n_spills=2, metadata=SimpleNamespace(shared=1024), asm={"ptx": "code"}
    )
    same = {"kernel": "decode", "ptx_sha256": provenance.ptx_hash(kernel), "stack": 16}
    found = provenance.compiled_kernel(kernel, {"BLOCK_N": 64}, [{"ok": False}, same])
    assert (found["regs"], found["spills"], found["stack"]) == (96, 2, 16)
    assert provenance.compiled_kernel(kernel, {}, [])["stack"] is None


def test_of_an_append_only_what_is_written_cannot_come_from_the_second_level_cache():
    for model, written in ((LLAMA, 1 / 2), (Model(kv_dtype=FP8), 1 / 3)):
        row = output.empty_row(Point("x", "append", "auto", 16, model, queries=8192))
        assert sanity.from_memory(row, 0, 1) == pytest.approx(row["bytes"] * written)


@pytest.mark.parametrize("kernel", ["append", "copy_blocks", "h2d", "d2h", "linear"])
def test_every_transfer_and_product_can_be_checked_after_it_was_timed(kernel):
    for point in dict.fromkeys(shrink(p) for p in EVERY_POINT if p.kernel == kernel):
        work = build(point, Pool(DEVICE, 2**22))
        for step in work.sets[-1]:
            step()
        assert work.check(len(work.sets) - 1) < 0.03
