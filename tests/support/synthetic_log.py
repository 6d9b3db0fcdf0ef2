"""A recorded log of any size without a simulation: requests come, grow token by token, and go.

The tables are those of sim.recording.tables, for one pool with block tables or with ranges.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pandas as pd

from sim.recording.tables import BLOCK_EVENTS
from sim.report.player import Recording

STEP_S = 0.02
EVENT = tuple(name for name in BLOCK_EVENTS if name != "replica")


@dataclass
class Pool:
    """Requests in a pool, and the rows that say what happened to them."""

    num_slots: int
    size: int  # slots of a block, or of a range
    is_paged: bool
    events: list[tuple[object, ...]] = field(default_factory=list)
    tables: list[tuple[object, ...]] = field(default_factory=list)
    phases: list[tuple[object, ...]] = field(default_factory=list)
    running: dict[int, tuple[list[int], int, int, float]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.free = list(range(self.num_slots // self.size))
        self.say(0.0, 0, (-1, -1, -1), (0, 0, 0), "free", self.num_slots)

    def say(self, time_s, place, holder, numbers, state, num_slots=None) -> None:
        start = place * self.size
        self.events.append((time_s, start, num_slots or self.size, *holder, *numbers, state))

    def admit(self, request: int, prompt: int, output: int, now: float) -> bool:
        need = -(-prompt // self.size) if self.is_paged else 1
        if len(self.free) < need + (len(self.running) // 8 if self.is_paged else 0):
            return False
        blocks = [self.free.pop() for _ in range(need)]
        self.running[request] = (blocks, prompt, prompt + output, now)
        for index in range(need):
            self.write(request, index, now)
            self.enter(request, index, now)
        return True

    def write(self, request: int, index: int, now: float) -> None:
        blocks, written, final, _ = self.running[request]
        here = min(self.size, written - index * self.size)
        reach = min(self.size, final - 1 - index * self.size)
        numbers = (here, max(0, reach - here), 1)
        self.say(now, blocks[index], (request, 0, index), numbers, "held")

    def enter(self, request: int, index: int, now: float) -> None:
        start = self.running[request][0][index] * self.size
        self.tables.append((now, request, 0, index, "device", start, self.size))

    def grow(self, request: int, now: float) -> None:
        blocks, written, final, since = self.running[request]
        if written + 1 > len(blocks) * self.size:
            blocks.append(self.free.pop())
            self.running[request] = (blocks, written + 1, final, since)
            self.enter(request, len(blocks) - 1, now)
        self.running[request] = (blocks, written + 1, final, since)
        self.write(request, written // self.size if self.is_paged else 0, now)

    def end(self, request: int, now: float) -> None:
        blocks, _, _, since = self.running.pop(request)
        for block in blocks:
            self.say(now, block, (-1, -1, -1), (0, 0, 0), "free")
        self.tables.append((now, request, 0, 0, "device", -1, 0))
        self.phases.append((request, 0, "decode", since, now))
        self.free += blocks


def synthetic(
    num_slots: int, size: int, num_events: int, is_paged: bool, seed: int = 1
) -> Recording:
    """At least num_events events of a full pool, in blocks or ranges of size slots."""
    rng = np.random.default_rng(seed)
    pool = Pool(num_slots, size, is_paged)
    rows, now, request = [], 0.0, 0
    lengths = rng.integers(8, size * 12 if is_paged else size // 2, (num_events + num_slots, 2))
    while len(pool.events) < num_events:
        for running in list(pool.running):
            _, written, final, _ = pool.running[running]
            needs_block = written == len(pool.running[running][0]) * size
            if written >= final - 1 or (needs_block and not pool.free):
                pool.end(running, now)
            else:
                pool.grow(running, now)
        prompt, output = (int(n) for n in lengths[request])
        while pool.admit(request, prompt, output, now):
            request += 1
            prompt, output = (int(n) for n in lengths[request])
        rows.append(_terms(pool, now, request))
        now = round(now + STEP_S, 6)
    iterations = pd.DataFrame(rows)
    last = [(r, 0, "decode", row[3], now) for r, row in pool.running.items()]
    columns = ["request", "sequence", "phase", "start_s", "end_s"]
    phases = pd.DataFrame([*pool.phases, *last], columns=columns).sort_values("start_s")
    tables = pd.DataFrame(
        pool.tables,
        columns=["time_s", "request", "sequence", "index", "place", "start_slot", "num_slots"],
    )
    kind = "paged" if is_paged else "contiguous"
    events = pd.DataFrame(pool.events, columns=list(EVENT))
    return Recording(
        kind, kind, num_slots, size if is_paged else None, iterations, phases, events, tables
    )


def _terms(pool: Pool, now: float, waiting_from: int) -> dict[str, float]:
    tokens = sum(written for _, written, _, _ in pool.running.values())
    held = sum(len(blocks) for blocks, _, _, _ in pool.running.values()) * pool.size
    reach = sum(max(w, f - 1) for b, w, f, _ in pool.running.values())
    reach = min(reach, held)
    free = len(pool.free) * pool.size
    return {
        "start_s": now,
        "end_s": now + STEP_S,
        "num_running": len(pool.running),
        "num_waiting": waiting_from % 7,
        "token_states": tokens,
        "reserved": reach - tokens,
        "internal": held - reach,
        "external": pool.num_slots - held - free,
        "cached": 0,
        "free": free,
    }
