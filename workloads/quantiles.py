"""Tables of quantiles: what one must be like, and how one is read from a file."""

from __future__ import annotations

import csv
from collections.abc import Sequence

from workloads.files import blocks, lines
from workloads.rules import DECIMAL
from workloads.trace import MAX_TOKENS, TraceError

COLUMNS = ("level", "tokens")


def check_table(levels: object, tokens: object) -> None:
    """Refuse what is no table of quantiles, with a ValueError "<parameter>: sentence"."""
    _check_list("levels", levels, 0, 1)
    _check_list("tokens", tokens, 1, MAX_TOKENS)
    assert isinstance(levels, Sequence)
    assert isinstance(tokens, Sequence)
    if len(levels) < 2 or (levels[0], levels[-1]) != (0, 1):
        raise ValueError("levels: must begin with 0 and end with 1, the shortest and the longest")
    if len(tokens) != len(levels):
        raise ValueError(
            f"tokens: must be as many as levels, got {len(tokens)} for {len(levels)} levels"
        )
    for i in range(1, len(levels)):
        if levels[i] <= levels[i - 1]:
            raise ValueError(f"levels: must ascend, got {levels[i]} after {levels[i - 1]}")
        if tokens[i] < tokens[i - 1]:
            raise ValueError(f"tokens: must not descend, got {tokens[i]} after {tokens[i - 1]}")


def _check_list(name: str, values: object, low: float, high: float) -> None:
    if values is None:
        raise ValueError(f"{name}: is required; accepted: a list of numbers, or path instead")
    if isinstance(values, str | bytes) or not isinstance(values, Sequence):
        raise ValueError(
            f"{name}: must be a list of numbers, got {values!r}; accepted: levels and tokens, "
            "or the path of a CSV file with them"
        )
    for value in values:
        good = isinstance(value, int | float) and not isinstance(value, bool)
        if not good or not low <= value <= high:
            raise ValueError(f"{name}: must be numbers from {low:g} to {high:g}, got {value!r}")


def read_table(path: str) -> tuple[list[float], list[float]]:
    """Levels and tokens of a CSV file with a header; other columns are not looked at.

    Raises TraceError that names the file and what is wrong with it.
    """
    rows = [(number, line) for block in blocks(path) for number, line in lines(block)]
    header = [name.strip() for name in _cells(path, *rows[0])] if rows else []
    missing = [name for name in COLUMNS if header.count(name) != 1]
    if missing:
        raise TraceError(
            f"{path}: must have the column {missing[0]} once; accepted: a header with "
            f"{' and '.join(COLUMNS)}, one quantile a line"
        )
    table: dict[str, list[float]] = {name: [] for name in COLUMNS}
    for number, line in rows[1:]:
        cells = _cells(path, number, line)
        for name, values in table.items():
            position = header.index(name)
            text = cells[position].strip() if position < len(cells) else ""
            if not DECIMAL.fullmatch(text):
                raise TraceError(f"{path}: line {number}: {name} is {text!r}; accepted: a number")
            values.append(float(text))
    try:
        check_table(table["level"], table["tokens"])
    except ValueError as error:
        raise TraceError(f"{path}: {error}") from None
    return table["level"], table["tokens"]


def _cells(path: str, number: int, line: bytes) -> list[str]:
    try:
        return next(csv.reader([line.decode()], strict=True))
    except (UnicodeDecodeError, csv.Error, StopIteration):
        raise TraceError(f"{path}: line {number} is not CSV text; accepted: CSV in UTF-8") from None
