"""What happened to blocks, moment by moment: read from the log of a run, chosen, put into words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import pandas as pd

# words of the log, as sim.recording.blocklog writes them
SCHEDULED, DEVICE, HOST, COPY, SWAP = "schedule", "device", "host", "copy", "swap"

Block = tuple[str, int]  # where it is, and its first slot
Owner = tuple[int, int]  # a request, and the number of one of its sequences


@dataclass(frozen=True)
class Piece:
    """A block, or a range of contiguous memory, and who holds it."""

    num_slots: int
    num_written: int
    num_reserved: int
    moved: str
    source: Block
    holders: tuple[Owner, ...]


@dataclass(frozen=True)
class Moment:
    """Who holds what during an iteration, or at the end of it; iterations count from 1.

    waiting are the requests that have arrived and hold nothing.
    """

    iteration: int
    is_end: bool
    held: pd.DataFrame
    waiting: tuple[int, ...]

    @property
    def time_s(self) -> float:
        return float(self.held["time_s"].iloc[0])

    @property
    def num_external(self) -> int:
        return int(self.held["num_external"].iloc[0])

    @property
    def num_cached(self) -> int:
        return int(self.held["num_cached"].iloc[0])

    @cached_property
    def pieces(self) -> dict[Block, Piece]:
        """What is held, by place; every block once."""
        found: dict[Block, Piece] = {}
        held = self.held.sort_values(["place", "start_slot"], kind="stable")
        for _, rows in held.groupby(["place", "start_slot"], sort=False, observed=True):
            first = rows.iloc[0]
            place, start = str(first["place"]), int(first["start_slot"])
            is_on_device = place == DEVICE
            origin = is_on_device if first["moved"] == COPY else not is_on_device
            found[place, start] = Piece(
                num_slots=int(first["num_slots"]),
                num_written=int(rows["num_written"].max()),
                num_reserved=int(rows["num_reserved"].max()),
                moved=str(first["moved"]),
                source=(DEVICE if origin else HOST, int(first["from_slot"])),
                holders=tuple(_pairs(rows)),
            )
        return found

    @cached_property
    def tables(self) -> dict[Owner, list[Block]]:
        """The block tables."""
        tables: dict[Owner, list[Block]] = {}
        rows = self.held.sort_values(["request", "sequence", "index"], kind="stable")
        places = zip(rows["place"], rows["start_slot"].tolist(), strict=True)
        for sequence, (place, start) in zip(_pairs(rows), places, strict=True):
            tables.setdefault(sequence, []).append((str(place), start))
        return tables

    def num_sequences(self) -> dict[int, int]:
        """How many sequences of each request there are."""
        counts: dict[int, int] = {}
        for request, _ in self.tables:
            counts[request] = counts.get(request, 0) + 1
        return counts


def _pairs(rows: pd.DataFrame) -> list[Owner]:
    return list(zip(rows["request"].tolist(), rows["sequence"].tolist(), strict=True))


def moments(blocks: pd.DataFrame, requests: pd.DataFrame | None) -> list[Moment]:
    """All moments of a log, in order. requests says who has arrived and not ended."""
    found: list[Moment] = []
    iteration = 0
    for _, held in blocks.groupby(["time_s", "moment"], sort=False, observed=True):
        is_end = held["moment"].iloc[0] != SCHEDULED
        iteration += not is_end
        time_s = float(held["time_s"].iloc[0])
        waiting = _waiting(requests, time_s, set(held["request"].tolist()))
        found.append(Moment(iteration, is_end, held, waiting))
    return found


def _waiting(requests: pd.DataFrame | None, time_s: float, holding: set[int]) -> tuple[int, ...]:
    if requests is None:
        return ()
    is_there = (requests["arrival_s"] <= time_s) & ~(requests["finish_s"] <= time_s)
    here = requests["request"][is_there].tolist()
    return tuple(int(request) for request in here if request not in holding)


def choose(every: Sequence[Moment], limit: int) -> tuple[list[Moment], list[str]]:
    """At most limit moments, and sentences that count those that are left out.

    First those go in which tokens are written and nothing else changes, then the later ones.
    """
    if len(every) <= limit:
        return list(every), []
    before = [None, *every]
    chosen = [
        moment
        for last, moment in zip(before, every, strict=False)
        if last is None or last.tables != moment.tables
    ]
    notes = []
    if num_writing := len(every) - len(chosen):
        notes.append(f"Left out, because tokens are only written in them: {num_writing} steps.")
    if len(chosen) > limit:
        notes.append(f"The first {limit} of {len(chosen)} steps in which a table changes.")
    return chosen[:limit], notes


@dataclass(frozen=True)
class Change:
    """What is different in a moment: blocks taken, given back, copied and swapped.

    moved maps a block to the one it was filled from.
    """

    taken: list[Block]
    freed: list[Block]
    moved: dict[Block, Block]


def change(last: Moment | None, moment: Moment) -> Change:
    """What has happened since the last moment, of which None means an empty pool."""
    before = {} if last is None else last.pieces
    moved = {block: p.source for block, p in moment.pieces.items() if p.moved in {COPY, SWAP}}
    new = [block for block in moment.pieces if block not in before and block not in moved]
    swapped = {moved[b] for b in moved if moment.pieces[b].moved == SWAP}
    freed = [b for b in before if b not in moment.pieces and b not in swapped]
    return Change(_in_order_of_tables(new, moment), freed, moved)


def _in_order_of_tables(blocks: list[Block], moment: Moment) -> list[Block]:
    order = [block for table in moment.tables.values() for block in table]
    return sorted(blocks, key=order.index)


def title(last: Moment | None, moment: Moment, names: Mapping[Block, str]) -> str:
    """When it is, and what has happened; names say how blocks are called, and may be empty."""
    what = change(last, moment)
    when = f"{'After iteration' if moment.is_end else 'Iteration'} {moment.iteration}"
    parts = _requests(last, moment)
    for block, source in what.moved.items():
        how = "copied" if moment.pieces[block].moved == COPY else "moved"
        parts.append(f"block {names[source]} {how} to {names[block]}")
    for blocks, how in ((what.taken, "taken"), (what.freed, "freed")):
        called = [names[block] for block in blocks if names]
        if called:
            parts.append(f"block{'s' * (len(called) > 1)} {', '.join(called)} {how}")
    if not parts:
        parts.append("tokens are written, nothing else")
    return f"{when}, {moment.time_s:.6g} s: {'; '.join(parts)}"


def _requests(last: Moment | None, moment: Moment) -> list[str]:
    """Which requests begin, end, fork, give way."""
    before, now = {} if last is None else last.num_sequences(), moment.num_sequences()
    verbs: dict[tuple[str, str], list[int]] = {}  # of one, of several
    for request in before:
        if request not in now:
            gone = ("gives way", "give way") if request in moment.waiting else ("ends", "end")
            verbs.setdefault(gone, []).append(request)
    for request, count in now.items():
        if request not in before:
            verbs.setdefault(("begins", "begin"), []).append(request)
        elif before[request] < count:
            becomes = f"becomes {count} sequences", f"become {count} sequences each"
            verbs.setdefault(becomes, []).append(request)
    parts = [f"{listed(whose)} {verb[len(whose) > 1]}" for verb, whose in verbs.items()]
    for request, count in now.items():
        if moment.is_end and before.get(request) == count and _has_changed(last, moment, request):
            parts.append(f"some sequences of request {request} end, others fork")
    return parts


def _has_changed(last: Moment | None, moment: Moment, request: int) -> bool:
    before = {} if last is None else last.tables
    tables = [
        [table for (owner, _), table in there.items() if owner == request]
        for there in (before, moment.tables)
    ]
    return tables[0] != tables[1]


def listed(requests: Sequence[int]) -> str:
    """The first few requests by number, and how many more."""
    shown = ", ".join(str(request) for request in requests[:6])
    more = f" and {len(requests) - 6} more" if len(requests) > 6 else ""
    return f"request{'s' * (len(requests) > 1)} {shown}{more}"
