"""Which rows are in a pool, and what a caller may ask of them."""

from __future__ import annotations

from typing import Any

from sim.config.plugins import shown
from sim.library.plain import listed, whole
from workloads.content import Run
from workloads.trace import MAX_TOKENS

RUNS = "a list of (source, start, length)"
MAX_SOURCE = 1 << 60  # of a run, and of an offset in one


class PoolRows:
    """The rows that hold memory, in order of entry, and those that hold nothing yet."""

    def __init__(self) -> None:
        self.held: list[int] = []
        self.opened: set[int] = set()

    def admitted(self, row: int) -> None:
        """A row that was opened holds memory."""
        self.opened.remove(row)
        self.held.append(row)

    def closed(self, row: int) -> None:
        """A row is no more."""
        self.opened.discard(row)
        if row in self.held:
            self.held.remove(row)

    def known(self, row: Any) -> int:
        """A row of the pool. Raises ValueError."""
        number = whole("row", row, 0, MAX_TOKENS)
        if number not in self.opened and number not in self.held:
            raise ValueError(f"row {number} is not in the pool; {self._accepted()}")
        return number

    def holding(self, row: Any) -> int:
        """A row that holds memory. Raises ValueError."""
        number = self.known(row)
        if number in self.opened:
            raise ValueError(f"row {number} has not been admitted; {self._accepted()}")
        return number

    def waiting(self, row: Any) -> int:
        """A row that was opened and holds nothing. Raises ValueError."""
        number = self.known(row)
        if number not in self.opened:
            raise ValueError(f"row {number} has been admitted already")
        return number

    def each(self, rows: Any, must_hold: bool = True) -> list[int]:
        """Rows of the pool, each once. Raises ValueError."""
        one = self.holding if must_hold else self.known
        found = [one(row) for row in listed("rows", rows, "a list of rows")]
        if len(set(found)) < len(found):
            raise ValueError(f"rows: {shown(found)} names a row twice; accepted: each once")
        return found

    def _accepted(self) -> str:
        return f"accepted: one of {shown(self.held)}" if self.held else "no row holds memory"


def runs_of(key: str, value: Any) -> list[Run]:
    """What a prompt consists of. Raises ValueError "key: …"."""
    return [_run(key, run) for run in listed(key, value, RUNS)]


def _run(key: str, value: Any) -> Run:
    cells = listed(key, value, "a run (source, start, length)")
    if len(cells) != 3:
        raise ValueError(f"{key}: {shown(value)} is no run; accepted: (source, start, length)")
    source, start = (whole(key, cell, 0, MAX_SOURCE) for cell in cells[:2])
    return source, start, whole(key, cells[2], 1, MAX_TOKENS)
