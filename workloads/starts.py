"""What the first bytes of a file say of it, however it is written.

Blank lines come before it or not, a header has its names in any order, quoted or with spaces around
them, and JSON has spaces or none. A first line longer than these bytes says what stands in them.
"""

from __future__ import annotations

import csv
import json
import re

KEY = re.compile(rb'"((?:[^"\\]|\\.)*)"\s*:')


def first_line(start: bytes) -> bytes:
    """The first line that is not blank, without what surrounds it; perhaps not to its end."""
    return start.lstrip().split(b"\n", maxsplit=1)[0].rstrip()


def header_names(start: bytes) -> set[str]:
    """The names in the header of comma-separated text."""
    return set(first_cells(start)[0])


def first_cells(start: bytes) -> tuple[list[str], list[str]]:
    """The cells of a header, and of the row below it, of comma-separated text."""
    header, _, rest = start.lstrip().partition(b"\n")
    return _cells(header), _cells(first_line(rest))


def _cells(line: bytes) -> list[str]:
    """The cells of a line, none if it is no CSV text."""
    text = line.strip().decode(errors="replace")
    try:
        return [cell.strip() for cell in next(csv.reader([text], skipinitialspace=True), [])]
    except csv.Error:
        return []


def object_keys(start: bytes) -> set[str]:
    """The keys of the JSON object in the first line, those that can be seen of it."""
    line = first_line(start)
    if not line.startswith(b"{"):
        return set()
    try:
        return set(json.loads(line))
    except (ValueError, RecursionError):
        return {key.decode(errors="replace") for key in KEY.findall(line)}
