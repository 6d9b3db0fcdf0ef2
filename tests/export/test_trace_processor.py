"""Traces as Perfetto's trace processor reads them: without complaints, and as the tables say."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from trace_processor import TraceProcessor, trace_processor, why_not

from sim.allocators.terms import TERM_NAMES
from sim.export.perfetto import write_trace
from sim.stored import Stored, open_folder

pytestmark = pytest.mark.skipif(why_not() is not None, reason=why_not() or "")

SLICES = """
select process.name as process, thread.name as track, slice.name, slice.ts, slice.dur,
  extract_arg(slice.arg_set_id, 'args.request') as request, slice.depth
from slice join thread_track on slice.track_id = thread_track.id
join thread using (utid) join process using (upid) order by process.name, utid, ts
"""
COUNTERS = """
select process.name as process, process_counter_track.name, counter.ts, counter.value
from counter join process_counter_track on counter.track_id = process_counter_track.id
join process using (upid) order by process.name, process_counter_track.name, counter.id
"""


@pytest.fixture(scope="module")
def processor() -> Iterator[TraceProcessor]:
    with trace_processor() as running:
        yield running


def in_ns(seconds: pd.Series) -> list[int]:
    return np.rint(seconds.to_numpy() * 1e9).astype(np.int64).tolist()


def read(processor: TraceProcessor, stored: Stored, path: Path) -> None:
    """Give all runs of an experiment to the trace processor; it complains of nothing."""
    write_trace(path, stored, stored.made)
    processor.read(path.read_bytes())
    assert processor.complaints() == {}


def process_names(run: str, replicas: list[int]) -> dict[int, str]:
    several = len(replicas) > 1
    return {number: f"{run}, replica {number}" if several else run for number in replicas}


@pytest.mark.parametrize("name", ["recorded", "fleet", "sampled"])
def test_it_reads_every_phase_iteration_and_term_as_recorded(
    processor: TraceProcessor, tmp_path: Path, name: str, request: pytest.FixtureRequest
) -> None:
    stored = open_folder(request.getfixturevalue(name))
    read(processor, stored, tmp_path / "all.json.gz")
    slices, counters = processor.query(SLICES), processor.query(COUNTERS)
    assert (slices["dur"] >= 0).all()
    assert (slices["depth"] == 0).all()
    for run in stored.made:
        phases, steps = stored.table(run, "phases"), stored.table(run, "iterations")
        for replica, own in process_names(run, sorted(set(steps["replica"]))).items():
            shown = slices[slices["process"] == f"{own}: requests"]
            told = phases[phases["replica"] == replica]
            starts, ends = in_ns(told["start_s"]), in_ns(told["end_s"])
            expected = zip(told["phase"], starts, np.subtract(ends, starts).tolist(), strict=True)
            found = zip(shown["name"], shown["ts"], shown["dur"], strict=True)
            assert sorted(found) == sorted(expected)
            begins = shown["request"].dropna()
            assert sorted(begins) == sorted(
                told.groupby(["request", "sequence"]).first().index.get_level_values(0)
            )
            here = steps[steps["replica"] == replica]
            ran = here[here["num_running"] > 0]
            shown = slices[slices["process"] == f"{own}: engine"]
            assert shown["ts"].tolist() == in_ns(ran["start_s"])
            assert (shown["ts"] + shown["dur"]).tolist() == in_ns(ran["end_s"])
            check_counters(counters[counters["process"] == f"{own}: engine"], here)


def check_counters(shown: pd.DataFrame, steps: pd.DataFrame) -> None:
    """What a counter is at the start of each iteration is what is recorded of it."""
    columns = {f"KV slots {term}": term for term in TERM_NAMES}
    columns |= {f"requests {name}": name for name in ("num_running", "num_waiting")}
    assert set(shown["name"]) == set(columns)
    starts = in_ns(steps["start_s"])
    for name, column in columns.items():
        own = shown[shown["name"] == name]
        assert own["ts"].is_monotonic_increasing
        last = np.searchsorted(own["ts"].to_numpy(np.int64), starts, side="right") - 1
        assert own["value"].to_numpy()[last].tolist() == steps[column].tolist()
        assert own["ts"].iloc[-1] == in_ns(steps["end_s"])[-1]


def test_tracks_are_named_after_requests_and_hold_what_runs_beside_them(
    processor: TraceProcessor, fleet: Path, tmp_path: Path
) -> None:
    stored = open_folder(fleet)
    read(processor, stored, tmp_path / "trace.json")
    slices = processor.query(SLICES)
    of_requests = slices[slices["process"].str.endswith(": requests")]
    assert set(of_requests["track"]) == {
        f"request {number}{beside}"
        for number in range(24)
        for beside in ("", ", beside 1", ", beside 2")
    }


def test_a_trace_that_is_cut_or_not_as_it_should_be_is_complained_of(
    processor: TraceProcessor, recorded: Path, tmp_path: Path
) -> None:
    """So that no complaint means something."""
    stored = open_folder(recorded)
    write_trace(tmp_path / "trace.json", stored, stored.made)
    text = (tmp_path / "trace.json").read_text()
    with pytest.raises(AssertionError, match="incomplete"):
        processor.read(text[: len(text) // 2].encode())
    processor.read(text.replace('"ph":"E"', '"pf":"E"', 3).encode())
    assert processor.complaints() == {"json_tokenizer_failure": 3}
