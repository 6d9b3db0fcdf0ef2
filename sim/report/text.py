"""Text and numbers as they may stand in a page."""

from __future__ import annotations

import re

Cell = str | int | float | None

MAX_SHOWN = 240  # characters of a text that stand open; the rest is behind a click

# What HTML forbids (controls, surrogates, noncharacters), and what is not seen but changes what is:
# marks of direction, of no width and of order.
UNSEEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u061c\u200b\u200e\u200f\u202a-\u202e\u2060-\u206f"
    "\ud800-\udfff\ufdd0-\ufdef\ufeff\ufff9-\ufffb\ufffe\uffff"
    + "".join(f"{chr(plane << 16 | 0xFFFE)}{chr(plane << 16 | 0xFFFF)}" for plane in range(1, 17))
    + "\U000e0000-\U000e007f]"
)
NUMBER = re.compile(r"[+-]?(\d{1,300})(\.\d*)?([eE][+-]?\d{1,5})?")


def visible(text: str) -> str:
    """Text in which every character can be seen: others as ⟨U+202E⟩."""
    return UNSEEN.sub(lambda found: f"⟨U+{ord(found[0]):04X}⟩", text)


def parsed(text: str) -> Cell:
    """A cell of a CSV file: a number where it is one, nothing where it is empty."""
    if not text:
        return None
    found = NUMBER.fullmatch(text)
    if found is None:
        return text
    return float(text) if found[2] or found[3] else int(text)


def number_text(value: Cell, factor: float = 1, digits: int | None = None) -> str:
    """A number for readers: at most so many digits behind the point, or about four that count.

    Texts stay as they are, nothing is a dash.
    """
    if value is None:
        return "–"
    if isinstance(value, str):
        return value
    if digits is not None:
        size = abs(value * factor)
        most = 1 if size >= 1000 else 2 if size >= 100 else digits
        return f"{value * factor:,.{min(digits, most)}f}"
    if isinstance(value, int):
        return f"{value:,}"
    if abs(value) < 1e15 and value == int(value):
        return f"{int(value):,}"
    return f"{value:,.1f}" if 1000 <= abs(value) < 1e15 else f"{value:.4g}"


def bytes_text(count: int) -> str:
    """A size of a file."""
    return f"{count / 1e6:,.1f} MB" if count >= 1e6 else f"{count / 1e3:,.0f} kB"
