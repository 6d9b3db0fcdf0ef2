"""What a calibration does when something goes wrong: before it starts, in a step, in a point."""

import json
import time
from argparse import Namespace

import pytest

from kernels import standins
from kernels.calibrate import __main__ as command
from kernels.calibrate import ceilings, correctness, output, provenance, timing
from kernels.calibrate.grid import Section, decode_point
from kernels.calibrate.pool import Device, Pool
from kernels.calibrate.run import Calibration
from kernels.cases import Shape, make_case


class NoTimer:
    """Times nothing."""

    def warm(self, sets):
        raise RuntimeError("no GPU")


def calibration(folder, **document):
    document = {
        "failures": {}, "ceilings": {}, "sentinels": [], "kernels": {}, "sections": {},
        "status": "incomplete", **document,
    }  # fmt: skip
    pool = Pool(Device("cpu", l2_bytes=2**12), 2**20)
    deadline = time.monotonic() + 600
    return Calibration(folder, pool, NoTimer(), deadline, document, say=lambda line: None)


class FakeGraph:
    ended = False

    def capture_begin(self):
        pass

    def capture_end(self):
        FakeGraph.ended = True


def test_a_step_that_raises_does_not_leave_a_capture_open(monkeypatch):
    class Stream:
        def __enter__(self):
            return self

        def __exit__(self, *reason):
            return False

    monkeypatch.setattr("torch.cuda.Stream", Stream)
    monkeypatch.setattr("torch.cuda.stream", lambda stream: stream)
    monkeypatch.setattr("torch.cuda.CUDAGraph", FakeGraph)
    timer = timing.GraphTimer()
    timer.warm = lambda sets: []

    def fails():
        raise ValueError("a step")

    with pytest.raises(ValueError, match="a step"):
        timer.graph([[fails]], 1)
    assert FakeGraph.ended


def test_a_check_that_raises_costs_its_point_and_not_the_run(tmp_path, monkeypatch):
    run = calibration(tmp_path)
    run.timer.warm = lambda sets: [None] * len(sets[0])
    run.timer.graph = lambda sets, count: timing.summarise([100.0 * count] * 8, count)

    def judge(*rest):
        raise RuntimeError("out of memory")

    monkeypatch.setattr(run, "_judge", judge)
    row = run.measure(decode_point("decode", 16, 1, 16))
    assert row["ok"] == 0
    assert "failed: RuntimeError: out of memory" in row["note"]


def test_the_exit_code_tells_of_failed_points_steps_and_of_nothing_run(tmp_path):
    run = calibration(tmp_path)
    assert run.failed()
    run.rows = [{"ok": 0, "note": "noisy"}, {"ok": 1, "note": ""}]
    assert not run.failed()
    run.rows.append({"ok": 0, "note": "output is off by 5.0e-01"})
    assert run.failed()
    run.rows = [{"ok": 0, "note": "noisy"}]
    assert run.failed()
    run.rows, run.document["failures"] = [{"ok": 1, "note": ""}], {"ceilings": "why"}
    assert run.failed()
    run = calibration(tmp_path)
    run.run([Section("decode", [decode_point("decode", 16, 1, 16)])])
    assert run.failed()


def test_a_step_that_raises_is_recorded_and_the_rest_goes_on():
    def fails():
        raise RuntimeError("no compiler")

    document = {"failures": {}, "compiled": []}
    command.attempt(document, "compiled", fails)
    assert document == {"failures": {"compiled": "RuntimeError: no compiler"}, "compiled": []}


def test_a_ceiling_that_cannot_be_measured_leaves_the_others(monkeypatch):
    def fails():
        raise RuntimeError("no memory")

    each = {"read_tb_s": fails, "empty_graph_us": lambda: 2.0}
    monkeypatch.setattr(ceilings, "measures", lambda pool, timer: each)
    found, failures = ceilings.measure_ceilings(None, None)
    assert found == {"empty_graph_us": 2.0}
    assert failures == {"read_tb_s": "RuntimeError: no memory"}


def test_files_of_an_earlier_run_are_gone_before_anything_is_timed(tmp_path):
    (tmp_path / "points.csv").write_text("old")
    (tmp_path / "calibration.json").write_text("old")
    command.start_files(tmp_path, {"status": "incomplete"})
    assert not (tmp_path / "points.csv").exists()
    assert json.loads((tmp_path / "calibration.json").read_text()) == {"status": "incomplete"}


def test_a_run_is_complete_only_once_it_has_finished(tmp_path):
    run = calibration(tmp_path)
    run.write()
    assert json.loads((tmp_path / "calibration.json").read_text())["status"] == "incomplete"
    run.rows, run._needs = [output.empty_row(decode_point("x", 16, 1, 16))], [set()]
    run.rows[0]["ok"] = 1
    run.finish()
    assert json.loads((tmp_path / "calibration.json").read_text())["status"] == "complete"


def test_tables_of_the_checks_are_as_wide_as_those_that_are_timed():
    case = make_case(Shape(block_size=16), [700, 20])
    table = correctness.padded_table(case).block_table
    assert table.shape[1] % 16 == 0
    assert table.shape[1] >= case.block_table.shape[1]


def test_a_calibration_of_these_kernels_agrees_and_one_of_others_names_the_file(tmp_path):
    file = tmp_path / "calibration.json"
    hashes = provenance.kernel_hashes()
    assert {"decode_kernel.py", "calibrate/timing.py"} <= set(hashes)
    file.write_text(json.dumps({"kernel_files": hashes}))
    assert provenance.changed_files(file) == []
    file.write_text(json.dumps({"kernel_files": {**hashes, "decode.py": "0", "gone.py": "1"}}))
    assert provenance.changed_files(file) == ["decode.py", "gone.py"]


def test_committed_calibrations_were_measured_with_these_kernels():
    for file in sorted(provenance.KERNELS.glob("calibrations/*/calibration.json")):
        changed = [n for n in provenance.changed_files(file) if not n.startswith("calibrate/")]
        assert changed == [], file.parent.name


@pytest.mark.parametrize("value", ["1", "true", "ON"])
def test_every_way_to_ask_for_the_interpreter_is_refused(tmp_path, monkeypatch, value):
    monkeypatch.setenv("TRITON_INTERPRET", value)
    args = Namespace(budget=1.0, workers=None, out=tmp_path)
    assert "TRITON_INTERPRET is set" in command.refusal(args)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--out", "/dev/null/x"], "--out /dev/null/x cannot be"),
        (["--out", __file__], "is a file"),
        (["--out", __file__ + "/below"], "is a file"),
        (["--out", "new", "--workers", "-1"], "--workers must be at least 1, not -1"),
    ],
)
def test_a_bad_argument_gets_one_sentence_and_exit_code_2(capsys, arguments, sentence):
    assert command.main(arguments) == 2
    said = capsys.readouterr().err
    assert sentence in said
    assert said.count("\n") == 1


@pytest.mark.parametrize("name", ["calibration.json", "points.csv", "dry.json"])
def test_an_output_that_is_a_folder_already_gets_one_sentence_and_exit_code_2(
    tmp_path, capsys, name
):
    (tmp_path / name).mkdir()
    assert command.main(["--out", str(tmp_path)]) == 2
    assert (
        capsys.readouterr().err == f"--out {tmp_path} cannot be used: {name} in it is a folder.\n"
    )


def test_the_static_table_refuses_an_architecture_it_does_not_know(capsys):
    assert standins.main(["--arch", "42"]) == 2
    assert "--arch must be one of" in capsys.readouterr().err
