"""A figure's colours in a page: paper, frame and words have the page's, data keep their own.

Figures are drawn dark on white (sim/figures/style.py). Words that lie on a filled rectangle keep
the ink that was chosen for it, unless its own colour follows the page.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple
from xml.etree.ElementTree import Element

from sim.figures.style import PALETTE

SVG = "{http://www.w3.org/2000/svg}"
WHITE, BLACK = "#ffffff", "#000000"
# report.css has these for light and dark; in light they are what they stand for
FOLLOWING = {
    WHITE: "var(--card)",
    BLACK: "var(--figure-ink)",
    "#333333": "var(--figure-label)",
    "#666666": "var(--figure-note)",
    "#e3e3e3": "var(--figure-grid)",
    "#bbbbbb": "var(--figure-edge)",
    "#dedede": "var(--free)",
    "#b00020": "var(--figure-gone)",
}
TINT = 28  # % of a colour in its pale shade
INK = f"fill:{FOLLOWING[BLACK]}"  # of the words that say none
FILL = re.compile(r"(?:^|;)\s*fill:\s*(#[0-9a-f]{6})")
COLOR = re.compile(r"#[0-9a-f]{6}\b")
NUMBER = re.compile(r"-?\d+(?:\.\d+)?")
RECTANGLE = re.compile(r"\s*M(?:\s+-?[\d.]+){2}(?:\s*L(?:\s+-?[\d.]+){2}){3,4}\s*z?\s*")
MOVED = re.compile(r"translate\(\s*(-?[\d.]+)[\s,]+(-?[\d.]+)\s*\)")


class Mark(NamedTuple):
    """A filled rectangle."""

    left: float
    top: float
    right: float
    bottom: float
    color: str


def _tints() -> Iterator[tuple[str, str]]:
    for color in map(str.lower, PALETTE[:-1]):
        parts = (int(color[i : i + 2], 16) for i in (1, 3, 5))
        pale = "".join(f"{round(255 + (part - 255) * TINT / 100):02x}" for part in parts)
        yield f"#{pale}", f"color-mix(in srgb,{color} {TINT}%,var(--card))"


FOLLOWING |= dict(_tints())


def follow_page(root: Element) -> None:
    """Let the styles of a drawn figure say the page's colours where they are not of data."""
    marks: list[Mark] = []
    waiting = [root]
    while waiting:
        element = waiting.pop()
        if element.get("id", "").startswith("text_"):
            _words(element, marks)
            continue
        mark = _mark(element)
        marks += [] if mark is None else [mark]
        if element.get("fill") in FOLLOWING:  # the ground of a hatch; an attribute takes no var()
            element.set("style", f"fill: {element.attrib.pop('fill')}")
        if "style" in element.attrib:
            element.set("style", _followed(element.attrib["style"]))
        waiting += reversed(element)


def _followed(style: str) -> str:
    return COLOR.sub(lambda found: FOLLOWING.get(found[0], found[0]), style)


def _mark(element: Element) -> Mark | None:
    fill = FILL.search(element.get("style", ""))
    shape = element.get("d", "")
    if fill is None or not RECTANGLE.fullmatch(shape):
        return None
    numbers = [float(number) for number in NUMBER.findall(shape)]
    x, y = numbers[::2], numbers[1::2]
    return Mark(min(x), min(y), max(x), max(y), fill[1])


def _words(words: Element, marks: list[Mark]) -> None:
    """Words follow the page with their outline, or where nothing else is below them."""
    parts = [part for part in words.iter() if part is not words and part.get("style") is not None]
    has_outline = any("stroke: #ffffff" in part.get("style", "") for part in parts)
    is_white = any(FILL.findall(part.get("style", "")) == [WHITE] for part in parts)
    below = _below(words, marks)
    if has_outline or (not is_white and (below is None or below.color in FOLLOWING)):
        for part in parts:
            part.set("style", _followed(part.get("style", "")))
    elif not is_white and not any(FILL.search(part.get("style", "")) for part in parts):
        words.set("style", f"fill: {BLACK}")


def _below(words: Element, marks: list[Mark]) -> Mark | None:
    """The last mark below where words begin."""
    at = next(filter(None, map(_begin, words.iter())), None)
    if at is None:
        return None
    x, y = at
    on = (m for m in reversed(marks) if m.left <= x < m.right - 1 and m.top <= y <= m.bottom)
    return next(on, None)


def _begin(element: Element) -> tuple[float, float] | None:
    moved = MOVED.search(element.get("transform", ""))
    if moved is not None:
        return float(moved[1]), float(moved[2])
    numbers = NUMBER.findall(element.get("d", "")[:80])
    return (float(numbers[0]), float(numbers[1])) if len(numbers) > 1 else None
