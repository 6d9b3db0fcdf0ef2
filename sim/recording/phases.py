"""What requests do, iteration by iteration: the stretches of time that phases.parquet lists."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from sim.allocators.base import BoolArray
from sim.recording.pool import Owners
from sim.recording.tables import DECODE, PREEMPTED, PREFILL, QUEUED, SWAPPED
from sim.sequence import (
    ARRIVAL_NS,
    FINISH_NS,
    NEVER_NS,
    NUM_COMPUTED,
    NUM_PREEMPTIONS,
    NUM_TOKENS,
    IntArray,
    SequenceTable,
)

Key = tuple[int, int]  # request, sequence
Stretch = tuple[int, int, int, int, int]  # request, sequence, phase, start and end in ns


class Numbering:
    """Which sequence of its request each row of the sequence table is.

    Sequences are numbered as they are first seen; those of a request that was away begin anew.
    """

    def __init__(self) -> None:
        self._rows: IntArray = np.empty(0, np.int64)
        self._requests: IntArray = np.empty(0, np.int64)
        self._numbers: IntArray = np.empty(0, np.int64)
        self._next: dict[int, int] = {}  # of the requests that are there

    def number(self, rows: IntArray, requests: IntArray) -> IntArray:
        """The numbers of rows, which are in service or on the host, and their requests."""
        if np.array_equal(rows, self._rows) and np.array_equal(requests, self._requests):
            return self._numbers
        pairs = zip(self._rows.tolist(), self._requests.tolist(), strict=True)
        known = dict(zip(pairs, self._numbers.tolist(), strict=True))
        present = dict.fromkeys(requests.tolist(), 0)
        counts = {request: self._next.get(request, 0) for request in present}
        numbers = []
        for pair in zip(rows.tolist(), requests.tolist(), strict=True):
            number = known.get(pair)
            if number is None:
                number = counts[pair[1]]
                counts[pair[1]] = number + 1
            numbers.append(number)
        self._next = counts
        self._rows, self._requests = rows.copy(), requests.copy()
        self._numbers = np.array(numbers, np.int64)
        return self._numbers


class Current(NamedTuple):
    """What a sequence is in, since when, and how often its request had been preempted then."""

    phase: int
    since_ns: int
    num_preemptions: int


class Phases:
    """Follows the sequences of a run; `stretches` are those that have ended."""

    def __init__(self, requests: IntArray) -> None:
        self._requests = requests
        self.stretches: list[Stretch] = []
        self._now: dict[Key, Current] = {}  # of what is in service, on the host or preempted
        self._are_computed: set[Key] = set()  # those that have computed all their tokens
        self._were_seen: set[int] = set()
        self._last: tuple[bytes, ...] = ()  # what was seen last

    def see(self, now_ns: int, sequences: SequenceTable, owners: Owners, away: BoolArray) -> None:
        """An iteration begins, or nothing runs; away says which owners are on the host."""
        cells = sequences.rows[owners.rows]
        is_computed = cells[:, NUM_COMPUTED] >= cells[:, NUM_TOKENS]
        counts = self._requests[owners.requests, NUM_PREEMPTIONS]
        seen = owners.requests, owners.sequences, away, is_computed, counts
        state = tuple(array.tobytes() for array in seen)
        if state == self._last:
            return
        keys = list(zip(owners.requests.tolist(), owners.sequences.tolist(), strict=True))
        known = {request for request, _ in self._are_computed}
        self._end_gone(now_ns, set(keys))
        facts = zip(away.tolist(), is_computed.tolist(), counts.tolist(), strict=True)
        for key, (is_away, has_all, count) in zip(keys, facts, strict=True):
            if key not in self._now and key[0] in known:
                self._are_computed.add(key)  # it begins as a copy of another one
            self._enter(key, SWAPPED if is_away else self._phase(key, count), now_ns, count)
            if has_all:
                self._are_computed.add(key)
        # who computes the end of a prompt now decodes next, and looks the same
        is_settled = all(self._now[key].phase != PREFILL for key in keys)
        self._last = state if is_settled else ()

    def _phase(self, key: Key, num_preemptions: int) -> int:
        """Whether a sequence in service computes its prompt or decodes."""
        old = self._now.get(key)
        is_back = old is not None and (
            old.phase == PREEMPTED
            or (old.phase != SWAPPED and old.num_preemptions < num_preemptions)
        )
        if is_back:
            self._are_computed.discard(key)
        return DECODE if key in self._are_computed else PREFILL

    def _enter(self, key: Key, phase: int, now_ns: int, num_preemptions: int) -> None:
        """A sequence is in a phase from now on, if it is not already."""
        request, old = key[0], self._now.get(key)
        if request not in self._were_seen:
            self._were_seen.add(request)
            self._add(key, QUEUED, self._requests.item(request, ARRIVAL_NS), now_ns)
        if old is not None and old.phase == phase and old.num_preemptions == num_preemptions:
            return
        if old is not None and old.phase == phase:
            self._now[key] = old._replace(num_preemptions=num_preemptions)
            return
        self._leave(key, now_ns)
        self._now[key] = Current(phase, now_ns, num_preemptions)

    def _end_gone(self, now_ns: int, keys: set[Key]) -> None:
        """Sequences that are no more in service have ended, or their request was preempted."""
        present = {request for request, _ in keys}
        gone = [key for key, old in self._now.items() if key not in keys]
        for key in sorted(key for key in gone if self._now[key].phase != PREEMPTED):
            request = key[0]
            count = self._requests.item(request, NUM_PREEMPTIONS)
            self._leave(key, now_ns)
            self._are_computed.discard(key)
            if self._requests.item(request, FINISH_NS) == NEVER_NS and request not in present:
                self._now.setdefault((request, 0), Current(PREEMPTED, now_ns, count))

    def _leave(self, key: Key, now_ns: int) -> None:
        old = self._now.pop(key, None)
        if old is not None:
            finish_ns = self._requests.item(key[0], FINISH_NS)
            end_ns = now_ns if finish_ns == NEVER_NS else min(now_ns, finish_ns)
            self._add(key, old.phase, old.since_ns, end_ns)

    def _add(self, key: Key, phase: int, start_ns: int, end_ns: int) -> None:
        if start_ns < end_ns:
            self.stretches.append((*key, phase, start_ns, end_ns))

    def finish(self, end_ns: int, own: Iterable[int]) -> None:
        """The run has ended. own are the requests that have arrived here, in service or not."""
        for key in list(self._now):
            self._leave(key, end_ns)
        for request in own:
            if request not in self._were_seen:
                arrival, finish = self._requests[request, [ARRIVAL_NS, FINISH_NS]].tolist()
                until = end_ns if finish == NEVER_NS else finish
                self.stretches.append((request, 0, QUEUED, arrival, until))
        self.stretches.sort(key=lambda stretch: (*stretch[:2], stretch[3]))
