"""Figures in a dark page: what follows the page, and what keeps the colour it was drawn in."""

from __future__ import annotations

import re

import matplotlib.pyplot as plt
import pytest
from matplotlib.patches import Rectangle

from sim.figures import style
from sim.report.inks import FOLLOWING
from sim.report.svg import inline_svg

INK, PAPER = FOLLOWING["#000000"], FOLLOWING["#ffffff"]


@pytest.fixture(scope="module")
def drawn(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The styles of words in a figure, by word: each is a group that its comment names."""
    path = tmp_path_factory.mktemp("inks") / "f.svg"
    with plt.style.context(style.STYLE):
        figure, ax = plt.subplots()
        ax.set(xlim=(0, 10), ylim=(0, 10))
        for x, color in enumerate(("#E69F00", "#0072B2", "#DEDEDE", style.tint("#0072B2"))):
            ax.add_patch(
                Rectangle((2 * x, 0), 2, 5, facecolor=color, hatch="//" if x == 3 else None)
            )
        for x, (word, color) in enumerate(
            {"dark": "black", "light": "white", "free": "black"}.items()
        ):
            ax.text(2 * x + 1, 2, word, ha="center", color=color, gid=f"text_{word}")
        ax.text(8.0, 2, " beside", gid="text_beside")
        ax.text(1, 8, "above", gid="text_above")
        figure.savefig(path)
        plt.close(figure)
    page = str(inline_svg(path.read_text(), "p-", "t", "a"))
    found = re.findall(r'id="p-text_([a-z]+)"([^>]*)>(.*?)</g></g>', page)
    return {"": page, **{word: own + body.partition("<use")[0] for word, own, body in found}}


def test_words_on_data_keep_their_ink(drawn: dict[str, str]) -> None:
    assert "fill: #000000" in drawn["dark"]
    assert "fill: #ffffff" in drawn["light"]


@pytest.mark.parametrize("word", ["free", "beside", "above"])
def test_words_on_the_page_or_on_what_follows_it_have_its_ink(
    drawn: dict[str, str], word: str
) -> None:
    assert "fill" not in drawn[word]  # they inherit it
    assert f"fill:{INK}" in drawn[""].partition(">")[0]


def test_paper_and_pale_shades_follow_and_data_do_not(drawn: dict[str, str]) -> None:
    styles = "".join(re.findall(r'style="[^"]*"', drawn[""]))
    assert f"fill: {PAPER}" in styles
    assert "fill: #e69f00" in styles
    assert "fill: color-mix(in srgb,#0072b2 28%,var(--card))" in styles
    assert not re.search(r' fill="#(?!000000)', drawn[""])


def test_every_pale_shade_that_figures_use_is_known() -> None:
    for color in style.PALETTE[:-1]:
        pale = "#" + "".join(f"{round(255 * part):02x}" for part in style.tint(color))
        assert FOLLOWING[pale] == f"color-mix(in srgb,{color.lower()} 28%,var(--card))"
