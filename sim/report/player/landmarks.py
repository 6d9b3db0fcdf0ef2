"""Moments of a recording that are worth a jump: where what a pool is about happens first."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from sim.report.player.recordings import Recording

NOBODY = -1


class Landmark(NamedTuple):
    """A moment, in seconds: its name, what is seen there, and the request it is about or -1."""

    time_s: float
    title: str
    words: str
    request: int = NOBODY


def landmarks(recording: Recording) -> list[Landmark]:
    """What happens first of each kind, and where least is free, in order of time."""
    found = [
        *_of_iterations(recording),
        *_of_phases(recording.phases),
        *_of_events(recording),
        *_first_copy(recording),
    ]
    return sorted(found, key=lambda landmark: landmark.time_s)


def packed(recording: Recording) -> list[list[Any]]:
    """They as JSON can say it, times in nanoseconds."""
    return [[round(time_s * 1e9), *rest] for time_s, *rest in landmarks(recording)]


def _of_iterations(recording: Recording) -> Iterator[Landmark]:
    table, phases = recording.iterations, recording.phases
    if table.empty:
        return
    start_s = table["start_s"].to_numpy(np.float64)
    free = table["free"].to_numpy(np.int64)
    yield _fullest(table.iloc[int(free.argmin())], recording.num_slots)
    waits = np.flatnonzero(table["num_waiting"].to_numpy(np.int64) > 0)
    if len(waits):
        time_s = float(start_s[waits[0]])
        is_now = (phases["start_s"] <= time_s) & (phases["end_s"] > time_s)
        who = phases.loc[is_now & (phases["phase"].astype(str) == "queued"), "request"]
        request = int(who.iloc[0]) if len(who) else NOBODY
        name = "A request" if request == NOBODY else f"Request {request}"
        yield Landmark(
            time_s, "first to wait", f"{name} is the first that is not admitted at once.", request
        )


def _fullest(row: pd.Series, num_slots: int) -> Landmark:
    running, waiting, free = (int(row[name]) for name in ("num_running", "num_waiting", "free"))
    share = 100 * int(row["token_states"]) / max(1, num_slots)
    digits = 1 if share < 10 else 0
    free_text = "none is free" if free == 0 else f"{free:,} are free, which is the least there is"
    words = (
        f"{running:,} running, {waiting:,} waiting. Of {num_slots:,} slots {share:.{digits}f} %"
        f" hold tokens and {free_text}."
    )
    return Landmark(float(row["start_s"]), "fullest", words)


def _of_phases(phases: pd.DataFrame) -> Iterator[Landmark]:
    words = {
        "preempted": (
            "first preemption",
            "Request {} is preempted: what it held is given to others, and it has to be computed"
            " again.",
        ),
        "swapped": (
            "first swap",
            "Request {} is swapped out: its blocks go to the host's memory until there is room.",
        ),
    }
    names = phases["phase"].astype(str)
    for phase, (title, text) in words.items():
        rows = phases[names == phase]
        if len(rows):
            first = rows.iloc[int(rows["start_s"].to_numpy().argmin())]
            request = int(first["request"])
            yield Landmark(float(first["start_s"]), title, text.format(request), request)


def _of_events(recording: Recording) -> Iterator[Landmark]:
    events = recording.events
    shared = events[events["ref_count"] > 1]
    if len(shared):
        first = shared.iloc[0]
        request, many = int(first["request"]), int(first["ref_count"])
        yield Landmark(
            float(first["time_s"]),
            "first shared block",
            f"{many} block tables name {_place(recording, first)}: what they have in common is in"
            " memory once.",
            request,
        )
    cached = events[events["state"].astype(str) == "cached"]
    if len(cached):
        first = cached.iloc[0]
        yield Landmark(
            float(first["time_s"]),
            "first cached block",
            "A request has ended. Its blocks stay, held by nobody, for whoever begins with the same"
            " tokens, until the room is needed.",
        )


def _first_copy(recording: Recording) -> Iterator[Landmark]:
    """Where an entry of a table leaves a block that another sequence of the request keeps."""
    tables = recording.tables
    if tables is None or not (tables["sequence"] > 0).any():
        return
    held: dict[int, dict[int, dict[int, int]]] = {}  # request, sequence, index: the first slot
    for time_s, rows in tables.groupby("time_s", sort=True):
        moved = [move for row in rows.itertuples() if (move := _change(held, row)) is not None]
        for request, sequence, index, before, after in moved:
            others = [own for s, own in held[request].items() if s != sequence]
            if any(own.get(index) == before for own in others):
                yield _copy(recording, float(str(time_s)), request, before, after)
                return


def _change(held: dict[int, dict[int, dict[int, int]]], row: Any) -> tuple[int, ...] | None:
    """Do what a row of the tables says. If it moves an entry: whose, which, from and to where."""
    table = held.setdefault(row.request, {}).setdefault(row.sequence, {})
    if row.num_slots == 0:
        for index in [i for i in table if i >= row.index]:
            del table[index]
        return None
    before = table.pop(row.index, None)
    if row.place != "device":
        return None
    table[row.index] = row.start_slot
    if before is None or before == row.start_slot:
        return None
    return row.request, row.sequence, row.index, before, row.start_slot


def _copy(recording: Recording, time_s: float, request: int, before: int, after: int) -> Landmark:
    size = recording.block_size or 1
    return Landmark(
        time_s,
        "first copy on write",
        f"A sequence of request {request} writes into block {before // size:,}, which another one"
        f" shares. It gets a copy of its own, block {after // size:,}.",
        request,
    )


def _place(recording: Recording, event: pd.Series) -> str:
    start = int(event["start_slot"])
    size = recording.block_size
    return f"slot {start:,}" if size is None else f"block {start // size:,}"
