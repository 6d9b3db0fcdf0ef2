"""Verdicts on claims of papers, as a table of a page."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

from sim.claims.text import expected_text, measured_text, variation_text
from sim.claims.verdicts import (
    CONFIRMED,
    DIRECTION,
    FITTED,
    NO_DATA,
    NOT_REPRODUCED,
    OUT_OF_SCOPE,
    REFUTED,
    VACUOUS,
    VERDICTS,
)
from sim.report.reading import text_of, texts_of
from sim.report.templates import render

# a sign and a class beside the words: never colour alone
SIGNS = {
    CONFIRMED: ("✓", "good"),
    FITTED: ("≈", "good"),
    DIRECTION: ("↗", "half"),
    NOT_REPRODUCED: ("✗", "bad"),
    REFUTED: ("✗✗", "bad"),
    VACUOUS: ("∅", "none"),
    NO_DATA: ("…", "none"),
    OUT_OF_SCOPE: ("–", "none"),
}
Entry = dict[str, Any]
FAILED = {DIRECTION, NOT_REPRODUCED, REFUTED}


@dataclass(frozen=True)
class Verdict:
    """A claim as a row: texts, and lines of what else is known, each with what it is."""

    id: str
    source: str
    where: str
    statement: str
    expected: str
    measured: str
    verdict: str
    sign: str
    grade: str
    more: list[tuple[str, str]]


def verdicts(entries: Iterable[Entry]) -> list[Verdict]:
    """The rows of entries of the record."""
    return [_verdict(entry) for entry in entries]


def claims_table(entries: Sequence[Entry]) -> Markup:
    """The verdicts as a table, how many there are of each, and what each says."""
    rows = verdicts(entries)
    counts = Counter(row.verdict for row in rows)
    known = [(verdict, counts[verdict]) for verdict in VERDICTS if counts[verdict]]
    sources = {
        text_of(entry, "source"): (text_of(entry, "title"), text_of(entry, "ref"))
        for entry in entries
    }
    return render(
        "claims.html", rows=rows, counts=known, meanings=VERDICTS, signs=SIGNS, sources=sources
    )


def _verdict(entry: Entry) -> Verdict:
    verdict = str(entry.get("verdict"))
    sign, grade = SIGNS.get(verdict, ("?", "none"))
    expected, measured = expected_text(entry), measured_text(entry["measured"])
    more = list(_more(entry, verdict))
    return Verdict(
        str(entry.get("id")),
        text_of(entry, "source"),
        text_of(entry, "where"),
        text_of(entry, "statement"),
        expected,
        measured,
        verdict,
        sign,
        grade,
        more,
    )


def _more(entry: Mapping[str, Any], verdict: str) -> list[tuple[str, str]]:
    """Why a claim fails, what was fitted, how its value varies, and what measures it."""
    lines = []
    if verdict in FAILED:
        lines += [("missed", miss) for miss in texts_of(dict(entry), "misses")]
        lines.append(("because", str(entry.get("because") or "")))
    lines += [("note", str(entry.get(key) or "")) for key in ("note", "notes")]
    lines += [("tested by", variation_text(one)) for one in entry.get("ablation", [])]
    for one in entry.get("sensitivity", []):
        values = "; ".join(map(variation_text, one["values"]))
        lines.append((f"varied, {one['parameter']}", values))
    lines += [("experiment", name) for name in texts_of(dict(entry), "experiments")]
    return [(what, text) for what, text in lines if text]
