"""Pages as their readers and a strict parser see them."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from pathlib import Path
from xml.etree.ElementTree import Element

import html5lib

HTML = "{http://www.w3.org/1999/xhtml}"
SVG = "{http://www.w3.org/2000/svg}"
REFERENCES = {"src", "href", "srcset", "action", "formaction", "poster", "data", "background"}


def parsed(page: str) -> Element:
    """The page's root, as the HTML standard parses it. Raises for anything that is not valid."""
    root: Element = html5lib.HTMLParser(strict=True).parse(page)
    return root


def read_page(path: Path) -> Element:
    return parsed(path.read_text(encoding="utf-8"))


def tag(element: Element) -> str:
    name = element.tag
    return name.removeprefix(HTML).removeprefix(SVG) if isinstance(name, str) else ""


def all_of(root: Element, name: str) -> list[Element]:
    """Every element of a name, of HTML and of SVG."""
    return [element for element in root.iter() if tag(element) == name]


def text_in(element: Element) -> str:
    return "".join(element.itertext())


def visible_text(root: Element) -> str:
    """What a reader may read: without scripts and style sheets."""
    parts = []

    def walk(element: Element) -> None:
        if tag(element) in {"script", "style"}:
            return
        parts.append(element.text or "")
        for child in element:
            walk(child)
            parts.append(child.tail or "")

    walk(root)
    return "".join(parts)


def external_references(root: Element) -> Iterator[str]:
    """Whatever would be loaded from elsewhere, or lead there."""
    for element in root.iter():
        for key, value in element.attrib.items():
            name = key.rpartition("}")[2].removeprefix("xlink:")
            is_own = value.startswith(("#", "data:image/png;base64,"))
            if name in REFERENCES and not is_own:
                yield f"{tag(element)} {name}={value[:80]}"
            if name.startswith("on"):
                yield f"{tag(element)} {name}"
            if "url(" in re.sub(r"url\(#[^()]*\)", "", value):
                yield f"{tag(element)} {name}={value[:80]}"
        if tag(element) == "style" and re.search(r"url\(|@import", element.text or ""):
            yield "style sheet"
        if tag(element) in {"link", "iframe", "object", "embed", "base", "form", "foreignObject"}:
            yield tag(element)


def assert_well_made(root: Element) -> None:
    """What every page of ours promises: alone, whole, and with a structure that can be heard."""
    assert list(external_references(root)) == []
    ids = [element.get("id") for element in root.iter() if element.get("id") is not None]
    assert len(ids) == len(set(ids))
    known = set(ids)
    for element in root.iter():
        for key in ("aria-labelledby", "for"):
            assert set(element.get(key, "").split()) <= known, element.attrib
        for key in ("href", "{http://www.w3.org/1999/xlink}href"):
            target = element.get(key, "")
            assert not target.startswith("#") or target[1:] in known, target
        for found in re.findall(r"url\(#([^)]*)\)", " ".join(element.attrib.values())):
            assert found in known
    (html,) = all_of(root, "html")
    assert html.get("lang") == "en"
    assert len(all_of(root, "main")) == len(all_of(root, "nav")) == len(all_of(root, "h1")) == 1
    assert_headings_descend(root)
    for table in all_of(root, "table"):
        assert all_of(table, "caption")
        assert all(th.get("scope") in {"col", "row"} for th in all_of(table, "th"))
        widths = {sum(tag(cell) in {"th", "td"} for cell in row) for row in all_of(table, "tr")}
        assert len(widths) == 1, widths
    for picture in root.iter(f"{SVG}svg"):
        if picture.get("aria-hidden") != "true":
            assert picture.get("role") == "img"
            label = picture.get("aria-label") or text_in(all_of(picture, "title")[0])
            assert label.strip()
    for picture in all_of(root, "img"):
        assert picture.get("alt")


def assert_headings_descend(root: Element) -> None:
    levels = [int(tag(e)[1]) for e in root.iter() if re.fullmatch("h[1-6]", tag(e))]
    assert levels[0] == 1
    assert all(after <= before + 1 for before, after in itertools.pairwise(levels))
