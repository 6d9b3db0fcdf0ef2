"""What a reader must keep in mind of an experiment's results, in sentences."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from sim.report.reading import Read
from sim.report.tables import Row
from sim.report.text import Cell
from sim.stored.runs import Manifest

WARNING = "warning "  # what a budget line that is one begins with
MOST = 12  # reasons or changes that are written out
HARMLESS = ("taken for", "ignored", "sub-agents")  # notes that change no request
COUNTED = {
    "num_rejected": (
        "request was rejected, because it can never fit",
        "requests were rejected, because they can never fit",
    ),
    "num_failed": ("request failed", "requests failed"),
    "num_unfinished": (
        "request was unfinished when the run ended",
        "requests were unfinished when the run ended",
    ),
    "num_truncated": (
        "output was cut at the longest sequence",
        "outputs were cut at the longest sequence",
    ),
    "num_max_tokens_cuts": ("output was cut at max_tokens", "outputs were cut at max_tokens"),
}
ENDED = {
    "skipped": "cannot be, and were skipped",
    "error": "failed",
    "stalled": "stalled: nothing could happen any more, with requests left",
}


def warnings_of(read: Read) -> list[str]:
    """All of it: of the experiment, its runs, its times, its traces, and what is missing."""
    rows = read.runs.rows if read.runs else []
    said = [
        line.removeprefix(WARNING).strip() for line in read.facts.budget if line.startswith(WARNING)
    ]
    is_said_above = any(line.startswith("skipped") for line in said)
    return [
        *_ended(rows, {"skipped"} if is_said_above else set()),
        *said,
        *_counted(rows),
        *extrapolation_warnings(rows),
        *sampled_warnings(rows),
        *_changes(read.manifests.values()),
        *read.missing,
    ]


def extrapolation_warnings(rows: Iterable[Mapping[str, Any]]) -> list[str]:
    """One sentence for each cost profile whose range some runs left, with their counts."""
    found: dict[str, list[Mapping[str, Any]]] = {}
    for row in rows:
        count = row.get("num_extrapolated_iterations")
        if isinstance(count, int) and count:
            source = str(row.get("times_from")).partition(":")[2] or str(row.get("times_from"))
            found.setdefault(source.partition(",")[0].strip(), []).append(row)
    lines = []
    for profile, own in found.items():
        outside = sum(row["num_extrapolated_iterations"] for row in own)
        totals = [row.get("num_iterations") for row in own]
        total = sum(count for count in totals if isinstance(count, int))
        worst = max(own, key=lambda row: row["num_extrapolated_iterations"])
        lines.append(
            f"cost profile {profile}: {outside:,} times an iteration (of {total:,}, in {len(own)} "
            f"runs) was outside of the sizes it was fitted to; most in {worst.get('run')}: "
            f"{worst.get('extrapolated')}"
        )
    return lines


def sampled_warnings(rows: Iterable[Mapping[str, Any]]) -> list[str]:
    """One sentence if runs had more events than they may record, about the one with most."""
    sampled = [
        row for row in rows if isinstance(every := row.get("record_every"), int) and every > 1
    ]
    if not sampled:
        return []
    worst = max(sampled, key=lambda row: row["record_every"])
    return [
        f"record: more rows than max_events in {len(sampled)} runs: only some iterations are "
        f"recorded; fewest in {worst.get('run')}, every {worst['record_every']}th"
    ]


def _ended(rows: Sequence[Row], silent: set[str]) -> Iterator[str]:
    """Runs that have not finished, by how they ended, with their reasons."""
    by_status: dict[str, list[Row]] = {}
    for row in rows:
        by_status.setdefault(str(row.get("status")), []).append(row)
    for status, own in by_status.items():
        if status == "finished" or "status" not in own[0]:
            continue
        yield f"{len(own)} of {len(rows)} runs {ENDED.get(status, f'ended as {status}')}"
        if status in silent:
            continue
        reasons: dict[Cell, list[Row]] = {}
        for row in own:
            reasons.setdefault(row.get("reason"), []).append(row)
        for reason, runs in list(reasons.items())[:MOST]:
            others = f" and {len(runs) - 1} more" if len(runs) > 1 else ""
            yield f"{runs[0].get('run')}{others}: {reason or 'no reason is recorded'}"
        if len(reasons) > MOST:
            yield f"… and {len(reasons) - MOST} more reasons; the column `reason` has them all"


def _counted(rows: Sequence[Row]) -> Iterator[str]:
    """Requests that did not go their whole way, over all runs."""
    for column, (one, several) in COUNTED.items():
        counts = [value for row in rows if isinstance(value := row.get(column), int) and value]
        if counts:
            what = one if sum(counts) == 1 else several
            yield f"{sum(counts):,} {what}, in {len(counts)} of {len(rows)} runs"


def _changes(manifests: Iterable[Manifest]) -> Iterator[str]:
    """What reading or drawing requests changed in traces, as the manifests have it."""
    found: dict[tuple[str, str], list[int]] = {}
    for manifest in manifests:
        trace = manifest.get("trace")
        notes = trace.get("notes") if isinstance(trace, dict) else None
        if not isinstance(trace, dict) or not isinstance(notes, dict):
            continue
        for note, count in notes.items():
            if isinstance(count, int) and not str(note).startswith(HARMLESS):
                found.setdefault((str(trace.get("source")), str(note)), []).append(count)
    for (source, note), counts in list(found.items())[:MOST]:
        low, high = min(counts), max(counts)
        span = f"{low:,}" if low == high else f"{low:,} to {high:,}"
        runs = "1 run" if len(counts) == 1 else f"{len(counts)} runs"
        yield f"trace {source}: {note}: {span} (in {runs})"
    if len(found) > MOST:
        yield f"… and {len(found) - MOST} more such changes, in the manifests of runs"
