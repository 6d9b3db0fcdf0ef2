"""What can be said of a row only beside others: drift, repeats, trends, what limits a copy. Pure
functions of rows."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from itertools import pairwise
from statistics import median
from typing import Any

from kernels.calibrate.sanity import Row, add_note

MAX_DRIFT = 0.03  # of a sentinel from the run's median sentinel
MAX_APART = 0.02  # between two timings of one point
NOISE = 0.03
DRIFT, REPEATED = "drift ", "repeated: "  # how these notes begin


def deviations(sentinels: list[dict[str, Any]]) -> list[tuple[int, float]]:
    """Of every sentinel that was not refused: how many rows there were, and its deviation from the
    median of all, as a fraction."""
    timed = [(s["after_points"], s["us"]) for s in sentinels if s["ok"]]
    middle = median(us for _, us in timed) if timed else 0.0
    return [(after, abs(us - middle) / middle) for after, us in timed]


def drift(sentinels: list[dict[str, Any]]) -> float | None:
    """The largest deviation; None with fewer than two sentinels, which show no drift."""
    found = [value for _, value in deviations(sentinels)]
    return max(found) if len(found) > 1 else None


def mark_drift(rows: list[Row], sentinels: list[dict[str, Any]]) -> None:
    """Mark every row by the sentinels before and after it. Marks of an earlier call are replaced:
    the median moves as the run goes on, and the sentinel after the last rows was still to come."""
    found = deviations(sentinels) if drift(sentinels) is not None else []
    positions = [after for after, _ in found]
    for index, row in enumerate(rows):
        unmark(row, DRIFT)
        next_one = bisect_right(positions, index)
        beside = [value for _, value in found[max(0, next_one - 1) : next_one + 1]]
        if max(beside, default=0.0) > MAX_DRIFT:
            add_note(row, f"{DRIFT}{max(beside):.1%}")


def unmark(row: Row, beginning: str) -> None:
    """Take the notes that begin so out of the row."""
    kept = [part for part in row["note"].split("; ") if not part.startswith(beginning)]
    row["note"] = "; ".join(kept)


def repeated(timings: list[tuple[Row, Row]]) -> dict[str, Any]:
    """How far apart two timings of the same points are, where neither was refused; each row with
    that of its second timing. Rows further apart than `MAX_APART` are marked, anew at every
    call."""
    pairs = [(row, again["us"]) for row, again in timings if row["ok"] and again["ok"]]
    apart = [abs(again / row["us"] - 1) for row, again in pairs]
    for row, _ in timings:
        unmark(row, REPEATED)
    for (row, _), value in zip(pairs, apart, strict=True):
        if value > MAX_APART:
            add_note(row, f"{REPEATED}{value:.1%} apart")
    which = ("section", "kernel", "variant", "page", "batch", "len_spec")
    return {
        "points": len(pairs),
        "refused": [
            {**{k: again[k] for k in which}, "us": again["us"], "note": again["note"]}
            for _, again in timings
            if not again["ok"]
        ],
        "median": round(median(apart), 5) if apart else None,
        "worst": round(max(apart), 5) if apart else None,
        "share_within_2_percent": (
            round(sum(value <= MAX_APART for value in apart) / len(apart), 4) if apart else None
        ),
        "each": [
            {
                **{k: row[k] for k in which},
                "us": row["us"],
                "again_us": round(again, 3),
            }
            for row, again in pairs
        ],
    }


def note_trends(rows: list[Row]) -> None:
    """Note where the decode grid falls with batch or length beyond noise, and where paged is
    faster than contiguous."""
    grid = [r for r in rows if r["section"] == "decode" and r["ok"]]
    time = {(r["page"], r["batch"], r["max_kv"]): r for r in grid}
    for axis in (1, 2):
        lines = defaultdict(list)
        for key, row in time.items():
            lines[key[:axis] + key[axis + 1 :]].append((key[axis], row))
        for line in lines.values():
            ordered = [row for _, row in sorted(line, key=lambda pair: pair[0])]
            for smaller, larger in pairwise(ordered):
                if larger["us"] < (1 - NOISE) * smaller["us"]:
                    add_note(larger, f"faster than {'batch' if axis == 1 else 'length'} below it")
    for (page, batch, length), row in time.items():
        flat = time.get((0, batch, length))
        if page and flat and row["us"] < (1 - NOISE) * flat["us"]:
            add_note(row, "faster than contiguous")


def note_host_link(rows: list[Row]) -> None:
    """Note what one block costs over the host link, and whether the link or the single copies
    decide: the link's rate is the best of all copies in that direction that were not refused."""
    copies = [r for r in rows if r["kernel"] in ("h2d", "d2h") and r["ok"]]
    best: dict[str, float] = {}
    for row in copies:
        best[row["kernel"]] = max(best.get(row["kernel"], 0.0), row["bytes"] / row["us"])
    for row in copies:
        on_link = row["bytes"] / best[row["kernel"]] / row["us"]
        each = "issuing" if row["variant"] == "issued" else "the single blocks"
        limit = "the link" if on_link > 0.8 else each if on_link < 0.5 else f"{each} and the link"
        add_note(row, f"{row['us'] / row['batch']:.2f} us a block, limited by {limit}")
