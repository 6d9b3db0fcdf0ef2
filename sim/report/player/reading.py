"""The recorded runs of an experiment, from its folder of results."""

from __future__ import annotations

import pandas as pd

from sim.figures.tables import Group, groups, is_empty
from sim.recording.tables import NAMES
from sim.report.player.recordings import MAX_SLOTS, TERMS, Recording, slots_of
from sim.report.text import MAX_SHOWN, visible
from sim.results.files import ResultsError
from sim.stored import Stored


def recordings(stored: Stored) -> list[Recording]:
    """Of runs that differ in their seed only, the first; in the order of the summary.

    Runs that recorded nothing are left out. Raises ResultsError if a file cannot be read.
    """
    if stored.facts.is_search or not stored.has_runs:
        return []
    return [
        _recording(stored, group)
        for group in groups(stored.summary)
        if set(NAMES) <= set(stored.table_names(group.first_run))
    ]


def _recording(stored: Stored, group: Group) -> Recording:
    run, row = group.first_run, group.runs.iloc[0]
    read = {name: stored.table(run, name) for name in NAMES}
    tables = {name: table for name, table in read.items() if table is not None}
    num_slots = slots_of(tables["iterations"]) or _number(row, "num_slots")
    wrong = _misfit(tables, num_slots)
    if wrong is not None:
        raise ResultsError(f"{run}: {wrong}.parquet leaves its pool; run the experiment again")
    every = _number(row, "record_every") or 1
    iterations = tables["iterations"]
    return Recording(
        label=_shown(group.label),
        allocator="" if is_empty(row.get("allocator")) else str(row["allocator"]),
        num_slots=num_slots,
        block_size=_number(row, "record_block_size") or None,
        iterations=iterations,
        phases=tables["phases"],
        events=tables["block_events"],
        tables=tables["table_events"],
        num_moments_recorded=every * len(iterations) if every > 1 else None,
    )


def _misfit(tables: dict[str, pd.DataFrame], slots: int) -> str | None:
    """The table that has slots which a pool of so many has not; None if all fit."""
    if not len(tables["block_events"]) and not len(tables["table_events"]):
        return None  # memory without addresses, which may be without a limit, too
    terms = tables["iterations"][list(TERMS)]
    if (terms < 0).any(axis=None) or (terms.sum(axis=1) != slots).any() or slots > MAX_SLOTS:
        return "iterations"
    events, entries = tables["block_events"], tables["table_events"]
    parts = events[["start_slot", "num_slots", "num_written", "num_reserved"]]
    holds = events["num_written"] + events["num_reserved"]
    ends = events["start_slot"] + events["num_slots"]
    if (parts < 0).any(axis=None) or (ends > slots).any() or (holds > events["num_slots"]).any():
        return "block_events"
    here = entries[entries["place"].astype(str) == "device"]
    is_out = (here["num_slots"] < 0) | (here["start_slot"] + here["num_slots"] > slots)
    return "table_events" if is_out.any() else None


def _shown(label: str) -> str:
    """A label in which every character can be seen, cut where it is too long for a chooser."""
    text = visible(" ".join(label.split()))
    return text if len(text) <= MAX_SHOWN else text[: MAX_SHOWN - 1] + "…"


def _number(row: pd.Series, name: str) -> int:
    """A count in the summary, 0 if it is empty."""
    value = row.get(name)
    return 0 if is_empty(value) else int(float(str(value)))
