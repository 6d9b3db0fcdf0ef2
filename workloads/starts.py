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
    line = first_line(start).decode(errors="replace")
    try:
        cells = next(csv.reader([line], skipinitialspace=True), [])
    except csv.Error:
        return set()
    return {cell.strip() for cell in cells}


def object_keys(start: bytes) -> set[str]:
    """The keys of the JSON object in the first line, those that can be seen of it."""
    line = first_line(start)
    if not line.startswith(b"{"):
        return set()
    try:
        return set(json.loads(line))
    except (ValueError, RecursionError):
        return {key.decode(errors="replace") for key in KEY.findall(line)}
