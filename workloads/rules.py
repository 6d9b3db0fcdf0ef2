"""What a cell of a trace may hold.

Each rule is one plain function from a cell to a whole number. Beside it stands a shortcut that
does the same for a whole Arrow array if every cell is plainly good, and otherwise declines, so
that the plain function decides and names the first bad cell.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from workloads.trace import MAX_NS, MAX_TOKENS, NANOSECONDS, IntColumn, seconds_to_ns

WHOLE = re.compile(r"[+-]?\d+(\.0*)?", re.ASCII)
DECIMAL = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)
MAX_S = MAX_NS // NANOSECONDS


@dataclass(frozen=True)
class Rule:
    """accepts completes "accepted: …"; parse raises ValueError; shortcut may return None."""

    accepts: str
    parse: Callable[[object], int]
    shortcut: Callable[[Any], IntColumn | None]

    def value(self, cell: object) -> int | None:
        """The number that a cell holds, None if it holds none."""
        try:
            return self.parse(cell)
        except (ValueError, OverflowError):
            return None


def token_count(cell: object) -> int:
    """A number of tokens, at least one."""
    count = length(cell)
    if count == 0:
        raise ValueError
    return count


def length(cell: object) -> int:
    """A number of tokens, perhaps none."""
    return whole_number(cell, 0, MAX_TOKENS)


def priority(cell: object) -> int:
    """A priority: a whole number of either sign."""
    return whole_number(cell, -MAX_TOKENS, MAX_TOKENS)


def whole_number(cell: object, low: int, high: int) -> int:
    """A whole number from low to high. 12.0 and "12" are twelve; 1.5 is nothing."""
    if isinstance(cell, str):
        text = cell.strip()
        if not WHOLE.fullmatch(text):
            raise ValueError
        number = int(text.split(".")[0])
    elif isinstance(cell, int | float) and not isinstance(cell, bool) and cell == cell // 1:
        number = int(cell)
    else:
        raise ValueError
    if not low <= number <= high:
        raise ValueError
    return number


def token_counts(cells: Any) -> IntColumn | None:
    """token_count of a whole array."""
    counts = lengths(cells)
    return counts if counts is not None and counts.min() > 0 else None


def lengths(cells: Any) -> IntColumn | None:
    """length of a whole array."""
    return whole_numbers(cells, MAX_TOKENS)


def priorities(cells: Any) -> IntColumn | None:
    """priority of a whole array."""
    return whole_numbers(cells, MAX_TOKENS, -MAX_TOKENS)


def whole_numbers(cells: Any, high: int, low: int = 0) -> IntColumn | None:
    """A whole array of whole numbers from low to high; text is digits only."""
    if cells.null_count or not (_is_plain_number(cells) or _is_digits(cells)):
        return None
    try:
        numbers: IntColumn = cells.cast(pa.int64()).to_numpy(zero_copy_only=False)
    except pa.ArrowInvalid:  # a fraction, or beyond 64 bits
        return None
    return numbers if _all_within(numbers, low, high) else None


def whole_number_rule(low: int, high: int) -> Rule:
    """The rule of a whole number from low to high that is stored as one."""

    def parse(cell: object) -> int:
        if not isinstance(cell, int) or isinstance(cell, bool) or not low <= cell <= high:
            raise ValueError
        return cell

    def shortcut(cells: Any) -> IntColumn | None:
        if cells.null_count or cells.type != pa.int64():
            return None
        values: IntColumn = cells.to_numpy(zero_copy_only=False)
        return values if _all_within(values, low, high) else None

    return Rule(f"a whole number from {low} to {high}", parse, shortcut)


def seconds(cell: object) -> int:
    """A time in seconds, as whole nanoseconds."""
    if isinstance(cell, str):
        text = cell.strip()
        if not DECIMAL.fullmatch(text):
            raise ValueError
        value = float(text)
    elif isinstance(cell, int | float) and not isinstance(cell, bool):
        value = float(cell)
    else:
        raise ValueError
    if not 0 <= value <= MAX_S:
        raise ValueError
    whole = math.floor(value)  # as seconds_to_ns, without numpy's cost for one number
    return whole * NANOSECONDS + round((value - whole) * NANOSECONDS)


def seconds_array(cells: Any) -> IntColumn | None:
    """seconds of a whole array."""
    if cells.null_count or not (_is_plain_number(cells) or pa.types.is_string(cells.type)):
        return None
    try:
        values = cells.cast(pa.float64()).to_numpy(zero_copy_only=False)
    except pa.ArrowInvalid:  # text, or a whole number that no double equals
        return None
    return seconds_to_ns(values) if _all_within(values, 0, MAX_S) else None


def milliseconds(cell: object) -> int:
    """A time in milliseconds, as whole nanoseconds: whole ones exactly."""
    if isinstance(cell, int) and not isinstance(cell, bool):
        time_ns = cell * (NANOSECONDS // 1000)
    elif isinstance(cell, float):
        time_ns = round(cell * (NANOSECONDS // 1000))
    else:
        raise ValueError
    if not 0 <= time_ns <= MAX_NS:
        raise ValueError
    return time_ns


def nanoseconds(cell: object) -> int:
    """A time in whole nanoseconds, exactly; 5e8 is five hundred million, 0.5 is nothing."""
    return whole_number(cell, 0, MAX_NS)


def nanoseconds_array(cells: Any) -> IntColumn | None:
    """nanoseconds of a whole array of whole numbers."""
    if cells.null_count or not (pa.types.is_integer(cells.type) or _is_digits(cells)):
        return None
    try:
        times: IntColumn = cells.cast(pa.int64()).to_numpy(zero_copy_only=False)
    except pa.ArrowInvalid:  # beyond 64 bits
        return None
    return times if _all_within(times, 0, MAX_NS) else None


def timestamp(cell: object) -> int:
    """A date and time of day, as nanoseconds since 1970 (UTC where no zone is given)."""
    stamps = timestamps(pa.array([cell.strip()])) if isinstance(cell, str) else None
    if stamps is None:
        raise ValueError
    return int(stamps[0])


def timestamps(cells: Any) -> IntColumn | None:
    """timestamp of a whole array, if all cells name a zone or none does."""
    if not pa.types.is_string(cells.type) or cells.null_count:
        return None
    for kind in (pa.timestamp("ns"), pa.timestamp("ns", "UTC")):
        try:
            # the first cell shows the kind: a cast that fails costs more than one that does not
            cells.slice(0, 1).cast(kind)
            stamps: IntColumn = cells.cast(kind).cast(pa.int64()).to_numpy()
        except pa.ArrowInvalid:
            continue
        return stamps if _all_within(stamps, 0, np.iinfo(np.int64).max) else None
    return None


def _is_plain_number(cells: Any) -> bool:
    return bool(pa.types.is_integer(cells.type) or pa.types.is_floating(cells.type))


def _is_digits(cells: Any) -> bool:
    """Arrow reads 0x1F as a number; the rule does not."""
    return pa.types.is_string(cells.type) and bool(pc.all(pc.ascii_is_decimal(cells)).as_py())


def _all_within(values: Any, low: float, high: float) -> bool:
    """Also false if a value is not a number."""
    return len(values) > 0 and bool(values.min() >= low and values.max() <= high)


TOKENS = Rule(f"a whole number from 1 to {MAX_TOKENS}", token_count, token_counts)
LENGTH = Rule(f"a whole number from 0 to {MAX_TOKENS}", length, lengths)
PRIORITY = Rule(f"a whole number from {-MAX_TOKENS} to {MAX_TOKENS}", priority, priorities)
SECONDS = Rule(f"seconds, a number from 0 to {MAX_S}", seconds, seconds_array)
MILLISECONDS = Rule(
    f"milliseconds, a number from 0 to {MAX_S * 1000}", milliseconds, lambda cells: None
)
WHOLE_NS = Rule(f"nanoseconds, a whole number from 0 to {MAX_NS}", nanoseconds, nanoseconds_array)
TIMESTAMP = Rule(
    "a time such as 2023-11-16 18:15:46.6805900 or 2024-05-10 00:00:00.009930+00:00, "
    "from 1970 to 2261",
    timestamp,
    timestamps,
)
