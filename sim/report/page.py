"""A page from what was read: SECTIONS filled in, within MAX_BYTES."""

from __future__ import annotations

import base64
import hashlib
import importlib.metadata
import re
import shlex
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from markupsafe import Markup

from sim.claims.verdicts import VERDICTS
from sim.report import claims
from sim.report.figures import figure_list
from sim.report.limits import LADDER, MAX_BYTES
from sim.report.reading import Read, read_figures, read_results
from sim.report.sections import SECTIONS
from sim.report.templates import render
from sim.report.text import bytes_text
from sim.results.files import ResultsError, replacing
from sim.stored.verdicts import read_verdicts

NAME = "report.html"
HERE = Path(__file__).parent
SCRIPTED = {"player"}  # sections that bring scripts of their own
SCRIPT = re.compile(r"<script>(.*?)</script>", re.DOTALL)

Parts = list[tuple[str, str, Markup]]


@dataclass(frozen=True)
class Written:
    """A page that was written: where, how large, and what had to be left out."""

    path: Path
    num_bytes: int
    left_out: tuple[str, ...]

    def line(self) -> str:
        """For the terminal."""
        less = f"; left out: {'; '.join(self.left_out)}" if self.left_out else ""
        return f"{self.path} ({bytes_text(self.num_bytes)}{less})"


def write_report(folder: Path, path: Path | None = None) -> Written:
    """Write the page of an experiment's results, report.html there if no path is given.

    Raises ResultsError if the folder holds no finished experiment, or the page cannot be written.
    """
    read = read_results(folder)
    text, left_out = _fitting(read)
    return _write(path or folder / NAME, text, left_out)


def write_claims_report(folder: Path, path: Path | None = None) -> Written:
    """Write the page of all claims, from verdicts.json in folder. Raises ResultsError."""
    entries = read_verdicts(folder / "verdicts.json")
    drawn = read_figures(folder / "figures", [], [])
    for limits, left_out in LADDER:
        parts: Parts = [("claims", "Verdicts", claims.claims_table(entries))]
        figures = figure_list(drawn, limits)
        if figures is not None:
            parts.append(("figures", "The papers' figures, printed numbers and ours", figures))
        text = _page(
            "Claims of papers, measured",
            ["What papers and posts claim, against what is measured here."],
            [(verdict, str(count)) for verdict, count in _verdict_counts(entries)],
            parts,
            ("kvsim report --claims", left_out),
        )
        if len(text) <= MAX_BYTES:
            return _write(path or folder / NAME, text, left_out)
    raise ResultsError(f"{folder}: its page would be larger than {bytes_text(MAX_BYTES)}")


def _verdict_counts(entries: Sequence[dict[str, object]]) -> list[tuple[str, int]]:
    counts = Counter(str(entry["verdict"]) for entry in entries)
    return [("claims", len(entries)), *((v, counts[v]) for v in VERDICTS if counts[v])]


def _fitting(read: Read) -> tuple[bytes, tuple[str, ...]]:
    """The fullest page that is small enough, and what is left out of it. Raises ResultsError."""
    title = read.facts.name
    description = [line.strip() for line in read.facts.description.split("\n\n") if line.strip()]
    made_by = shlex.join(["kvsim", "report", f"results/{title}"])
    for limits, left_out in LADDER:
        parts: Parts = []
        for name, (heading, make) in SECTIONS.items():
            if name == "player" and not limits.has_player:
                continue
            body = make(read, limits)
            if body is not None:
                parts.append((name, heading, Markup(body)))
        facts = list(_facts(read))
        text = _page(title, description[:20], facts, parts, (made_by, left_out))
        if len(text) <= MAX_BYTES:
            return text, left_out
    raise ResultsError(
        f"{read.stored.folder}: its page would be larger than {bytes_text(MAX_BYTES)}"
    )


def _facts(read: Read) -> Iterator[tuple[str, str]]:
    """The strip below the title: what there is in a few numbers."""
    if read.runs is not None:
        counts = Counter(str(row.get("status")) for row in read.runs.rows)
        yield "runs", f"{len(read.runs.rows):,}"
        for status, count in counts.items():
            if len(counts) > 1 or status != "finished":
                yield status, f"{count:,}"
        seeds = {row.get("seed") for row in read.runs.rows} - {None}
        if len(seeds) > 1:
            yield "seeds", f"{len(seeds):,}"
    if read.rates is not None:
        yield "kinds of memory", f"{len(read.rates.rows):,}"
    for key in ("engine", "model", "device"):
        value = read.facts.config.get(key)
        is_one = read.runs is None or not read.runs.varies(key)
        if isinstance(value, str) and is_one:
            yield key, value


def _page(
    title: str,
    description: list[str],
    facts: list[tuple[str, str]],
    parts: Parts,
    foot: tuple[str, tuple[str, ...]],
) -> bytes:
    """The page as UTF-8."""
    made_by, left_out = foot
    js = (HERE / "report.js").read_text(encoding="utf-8")
    scripts = [js] + [
        s for name, _, body in parts if name in SCRIPTED for s in SCRIPT.findall(body)
    ]
    page = render(
        "page.html",
        title=title,
        kicker="kvsim",
        description=description,
        facts=facts,
        sections=parts,
        left_out=left_out,
        limit=bytes_text(MAX_BYTES),
        policy=_policy(scripts),
        css=Markup((HERE / "report.css").read_text(encoding="utf-8")),
        js=Markup(js),
        version=importlib.metadata.version("kvsim"),
        made_by=made_by,
    )
    return page.strip().encode("utf-8") + b"\n"


def _policy(scripts: list[str]) -> str:
    """A content security policy: nothing is loaded, and no other script runs."""
    hashes = [
        base64.b64encode(hashlib.sha256(script.encode("utf-8")).digest()).decode("ascii")
        for script in scripts
    ]
    allowed = " ".join(f"'sha256-{digest}'" for digest in hashes)
    return (
        "default-src 'none'; base-uri 'none'; form-action 'none'; img-src data:; "
        f"style-src 'unsafe-inline'; script-src {allowed}"
    )


def _write(path: Path, text: bytes, left_out: tuple[str, ...]) -> Written:
    if path.is_dir():
        raise ResultsError(f"{path}: is a folder; accepted: the path of a file")
    with replacing(path) as temporary:
        temporary.write_bytes(text)
    return Written(path, len(text), left_out)
