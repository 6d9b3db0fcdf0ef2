"""Notes that compare rows: drift between sentinels, repeated points, trends, copies."""

import csv

import pytest

from kernels.calibrate import notes, output, points, provenance
from kernels.calibrate.grid import Section, decode_point, sections
from kernels.calibrate.points import Point
from kernels.calibrate.pool import Device, Pool
from kernels.calibrate.run import Calibration
from kernels.calibrate.timing import summarise

SMALL = [decode_point("x", 16, 1, 16 + i) for i in range(100)]


def timed_row(point, us):
    row = output.empty_row(point)
    output.fill_times(row, summarise([us] * 8, 1))
    row["ok"] = 1
    return row


def rows_of(count):
    return [timed_row(SMALL[0], 10.0) for _ in range(count)]


def sentinels(*pairs):
    return [{"after_points": after, "us": us, "ok": int(us is not None)} for after, us in pairs]


def marked(rows):
    return [i for i, row in enumerate(rows) if "drift" in row["note"]]


def test_only_rows_beside_a_sentinel_that_deviates_are_marked():
    rows = rows_of(8)
    notes.mark_drift(rows, sentinels((0, 100.0), (2, 101.0), (4, 110.0), (6, 100.0), (8, 99.0)))
    assert marked(rows) == [2, 3, 4, 5]
    assert rows[2]["note"] == "drift 10.0%"


def test_rows_before_the_first_deviation_are_marked_once_it_is_known_to_be_one():
    rows = rows_of(4)
    notes.mark_drift(rows, sentinels((0, 110.0), (2, 110.0)))
    assert marked(rows) == []  # all that was seen so far agrees
    notes.mark_drift(rows, sentinels((0, 110.0), (2, 110.0), (4, 100.0), (4, 100.0), (4, 100.0)))
    assert marked(rows) == [0, 1, 2, 3]


def test_marks_are_replaced_and_not_added_up():
    rows = rows_of(2)
    rows[0]["note"] = "noisy"
    found = sentinels((0, 100.0), (1, 100.0), (2, 120.0))
    for _ in range(2):
        notes.mark_drift(rows, found)
    assert rows[0]["note"] == "noisy"
    assert rows[1]["note"] == "drift 20.0%"
    notes.mark_drift(rows, sentinels((0, 100.0), (2, 100.0)))
    assert rows[1]["note"] == ""


def test_sentinels_that_could_not_be_timed_show_no_drift():
    assert notes.drift(sentinels((0, None), (5, 100.0))) is None
    assert notes.drift(sentinels((0, 100.0), (5, 104.0), (9, 100.0))) == pytest.approx(0.04)


def test_repeated_points_are_compared_and_marked():
    rows = rows_of(4)
    again = [timed_row(SMALL[0], us) for us in (10.0, 10.1, 9.9, 11.0)]
    for _ in range(2):  # marks are made anew, not added up
        found = notes.repeated(list(zip(rows, again, strict=True)))
    assert found["points"] == 4
    assert found["worst"] == pytest.approx(0.1)
    assert found["median"] == pytest.approx(0.01)
    assert found["share_within_2_percent"] == 0.75
    assert rows[3]["note"] == "repeated: 10.0% apart"
    assert rows[1]["note"] == ""
    assert found["each"][3]["again_us"] == 11.0


def test_a_refused_repeat_is_recorded_and_not_compared():
    rows, again = rows_of(2), [timed_row(SMALL[0], us) for us in (10.0, 0.1)]
    again[1].update(ok=0, note="reads faster than the read ceiling")
    found = notes.repeated(list(zip(rows, again, strict=True)))
    assert (found["points"], found["worst"]) == (1, 0.0)
    assert [r["note"] for r in found["refused"]] == ["reads faster than the read ceiling"]
    assert rows[1]["note"] == ""


def test_a_refused_sentinel_shows_no_drift():
    found = sentinels((0, 100.0), (5, 1.0), (9, 100.0))
    found[1]["ok"] = 0
    assert notes.drift(found) == 0.0


def test_without_repeats_there_is_no_share():
    assert notes.repeated([])["share_within_2_percent"] is None


def test_a_time_that_falls_with_the_length_is_noted():
    rows = [
        timed_row(decode_point("decode", 16, 8, n), us) for n, us in ((512, 20.0), (1024, 15.0))
    ]
    notes.note_trends(rows)
    assert rows[1]["note"] == "faster than length below it"
    assert rows[0]["note"] == ""


def test_paged_faster_than_contiguous_is_noted():
    rows = [
        timed_row(decode_point("decode", "contiguous", 8, 512), 20.0),
        timed_row(decode_point("decode", 16, 8, 512), 15.0),
    ]
    notes.note_trends(rows)
    assert rows[1]["note"] == "faster than contiguous"


def test_a_copy_says_what_a_block_costs_and_what_limits_it():
    def copy(count, kib, variant, us):
        return timed_row(Point("host_link", "h2d", variant, size=(count, kib * 1024)), us)

    large = copy(1, 2**18, "memcpy", 5000.0)  # 53.7 GB/s
    rows = [large, copy(256, 4, "memcpy", 512.0), copy(256, 4, "issued", 1280.0)]
    rows += [copy(256, 4, "kernel", 21.0)]
    notes.note_host_link(rows)
    assert large["note"] == "5000.00 us a block, limited by the link"
    assert rows[1]["note"] == "2.00 us a block, limited by the single blocks"
    assert rows[2]["note"] == "5.00 us a block, limited by issuing"
    assert rows[3]["note"] == "0.08 us a block, limited by the link"


def test_a_refused_copy_sets_no_rate_of_the_link():
    rows = [
        timed_row(Point("host_link", "h2d", "memcpy", size=(1, 2**28)), us) for us in (10.0, 5000.0)
    ]
    rows[0].update(ok=0, note="moves bytes faster than the host link")
    notes.note_host_link(rows)
    assert rows[0]["note"] == "moves bytes faster than the host link"
    assert rows[1]["note"] == "5000.00 us a block, limited by the link"


def test_copies_are_timed_in_a_graph_unless_their_issuing_is_what_is_timed():
    copies = [p for s in sections(0) for p in s.points if p.kernel in ("h2d", "d2h")]
    assert all(p.eager == (p.variant == "issued") for p in copies)
    assert {p.variant for p in copies} == {"memcpy", "kernel", "issued"}


class Clock:
    """A timer whose machine slows down after some points."""

    def __init__(self, slow_after):
        self.slow_after, self.count, self.seen = slow_after, 0, []

    def warm(self, sets):
        return [None] * len(sets[0])

    def graph(self, sets, count):
        self.count += 1
        us = 110.0 if self.count > self.slow_after else 100.0
        return summarise([us * count] * 8, count)


def run_with(folder, timer, plan, monkeypatch):
    monkeypatch.setattr(provenance, "machine_state", dict)
    monkeypatch.setattr("kernels.calibrate.run.build", lambda point, pool: NoWork())
    monkeypatch.setattr(points, "predicted_s", lambda point, pace: 0.0)
    document = {"ceilings": {}, "sentinels": [], "kernels": {}, "sections": {}}
    pool = Pool(Device("cpu", l2_bytes=2**12), 2**20)
    run = Calibration(folder, pool, timer, 1e12, document, say=lambda line: None)
    run.run(plan)
    run.finish()
    return run


class NoWork:
    sets, splits, tile_bytes, check = [[lambda: None]], 0, 0, None


def test_a_run_begins_and_ends_with_a_sentinel_and_has_one_every_thirty_points(
    tmp_path, monkeypatch
):
    plan = [Section("a", SMALL[:50]), Section("b", SMALL[50:])]
    run = run_with(tmp_path, Clock(10**6), plan, monkeypatch)
    assert [s["after_points"] for s in run.document["sentinels"]] == [0, 30, 60, 90, 100]
    assert run.document["sentinel_drift"] == 0.0


def test_rows_that_were_written_before_the_machine_slowed_down_are_not_marked(
    tmp_path, monkeypatch
):
    # one sentinel, 60 points with another between and after them, then slow
    run = run_with(tmp_path, Clock(63), [Section("a", SMALL)], monkeypatch)
    assert marked(run.rows) == list(range(60, 100))
    written = list(csv.DictReader((tmp_path / "points.csv").read_text().splitlines()))
    assert [i for i, row in enumerate(written) if "drift" in row["note"]] == marked(run.rows)


def test_every_twentieth_point_is_timed_again_after_the_next_section(tmp_path, monkeypatch):
    plan = [Section("a", SMALL[:50]), Section("b", SMALL[50:])]
    run = run_with(tmp_path, Clock(105), plan, monkeypatch)
    repeats = run.document["repeats"]
    assert repeats["points"] == 5
    assert repeats["worst"] == pytest.approx(0.1)
    assert len(run.rows) == 100  # what is timed again is no row of its own


def test_sentinels_of_a_run_without_times_are_a_failure(tmp_path, monkeypatch):
    class Never(Clock):
        def graph(self, sets, count):
            raise RuntimeError("no GPU")

    run = run_with(tmp_path, Never(0), [Section("a", SMALL[:2])], monkeypatch)
    assert "drift is unknown" in run.document["failures"]["drift"]
    assert "after 0 points: failed: RuntimeError" in run.document["failures"]["sentinels"]
    assert run.document["sentinel_drift"] is None


def test_a_sentinel_that_is_impossible_in_the_middle_is_a_failure_with_its_reason(
    tmp_path, monkeypatch
):
    class Once(Clock):
        def graph(self, sets, count):
            timing = super().graph(sets, count)
            return summarise([0.01 * count] * 8, count) if self.count == 32 else timing

    run = run_with(tmp_path, Once(10**6), [Section("a", SMALL[:50])], monkeypatch)
    assert [s["ok"] for s in run.document["sentinels"]] == [1, 0, 1]
    assert "the read ceiling" in run.document["failures"]["sentinels"]
    assert run.document["sentinel_drift"] == 0.0
    assert marked(run.rows) == []
    assert run.failed()


def test_an_old_driver_is_asked_by_the_old_name_of_why_clocks_are_held_back(monkeypatch):
    asked = []

    def smi(query):
        asked.append(query)
        old = "clocks_throttle_reasons.active" in query
        return {"clocks.sm": "1980", "clocks_throttle_reasons.active": "0x4"} if old else {}

    monkeypatch.setattr(provenance, "smi", smi)
    assert provenance.machine_state()["clocks_event_reasons.active"] == "0x4"
    assert "clocks_event_reasons.active" in asked[0]
    monkeypatch.setattr(provenance, "smi", lambda query: {"clocks_event_reasons.active": "0x1"})
    assert provenance.machine_state() == {"clocks_event_reasons.active": "0x1"}
