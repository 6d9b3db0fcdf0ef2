"""Runs as a trace in the Chrome JSON format, for ui.perfetto.dev and chrome://tracing.

The format is the "Trace Event Format" of Chromium's catapult project: a list of events, times `ts`
in microseconds. A replica is two processes: one has a track of its iterations and counters, the
other a track for each request, and for what runs beside it: samples and beams take the first track
of their request that is free. Slices are pairs of begin (B) and end (E) events, not X events with a
duration, so that two that touch never overlap by a rounding error. Counters (C) are the six terms
in slots, and requests running and waiting, as they are from then on.

A run with `record: blocks` shows all of that; of a sampled one, the iterations that were kept. Of
another run the slices are what requests.parquet knows, queued, prefill and decode; preemptions are
not among it; and counters are the averages of timeline.parquet. What is missing is said, in the
trace's otherData too.
"""

from __future__ import annotations

import gzip
import heapq
import io
import itertools
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, cast

import numpy as np
import pandas as pd

from sim.allocators.terms import TERM_NAMES
from sim.results import files as results
from sim.stored import Stored

ITERATIONS_TRACK = 0
FIRST_PID = 1_000_000  # a track of the same number would count as the main one, and come first
MAX_NAME = 200
PIECE = 1 << 16  # rows of a table that are made into events at once
COUNTS = ("num_running", "num_waiting")
TOKENS, WORK = ("prompt_tokens", "decode_tokens"), ("prefill", "decode")
FACTS = ("prompt_tokens", "output_tokens", "num_preemptions", "status", "reason")
SAMPLED = (
    "one iteration in {} was recorded (max_events): the others are not shown, and counters keep "
    "their values until the next one"
)
NOT_RECORDED = (
    "phases and iterations were not recorded (record: blocks): preemptions and iterations are not "
    "shown, prefill lasts to the first token, and counters are averages over buckets of time"
)

Event = dict[str, Any]
Row = tuple[int, int, str, float, float]  # request, sequence, phase, start and end in µs
ENCODER = json.JSONEncoder(separators=(",", ":"), allow_nan=False)


def write_trace(path: Path, stored: Stored, runs: Iterable[str]) -> list[str]:
    """Write runs as one trace, gzipped if the name ends in .gz; what is missing, in sentences.

    Raises ResultsError if tables cannot be read, or the file not be written.
    """
    missing = []
    pids = itertools.count(FIRST_PID)
    with results.replacing(path) as temporary, _text(temporary, path.suffix == ".gz") as file:
        file.write('{"displayTimeUnit": "ms", "traceEvents": [')
        before = "\n"
        for run in runs:
            if "phases" not in stored.table_names(run):
                missing.append(f"{run}: {NOT_RECORDED}")
            elif stored.record_every(run) > 1:
                missing.append(f"{run}: {SAMPLED.format(stored.record_every(run))}")
            for event in run_events(stored, run, pids):
                file.write(before)
                file.write(ENCODER.encode(event))
                before = ",\n"
        notes = {"experiment": stored.facts.name, "missing": missing}
        file.write(f'\n], "otherData": {json.dumps(notes)}}}\n')
    return missing


@contextmanager
def _text(path: Path, is_zipped: bool) -> Iterator[IO[str]]:
    """A text file to write; zipped without a name and a time in it, so that its bytes are known."""
    with path.open("wb") as raw:
        binary = gzip.GzipFile("", "wb", 6, raw, mtime=0) if is_zipped else raw
        with io.TextIOWrapper(cast(IO[bytes], binary), encoding="utf-8", newline="\n") as file:
            yield file


def run_events(stored: Stored, run: str, pids: Iterator[int]) -> Iterator[Event]:
    """The events of a run, whose processes take their ids from pids; by track, in order of time.

    Raises ResultsError for a run without requests, such as one of policies.
    """
    requests, timeline = stored.table(run, "requests"), stored.table(run, "timeline")
    if requests is None or timeline is None:
        raise results.ResultsError(
            f"{stored.folder}: {run} has no requests to show; accepted: runs of an engine"
        )
    phases, steps = stored.table(run, "phases"), stored.table(run, "iterations")
    is_recorded = phases is not None and steps is not None
    if phases is None or steps is None:
        timeline["end_s"] = timeline["start_s"] + timeline["width_s"]
        steps = timeline.assign(replica=0)
        phases = known_phases(requests, timeline["end_s"].max())
    replicas = sorted({*phases["replica"].tolist(), *steps["replica"].tolist()})
    facts = dict(zip(requests["request"].tolist(), _records(requests, FACTS), strict=True))
    for replica in replicas:
        own = f"{run}, replica {replica}" if len(replicas) > 1 else run
        pid = next(pids)
        yield from _process(pid, f"{own}: engine" if is_recorded else f"{own}: averages")
        here = steps[steps["replica"] == replica]
        if is_recorded:
            ran = here[here[["num_running", *TOKENS]].any(axis=1)]
            yield from _iterations(pid, ran, stored.record_every(run))
        yield from _counters(pid, here)
        pid = next(pids)
        yield from _process(pid, f"{own}: requests")
        yield from _lives(pid, phases[phases["replica"] == replica], facts)


def known_phases(requests: pd.DataFrame, end_s: float) -> pd.DataFrame:
    """What requests.parquet knows of phases: the columns of phases.parquet. end_s is the run's."""
    ends = requests["finish_s"].fillna(end_s)
    bounds = [requests["arrival_s"], requests["first_scheduled_s"], requests["first_token_s"], ends]
    stretches = []
    for number, phase in enumerate(("queued", "prefill", "decode")):
        until = bounds[number + 1]
        for later in bounds[number + 2 :]:
            until = until.fillna(later)
        table = {"request": requests["request"], "sequence": 0, "phase": phase}
        table |= {"start_s": bounds[number], "end_s": until}
        table["replica"] = requests.get("replica", 0)
        stretches.append(pd.DataFrame(table))
    phases = pd.concat(stretches, ignore_index=True)
    phases = phases[(phases["start_s"] < phases["end_s"]) & (phases["replica"] >= 0)]
    return phases.sort_values(["request", "start_s"], kind="stable", ignore_index=True)


def _process(pid: int, name: str) -> Iterator[Event]:
    yield {"ph": "M", "name": "process_name", "pid": pid, "args": {"name": label(name)}}
    yield {"ph": "M", "name": "process_sort_index", "pid": pid, "args": {"sort_index": pid}}


def _thread(pid: int, tid: int, name: str) -> Iterator[Event]:
    place = {"ph": "M", "pid": pid, "tid": tid}
    yield {**place, "name": "thread_name", "args": {"name": label(name)}}
    yield {**place, "name": "thread_sort_index", "args": {"sort_index": tid}}


def label(text: str) -> str:
    """A name on one line: what cannot be printed is shown as such, what is too long is cut."""
    line = "".join(c if c.isprintable() else "\ufffd" for c in " ".join(text.split()))
    return line if len(line) <= MAX_NAME else line[: MAX_NAME - 1] + "…"


def _slice(place: Event, name: str, times: tuple[float, float], args: Event) -> Iterator[Event]:
    """A slice from one time to another, in µs."""
    yield {"ph": "B", **place, "name": name, "ts": times[0], "args": args}
    yield {"ph": "E", **place, "ts": times[1]}


def _microseconds(seconds: pd.Series) -> list[float]:
    """Times in µs, of whole nanoseconds."""
    found: list[float] = (np.rint(seconds.to_numpy() * 1e9) / 1e3).tolist()
    return found


def _iterations(pid: int, steps: pd.DataFrame, every: int) -> Iterator[Event]:
    """The track of a replica's iterations, of which every so manieth was recorded."""
    yield from _thread(
        pid, ITERATIONS_TRACK, f"iterations, 1 in {every}" if every > 1 else "iterations"
    )
    place = {"pid": pid, "tid": ITERATIONS_TRACK, "cat": "iteration"}
    columns = _records(steps, [*COUNTS, *TOKENS])
    times = zip(_microseconds(steps["start_s"]), _microseconds(steps["end_s"]), strict=True)
    for between, args in zip(times, columns, strict=True):
        names = [word for word, column in zip(WORK, TOKENS, strict=True) if args[column]]
        yield from _slice(place, " and ".join(names) or "iteration", between, args)


def _counters(pid: int, steps: pd.DataFrame) -> Iterator[Event]:
    """The terms, and requests running and waiting, at the start of each step; the last at its end.

    A sample that says what the one before said is left out.
    """
    times = _microseconds(steps["start_s"])
    for name, columns in (("KV slots", list(TERM_NAMES)), ("requests", list(COUNTS))):
        last: Event | None = None
        place = {"ph": "C", "pid": pid, "name": name}
        for ts, args in zip(times, _records(steps, columns), strict=True):
            if args != last:
                yield {**place, "ts": ts, "args": args}
            last = args
        if last is not None:
            yield {**place, "ts": _microseconds(steps["end_s"])[-1], "args": last}


def _lives(pid: int, phases: pd.DataFrame, facts: Mapping[int, Event]) -> Iterator[Event]:
    """The tracks of each request, with the phases of its sequences.

    A sequence's first slice has the facts of its request.
    """
    ordered = phases.sort_values(["request", "sequence", "start_s"], kind="stable")
    columns = [ordered[name].tolist() for name in ("request", "sequence", "phase")]
    times = _microseconds(ordered["start_s"]), _microseconds(ordered["end_s"])
    step = 10 ** len(str(ordered["request"].max()))  # between the tracks of a request
    rows = zip(*columns, *times, strict=True)
    for request, own in itertools.groupby(rows, key=lambda row: row[0]):
        lives = [list(life) for _, life in itertools.groupby(own, key=lambda row: row[1])]
        for beside, track in enumerate(_tracks(lives)):
            tid = request + beside * step
            name = f"request {request}" + (f", beside {beside}" if beside else "")
            yield from _thread(pid, tid, name)
            place = {"pid": pid, "tid": tid, "cat": "request"}
            for life in track:
                args = {"request": request, "sequence": life[0][1], **facts[request]}
                for _, _, phase, start, end in life:
                    yield from _slice(place, phase, (start, end), args)
                    args = {}


def _tracks(lives: list[list[Row]]) -> list[list[list[Row]]]:
    """The lives of a request's sequences, one after the other on as few tracks as hold them.

    Each takes the first track that is free when it begins.
    """
    tracks: list[list[list[Row]]] = []
    free: list[int] = []
    busy: list[tuple[float, int]] = []  # until when, and which track
    for life in sorted(lives, key=lambda life: life[0][3]):
        while busy and busy[0][0] <= life[0][3]:
            heapq.heappush(free, heapq.heappop(busy)[1])
        if not free:
            free.append(len(tracks))
            tracks.append([])
        number = heapq.heappop(free)
        tracks[number].append(life)
        heapq.heappush(busy, (life[-1][4], number))
    return tracks


def _records(table: pd.DataFrame, columns: Sequence[str]) -> Iterator[Event]:
    """The rows as mappings, of plain Python values."""
    for first in range(0, len(table), PIECE):
        piece = table.iloc[first : first + PIECE]
        for row in zip(*(piece[column].tolist() for column in columns), strict=True):
            yield dict(zip(columns, row, strict=True))
