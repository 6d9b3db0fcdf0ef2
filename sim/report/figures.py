"""Figures in a page: SVG whose ids are its own, without style sheets, scripts or references."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

from markupsafe import Markup, escape

from sim.report.tables import Table
from sim.report.text import visible

TITLES = {
    "waste": "Where the KV slots are",
    "timeline": "Where the KV slots are over time",
    "requests": "Running and waiting requests over time",
    "metric_vs_sweep": "Metrics against what is swept",
    "pool_map": "The pool, slot by slot, over time",
    "block_tables": "Block tables, step by step",
    "batched": "Requests that run at a time",
    "latency_vs_rate": "Latency against the rate of requests",
    "waste_vs_load": "Where the KV slots are, against load",
    "block_size_forces": "What a block size changes",
    "prefix_policies": "Hit rates of eviction policies against capacity",
    "engines": "Engines side by side",
    "block_size_sharing": "What larger blocks waste and no longer share",
    "steps": "Iterations, step by step",
    "routing": "Routers: hit rates and latency",
    "capacity_rates": "The highest rates within the limits",
}

ELEMENTS = [
    "svg",
    "g",
    "defs",
    "path",
    "use",
    "rect",
    "circle",
    "ellipse",
    "line",
    "polyline",
    "polygon",
    "clipPath",
    "text",
    "tspan",
    "title",
    "desc",
    "image",
    "pattern",
    "linearGradient",
    "radialGradient",
    "stop",
    "marker",
    "mask",
    "symbol",
]
ATTRIBUTES = [
    "id",
    "d",
    "x",
    "y",
    "x1",
    "y1",
    "x2",
    "y2",
    "cx",
    "cy",
    "r",
    "rx",
    "ry",
    "width",
    "height",
    "points",
    "transform",
    "viewBox",
    "style",
    "clip-path",
    "clip-rule",
    "fill",
    "fill-rule",
    "fill-opacity",
    "stroke",
    "stroke-width",
    "stroke-opacity",
    "stroke-dasharray",
    "stroke-linecap",
    "stroke-linejoin",
    "opacity",
    "preserveAspectRatio",
    "patternUnits",
    "patternTransform",
    "patternContentUnits",
    "gradientUnits",
    "gradientTransform",
    "offset",
    "stop-color",
    "stop-opacity",
    "mask",
    "text-anchor",
    "font-size",
    "font-family",
    "dx",
    "dy",
    "href",
    "clipPathUnits",
]
HREF = "{http://www.w3.org/1999/xlink}href"
NAMESPACE = "{http://www.w3.org/2000/svg}"
LINK = re.compile(r"url\(\s*['\"]?#([^)'\"]*)['\"]?\s*\)")
FORBIDDEN = re.compile(r"url\((?!#)|@import|expression|javascript:|\\", re.IGNORECASE)
DECIMALS = re.compile(r"-?\d+\.\d{3,}(?:[eE][-+]?\d+)?")
PNG = "data:image/png;base64,"
MAX_DEPTH = 100
STYLE = "stroke-linejoin:round;stroke-linecap:butt"  # what matplotlib's style sheet sets


class SvgError(Exception):
    """A picture that cannot stand in a page: a phrase."""


@dataclass(frozen=True)
class Figure:
    """A drawn figure: NAME.svg or NAME.png in its folder, and the plotted points."""

    name: str
    folder: Path
    points: Table | None

    @property
    def title(self) -> str:
        return TITLES.get(self.name, self.name.replace("_", " "))

    @property
    def svg_path(self) -> Path:
        return self.folder / f"{self.name}.svg"

    @property
    def png_path(self) -> Path:
        return self.folder / f"{self.name}.png"

    def describe(self) -> str:
        """What the figure shows, for those who do not see it: what its points are."""
        if self.points is None:
            return "The plotted points are not there."
        columns = ", ".join(self.points.columns[:12])
        more = " and others" if len(self.points.columns) > 12 else ""
        return f"{len(self.points.rows):,} plotted points with {columns}{more}."


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
    if tag not in ELEMENTS or tag == "svg":
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
        if plain not in ATTRIBUTES:
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
