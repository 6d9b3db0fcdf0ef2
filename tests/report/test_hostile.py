"""Names from traces and experiment files are text, in HTML and in SVG, whatever they hold."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pages import all_of, assert_well_made, parsed, read_page, text_in, visible_text
from sim.report import write_claims_report, write_report
from sim.report.svg import SvgError, inline_svg
from sim.report.templates import render
from sim.report.text import MAX_SHOWN, visible

SCRIPT = "<script>alert(1)</script>"
NAMES = [
    SCRIPT,
    "\"><img src=x onerror=alert(1)> ' ` &amp; &#60;",
    "</svg></title></style></textarea></script>--><b>bold</b>",
    "{{ 7 * 7 }}{% raw %}",
    "\u202egnp.exe",
    "control\x00\x07\x1b[31m\x7f\x85",
    "javascript:alert(1)",
    "שלום עולם",
    "no\u200bwidth\ufeff",
    "🙂" * 40,
]
LONG = "long" * 2500


def poisoned(value: Any, name: str) -> Any:
    """Data of the same shape in which every text has the name in it."""
    if isinstance(value, dict):
        return {f"{key}": poisoned(inner, name) for key, inner in value.items()}
    if isinstance(value, list):
        return [poisoned(inner, name) for inner in value]
    return f"{value}{name}" if isinstance(value, str) else value


def poison(folder: Path, name: str) -> None:
    """Put the name into everything a page is made from, but for what says which files there are."""
    facts = json.loads((folder / "experiment.json").read_text())
    kept = {key: facts[key] for key in ("runs", "figures")}
    (folder / "experiment.json").write_text(json.dumps({**poisoned(facts, name), **kept}))
    for path in folder.glob("runs/*/manifest.json"):
        manifest = json.loads(path.read_text())
        notes = {f"dropped: {name}": 3}
        trace = {**manifest["trace"], "source": name, "notes": notes}
        path.write_text(
            json.dumps({**poisoned(manifest, name), "key": manifest["key"], "trace": trace})
        )
    for path in (folder / "summary.csv", folder / "figures" / "waste.csv"):
        with path.open(newline="") as file:
            rows = list(csv.reader(file))
        rows[0].append(f"column{name}")
        for row in rows[1:]:
            row.append(name)
            if path.name != "summary.csv":  # whose first cells say which runs there are
                row[0] += name
        with path.open("w", newline="", encoding="utf-8") as file:
            csv.writer(file).writerows(rows)


@pytest.mark.parametrize("name", [*NAMES, LONG])
def test_a_page_shows_any_name_as_text(small: Path, name: str) -> None:
    before = read_page(write_report(small).path)
    poison(small, name)
    root = read_page(write_report(small).path)
    assert_well_made(root)
    shown = visible_text(root)
    assert shown.count(visible(name)) >= 10
    for element in ("script", "style", "b", "img", "svg"):
        assert len(all_of(root, element)) == len(all_of(before, element))


def test_what_cannot_be_seen_is_written_out() -> None:
    assert visible("a\u202eb\ud800") == "a⟨U+202E⟩b⟨U+D800⟩"
    assert visible("a\tb\nc é 🙂") == "a\tb\nc é 🙂"


def test_a_long_name_stands_whole_behind_its_beginning(small: Path) -> None:
    poison(small, LONG)
    root = read_page(write_report(small).path)
    folded = [e for e in all_of(root, "details") if e.get("class") == "long"]
    assert all(len(text_in(all_of(details, "summary")[0])) < MAX_SHOWN for details in folded)
    assert sum(LONG in text_in(details) for details in folded) >= 10


def test_claims_show_any_name_as_text(tmp_path: Path) -> None:
    entry = {
        "expected": {SCRIPT: [1, 2]},
        "comparator": "eq",
        "tolerance": {SCRIPT: 0.5},
        "measured": {SCRIPT: {"mean": SCRIPT, "sd": None}},
        "ablation": [],
        "sensitivity": [],
        **dict.fromkeys(("id", "source", "title", "ref", "where", "statement", "unit"), SCRIPT),
        **dict.fromkeys(("verdict", "note", "notes", "because"), SCRIPT),
    }
    (tmp_path / "verdicts.json").write_text(json.dumps({"claims": [entry]}))
    root = read_page(write_claims_report(tmp_path).path)
    assert_well_made(root)
    assert len(all_of(root, "script")) == 1
    assert visible_text(root).count(SCRIPT) > 10


@pytest.mark.parametrize("fonttype", ["path", "none"])
def test_labels_of_figures_are_text(tmp_path: Path, fonttype: str) -> None:
    names = [name for name in NAMES if name.isprintable() and name.isascii()]
    with plt.rc_context({"svg.fonttype": fonttype, "text.parse_math": False}):
        figure, axes = plt.subplots()
        for number, name in enumerate(names):
            axes.plot([0, 1], [number, 1], label=name, gid=name)
            axes.text(0, number, name)
        axes.legend()
        figure.savefig(tmp_path / "x.svg")
        plt.close(figure)
    svg = inline_svg((tmp_path / "x.svg").read_text(), "f1-", SCRIPT, "</svg>" + SCRIPT)
    root = parsed(f"<!doctype html><html lang=en><title>t</title><body>{svg}</body></html>")
    assert len(all_of(root, "svg")) == 1
    assert not all_of(root, "script") + all_of(root, "b") + all_of(root, "img")
    assert text_in(all_of(root, "title")[1]) == SCRIPT
    assert all(e.get("id", "f1-").startswith("f1-") for e in all_of(root, "svg")[0].iter())
    if fonttype == "none":
        assert {text_in(e) for e in all_of(root, "text")} >= set(names)


SVG = (
    '<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink" {}>{}</svg>'
)
BOX = 'viewBox="0 0 1 1"'


@pytest.mark.parametrize(
    "evil",
    [
        "<script>alert(1)</script>",
        "<g onload='alert(1)'/>",
        "<a href='http://x.example/'><path d='M 0 0'/></a>",
        "<image href='http://x.example/x.png'/>",
        "<image xlink:href='data:image/svg+xml;base64,AAAA'/>",
        "<use href='http://x.example/x.svg#y'/>",
        "<style>@import url(http://x.example/);</style>",
        "<path style='fill: url(http://x.example/)'/>",
        "<path style='fill: u\\72l(http://x.example/)'/>",
        "<path fill='url(http://x.example/#y)'/>",
        "<foreignObject><b xmlns='http://www.w3.org/1999/xhtml'>x</b></foreignObject>",
        "<animate attributeName='href' to='http://x.example/'/>",
        "<set attributeName='href' to='http://x.example/'/>",
    ],
)
def test_a_picture_brings_nothing_but_lines(evil: str) -> None:
    svg = inline_svg(SVG.format(BOX, evil + "<path d='M 0 0'/>"), "f1-", "t", "d")
    for word in (
        "script",
        "example",
        "alert",
        "base64",
        "style>",
        "foreign",
        "animate",
        "<set",
        "<a",
    ):
        assert word not in svg.replace('style="stroke', "")
    assert '<path d="M 0 0"/>' in svg


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "is no SVG"),
        ("<html/>", "is no SVG"),
        (SVG.format("", ""), "has no viewBox"),
        (SVG.format('viewBox="0 0 1 x"', ""), "has no viewBox"),
        ("<!DOCTYPE svg [<!ENTITY a 'b'>]>" + SVG.format(BOX, "&a;"), "declares entities"),
        (SVG.format(BOX, "<g>" * 150 + "</g>" * 150), "is nested too deeply"),
    ],
)
def test_what_is_no_picture_is_refused(text: str, sentence: str) -> None:
    with pytest.raises(SvgError, match=sentence):
        inline_svg(text, "f1-", "t", "d")


@given(st.text(st.characters(codec=None), max_size=400))
def test_any_text_comes_out_as_it_went_in(text: str) -> None:
    html = render("budget.html", lines=[text], most=5)
    root = parsed(f"<!doctype html><html lang=en><title>t</title><body>{html}</body></html>")
    (item,) = all_of(root, "li")
    found = text_in(all_of(item, "bdi")[-1] if all_of(item, "bdi") else item)
    assert found == visible(text)
