"""Pictures in a page: SVG whose ids are its own, without style sheets, scripts or references."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator
from xml.etree import ElementTree

from markupsafe import Markup, escape

from sim.report.inks import INK, follow_page
from sim.report.text import visible

ELEMENTS = re.compile(
    "g|defs|path|use|rect|circle|ellipse|line|polyline|polygon|clipPath|text|tspan|title|desc"
    "|image|pattern|linearGradient|radialGradient|stop|marker|mask|symbol"
)
ATTRIBUTES = re.compile(
    "id|d|[xy][12]?|c[xy]|r[xy]?|d[xy]|width|height|points|transform|viewBox|style|href|offset"
    "|clip-path|clip-rule|clipPathUnits|mask|opacity|fill(-rule|-opacity)?|preserveAspectRatio"
    "|stroke(-width|-opacity|-dasharray|-linecap|-linejoin)?|stop-(color|opacity)|text-anchor"
    "|font-(size|family)|pattern(Units|Transform|ContentUnits)|gradient(Units|Transform)"
)
HREF = "{http://www.w3.org/1999/xlink}href"
NAMESPACE = "{http://www.w3.org/2000/svg}"
LINK = re.compile(r"url\(\s*['\"]?#([^)'\"]*)['\"]?\s*\)")
FORBIDDEN = re.compile(r"url\((?!#)|@import|expression|javascript:|\\", re.IGNORECASE)
DECIMALS = re.compile(r"-?\d+\.\d{3,}(?:[eE][-+]?\d+)?")
PNG = "data:image/png;base64,"
MAX_DEPTH = 100
STYLE = f"stroke-linejoin:round;stroke-linecap:butt;{INK}"  # what matplotlib's sheet sets, and ink


class SvgError(Exception):
    """A picture that cannot stand in a page: a phrase."""


def inline_svg(text: str, prefix: str, title: str, about: str) -> Markup:
    """An SVG file as an element of a page, ids beginning with prefix. Raises SvgError."""
    if "<!ENTITY" in text:
        raise SvgError("declares entities")
    try:
        root = ElementTree.fromstring(text)
    except (ElementTree.ParseError, ValueError) as error:
        raise SvgError(f"is no SVG: {error}") from None
    if root.tag != f"{NAMESPACE}svg":
        raise SvgError("is no SVG")
    box = root.get("viewBox", "")
    numbers = box.split()
    if len(numbers) != 4 or not all(re.fullmatch(r"-?\d+(\.\d+)?", part) for part in numbers):
        raise SvgError("has no viewBox")
    follow_page(root)
    names = f"{prefix}title {prefix}desc"
    head = (
        f'<svg role="img" aria-labelledby="{names}" viewBox="{box}" style="{STYLE}">'
        f'<title id="{prefix}title">{escape(visible(title))}</title>'
        f'<desc id="{prefix}desc">{escape(visible(about))}</desc>'
    )
    # every part is escaped where it is written
    body = "".join(part for child in root for part in _written(child, prefix, 0))
    return Markup(f"{head}{body}</svg>")


def inline_png(content: bytes, title: str) -> Markup:
    """A PNG file as an element of a page. Raises SvgError if it is none."""
    if not content.startswith(b"\x89PNG\r\n\x1a\n"):
        raise SvgError("is no PNG")
    data = base64.b64encode(content).decode("ascii")
    return Markup('<img alt="{}" src="{}{}">').format(visible(title), PNG, data)


def _written(element: ElementTree.Element, prefix: str, depth: int) -> Iterator[str]:
    """An element and what is in it, as text; elements that are not listed are left out."""
    tag = element.tag.removeprefix(NAMESPACE) if isinstance(element.tag, str) else ""
    if not ELEMENTS.fullmatch(tag):
        return
    if depth > MAX_DEPTH:
        raise SvgError("is nested too deeply")
    attributes = "".join(_attributes(element, prefix))
    text = str(escape(visible(element.text))) if element.text and element.text.strip() else ""
    children = [part for child in element for part in _written(child, prefix, depth + 1)]
    yield f"<{tag}{attributes}"
    if text or children:
        yield f">{text}"
        yield from children
        yield f"</{tag}>"
    else:
        yield "/>"
    if element.tail and element.tail.strip():
        yield str(escape(visible(element.tail)))


def _attributes(element: ElementTree.Element, prefix: str) -> Iterator[str]:
    for name, value in element.attrib.items():
        plain = "href" if name == HREF else name
        if not ATTRIBUTES.fullmatch(plain):
            continue
        own = _own(plain, value, prefix)
        if own is not None:
            yield f' {plain}="{escape(visible(own))}"'


def _own(name: str, value: str, prefix: str) -> str | None:
    """An attribute's value in a page; None if it leads elsewhere."""
    if name == "id":
        return prefix + re.sub(r"\s", "-", value)
    if name == "href":
        if value.startswith("#"):
            return f"#{prefix}{value[1:]}"
        data = value.replace("\n", "").strip()
        return data if re.fullmatch(PNG + r"[A-Za-z0-9+/= ]*", data) else None
    if name in {"d", "points"}:
        return " ".join(DECIMALS.sub(_rounded, value).split())
    if FORBIDDEN.search(LINK.sub("", value)):
        return None
    return LINK.sub(lambda found: f"url(#{prefix}{found[1]})", value)


def _rounded(found: re.Match[str]) -> str:
    """A coordinate to a hundredth of a point: less cannot be seen."""
    return f"{float(found[0]):.2f}".rstrip("0").rstrip(".")
