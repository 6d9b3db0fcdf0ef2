"""What a page of README or docs shows in fenced blocks, read so that a test can run it.

A `bash` block holds commands. In a `console` block commands begin with `$ ` and what follows is
their output: a line that is `…` stands for any lines, `…` within a line for any text. A block whose
first line is a comment with a file name (`# mine.yaml`) is that file. A comment before a block says
how it is run where that is not as it stands:

    <!-- run: with --set seeds=1 -->     these arguments are added to each command; figures=[]
                                         spares drawing, where other tests draw the same
    <!-- run: check -->                  `kvsim run` is slow and its results are committed: `check`
    <!-- run: parse, REASON -->          only its arguments are read
    <!-- run: exit 2 -->                 the exit code that is expected
    <!-- run: other, REASON -->          programs of others, and what needs them: not run; each must
                                         be one of a short list, or a file of the page
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

FENCE = re.compile(r"(?ms)^(?:<!-- run: (?P<how>.*?) -->\n+)?```(?P<kind>\w*)\n(?P<body>.*?)^```$")
FILE = re.compile(r"# ([\w./-]+\.\w+)\b")
ELISION = "…"


@dataclass
class Command:
    """A command as it is shown, how it is run, and the output that is shown; None if none is."""

    line: str
    how: str = ""
    output: list[str] | None = None

    @property
    def words(self) -> list[str]:
        return shlex.split(self.line, comments=True)


@dataclass
class Page:
    """A page's files and commands, in the order in which they stand."""

    path: Path
    items: list[Command | tuple[str, str]] = field(default_factory=list)

    @property
    def commands(self) -> list[Command]:
        return [item for item in self.items if isinstance(item, Command)]


def read_page(path: Path) -> Page:
    page = Page(path)
    for block in FENCE.finditer(path.read_text(encoding="utf-8")):
        kind, body, how = block["kind"], block["body"], block["how"] or ""
        if kind in {"bash", "console"}:
            page.items += _commands(kind, body, how)
        elif named := FILE.match(body):
            page.items.append((named[1], body))
    return page


def _commands(kind: str, body: str, how: str) -> Iterator[Command]:
    found: list[Command] = []
    for line in body.replace("\\\n", " ").splitlines():
        if kind == "bash" and line.strip() and not line.startswith("#"):
            found.append(Command(line, how))
        elif kind == "console" and line.startswith("$ "):
            found.append(Command(line[2:], how, []))
        elif kind == "console":
            assert found, f"output before a command: {line}"
            assert found[-1].output is not None
            found[-1].output.append(line)
    return iter(found)


def is_shown_by(output: str, shown: list[str]) -> bool:
    """Whether an output is what a page shows of it."""
    lines = [line.rstrip() for line in output.splitlines()]
    parts = []
    for line in shown:
        if line.strip() == ELISION:
            parts.append(r"(?:.*\n)*")
        else:
            parts.append(r".*".join(map(re.escape, line.rstrip().split(ELISION))) + r"\n")
    return re.fullmatch("".join(parts), "".join(line + "\n" for line in lines)) is not None
