"""Contrast of both palettes, by WCAG's formula: 4.5 for text, 3 for what is told apart by it."""

from __future__ import annotations

import re
from itertools import pairwise
from pathlib import Path

import pytest

import sim.report
from sim.report.inks import FOLLOWING

CSS = (Path(sim.report.__file__).parent / "report.css").read_text(encoding="utf-8")
LIGHT, DARK = (
    dict(re.findall(r"--([a-z_-]+): (#[0-9a-f]{6})", block))
    for block in re.findall(r":root \{(.*?)\n *\}", CSS, re.DOTALL)
)
PALETTES = {"light": LIGHT, "dark": {**LIGHT, **DARK}}
TERMS = ("token_states", "reserved", "internal", "external", "cached", "free")
TEXT = [
    *((ink, ground) for ink in ("ink", "soft", "accent") for ground in ("paper", "card", "stripe")),
    *((ink, "head") for ink in ("ink", "soft")),
    ("warn-ink", "warn"),
    *((f"figure-{ink}", "card") for ink in ("ink", "label", "note", "gone")),
    *((grade, ground) for grade in ("good", "half", "bad") for ground in ("card", "stripe")),
]


def luminance(color: str) -> float:
    parts = [int(color[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    red, green, blue = (
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts
    )
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    dark, light = sorted((luminance(one), luminance(other)))
    return (light + 0.05) / (dark + 0.05)


def test_the_formula_is_that_of_the_standard() -> None:
    assert contrast("#000000", "#ffffff") == pytest.approx(21)
    assert contrast("#777777", "#ffffff") == pytest.approx(4.48, abs=0.005)


@pytest.mark.parametrize("name", PALETTES)
@pytest.mark.parametrize(("ink", "ground"), TEXT)
def test_text_can_be_read(name: str, ink: str, ground: str) -> None:
    palette = PALETTES[name]
    assert contrast(palette[ink], palette[ground]) >= 4.5


@pytest.mark.parametrize("name", PALETTES)
def test_frames_of_bars_and_fields_can_be_seen(name: str) -> None:
    palette = PALETTES[name]
    for ground in ("card", "stripe"):
        assert contrast(palette["soft"], palette[ground]) >= 3


@pytest.mark.parametrize("name", PALETTES)
def test_neighbours_in_a_bar_are_divided_by_a_line_that_is_none_of_them(name: str) -> None:
    """Colours of neighbours need not differ in lightness: a line of the ground lies between."""
    palette = PALETTES[name]
    assert ".bar i + i { border-left: 1px solid var(--card); }" in CSS
    for one, other in pairwise(TERMS[:5]):
        ratios = [contrast(palette[term], palette["card"]) for term in (one, other)]
        assert max(ratios) >= 2
    assert len({palette[term] for term in TERMS}) == len(TERMS)


def test_every_colour_is_one_of_the_palette() -> None:
    """But for white: the ground of figures in dots, and of paper."""
    rest = re.sub(r":root \{.*?\n *\}", "", CSS, flags=re.DOTALL)
    assert set(re.findall(r"#[0-9a-fA-F]{3,8}\b(?=[;\s])", rest)) <= {"#ffffff"}
    used = set(re.findall(r"var\(--([a-z_-]+)\)", rest + " ".join(FOLLOWING.values())))
    assert used == set(LIGHT)
