"""Docstrings and values as Markdown that GitHub and a site's builder read alike."""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Iterable, Sequence
from textwrap import dedent
from typing import Any

SPECIAL = re.compile(r"([\\*<>|\[\]])")
NAME = re.compile(r"(?<![\w`/.])([a-z][a-z0-9]*(?:_[a-z0-9]+)+(?:\.[a-z_]+)*)(?![\w`/])")


def text(words: str) -> str:
    """Plain words as Markdown: nothing in them is markup, names with underscores are code."""
    parts = re.split(r"(`[^`]*`)", " ".join(words.split()))
    return "".join(part if part.startswith("`") else _escaped(part) for part in parts)


def _escaped(words: str) -> str:
    return NAME.sub(r"`\1`", SPECIAL.sub(r"\\\1", words))


def code(value: object) -> str:
    """A value as code; in a table a bar would end the cell."""
    return f"`{str(value).replace('|', '&#124;')}`" if str(value) else ""


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table. Cells are Markdown without line breaks."""
    lines = [f"| {' | '.join(head)} |", "|" + "---|" * len(head)]
    lines += [f"| {' | '.join(row)} |" for row in rows]
    return "\n".join(lines) + "\n"


def paragraphs(doc: str | None) -> list[str]:
    """The paragraphs of a docstring, as they stand."""
    return re.split(r"\n\s*\n", inspect.cleandoc(doc or ""))


def prose(doc: str | None, first: int = 0, last: int | None = None) -> str:
    """Paragraphs of a docstring as Markdown; indented ones are code, lines behind - are a list."""
    shown = []
    for part in paragraphs(doc)[first:last]:
        if part.startswith("    ") or "\n    " in part:
            shown.append(f"```text\n{dedent(part)}\n```")
            continue
        lead, *items = re.split(r"(?m)^- ", part)
        listed = "\n".join(f"- {text(item)}" for item in items)
        shown += [words for words in (text(lead), listed) if words]
    return "\n\n".join(shown)


def module_doc(entry: Any) -> str | None:
    """The docstring of the module that an entry is written in."""
    return inspect.getdoc(sys.modules[entry.__module__])


def source(entry: Any) -> str:
    """The file that an entry is written in, as a path of the repository."""
    return f"`{entry.__module__.replace('.', '/')}.py`"
