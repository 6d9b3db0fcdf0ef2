"""YAML text as plain data that remembers where each value stands.

Stricter than YAML 1.1: numbers, booleans and null are those of YAML 1.2's core schema (1e-4 is a
number, yes and 1:30 are text), a key may stand only once, and there are no dates and no tags that
build objects. Nothing here knows what an experiment is.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

KeyPath = tuple[str | int, ...]

MAX_ALIASED = 10_000  # values that come from following aliases
MAX_DEPTH = 50
MAX_NUMBER = 1 << 62  # what a column of integers holds, with room to add

_CORE = "tag:yaml.org,2002:"


class ConfigError(Exception):
    """Everything that is wrong with an experiment; lines has one sentence for each error."""

    def __init__(self, lines: Sequence[str]) -> None:
        self.lines = [" ".join(line.split()) for line in lines]
        super().__init__("\n".join(self.lines))


@dataclass
class Document:
    """Plain data, and for the path of each value the place it was written at.

    A place is "file:line", or "--set a.b=c".
    """

    data: Any
    file: str
    places: dict[KeyPath, str] = field(default_factory=dict)

    def place(self, path: KeyPath) -> str:
        """Where the value at path, or the nearest one around it, was written."""
        for end in range(len(path), -1, -1):
            if path[:end] in self.places:
                return self.places[path[:end]]
        return self.file


def dotted(path: KeyPath) -> str:
    """A path as users write it: a.b.0.c."""
    return ".".join(str(part) for part in path)


class _Loader(yaml.SafeLoader):
    """SafeLoader that resolves plain scalars by YAML 1.2's core schema."""


_Loader.yaml_implicit_resolvers = {}
_Loader.add_implicit_resolver(
    _CORE + "null", re.compile(r"^(?:~|null|Null|NULL|)$"), ["~", "n", "N", ""]
)
_Loader.add_implicit_resolver(
    _CORE + "bool", re.compile(r"^(?:true|True|TRUE|false|False|FALSE)$"), list("tTfF")
)
_Loader.add_implicit_resolver(_CORE + "int", re.compile(r"^[-+]?[0-9]+$"), list("-+0123456789"))
_Loader.add_implicit_resolver(
    _CORE + "float",
    re.compile(
        r"^(?:[-+]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?"
        r"|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))$"
    ),
    list("-+.0123456789"),
)


def read_document(path: str | Path) -> Document:
    """Read a YAML file. Raises ConfigError."""
    name = str(path)
    try:
        raw = Path(path).read_bytes()
    except (OSError, ValueError) as error:  # ValueError: a zero byte in the name
        reason = getattr(error, "strerror", None) or str(error)
        raise ConfigError([f"{name}:1: {reason}; accepted: a YAML file"]) from None
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise ConfigError([f"{name}:{line}: the text is not UTF-8"]) from None
    return parse_document(text, name)


def parse_document(text: str, name: str) -> Document:
    """Read YAML text; name stands for the file in messages. Raises ConfigError."""
    node = compose(text, name)
    document = Document({}, name)
    errors: list[str] = []
    if node is not None:
        Builder(document, errors).build_root(node)
    if errors:
        raise ConfigError(errors)
    if node is None or document.data is None:
        raise ConfigError([f"{name}:1: the file is empty; accepted: a mapping of keys"])
    if not isinstance(document.data, dict):
        place = document.place(())
        raise ConfigError([f"{place}: {_describe(document.data)}; accepted: a mapping of keys"])
    return document


def compose(text: str, name: str) -> yaml.Node | None:
    """The tree of nodes; None for an empty text. Raises ConfigError."""
    try:
        node: yaml.Node | None = yaml.compose(text, Loader=_Loader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = mark.line + 1 if mark else 1
        problem = " ".join((error.problem or str(error.context)).split())
        start = error.context_mark
        if start and start.line + 1 != line:
            problem += f" (begun in line {start.line + 1})"
        raise ConfigError([f"{name}:{line}: not YAML: {problem}"]) from None
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        raise ConfigError([f"{name}:{line}: not YAML: an unprintable character"]) from None
    except RecursionError:
        raise ConfigError([f"{name}:1: nested too deeply; accepted: {MAX_DEPTH} levels"]) from None
    except (yaml.YAMLError, ValueError, OverflowError, TypeError) as error:
        problem = " ".join(str(error).split())
        raise ConfigError([f"{name}:1: not YAML: {problem}"]) from None
    return node


class Builder:
    """Turns nodes into data, noting places and everything wrong."""

    def __init__(self, document: Document, errors: list[str], place: str = "") -> None:
        self.document = document
        self.errors = errors
        self.fixed_place = place
        self._seen: set[int] = set()
        self._num_aliased = 0

    def build_root(self, node: yaml.Node) -> None:
        """Make node the document's data."""
        self.document.data = self.build(node, (), node)

    def build(self, node: yaml.Node, path: KeyPath, at: yaml.Node) -> Any:
        """The data of a node; its place is the line of `at`, for a value that of its key."""
        self.document.places[path] = self._place(at)
        if id(node) in self._seen:
            self._num_aliased += 1
        self._seen.add(id(node))
        if self._num_aliased > MAX_ALIASED:
            if self._num_aliased == MAX_ALIASED + 1:
                self._error(at, path, f"aliases stand for more than {MAX_ALIASED:,} values")
                self._num_aliased += 1
            return None
        if len(path) > MAX_DEPTH:
            self._error(at, (), f"nested too deeply; accepted: {MAX_DEPTH} levels")
            return None
        if isinstance(node, yaml.MappingNode):
            return self._mapping(node, path)
        if isinstance(node, yaml.SequenceNode):
            return self._sequence(node, path)
        return self._scalar(node, path)

    def _mapping(self, node: yaml.MappingNode, path: KeyPath) -> dict[str, Any]:
        self._check_tag(node, path, "map")
        data: dict[str, Any] = {}
        lines: dict[str, int] = {}
        for key_node, value_node in node.value:
            key = self._key(key_node, path)
            if key is None:
                continue
            if key in data:
                self._error(key_node, (*path, key), f"is given twice, first in line {lines[key]}")
                continue
            lines[key] = key_node.start_mark.line + 1
            data[key] = self.build(value_node, (*path, key), key_node)
        return data

    def _key(self, node: yaml.Node, path: KeyPath) -> str | None:
        """A key as text, also one that looks like a number; None if it is no scalar."""
        if isinstance(node, yaml.ScalarNode) and _is_text(node.value):
            return str(node.value)
        self._error(node, path, "a key must be text")
        return None

    def _sequence(self, node: yaml.SequenceNode, path: KeyPath) -> list[Any]:
        self._check_tag(node, path, "seq")
        return [self.build(item, (*path, i), item) for i, item in enumerate(node.value)]

    def _scalar(self, node: yaml.Node, path: KeyPath) -> Any:
        kind = node.tag.removeprefix(_CORE)
        text = node.value
        if kind == "null":
            return None
        if kind == "bool":
            return text.lower() == "true"
        if kind in {"int", "float"}:
            return self._number(node, path, kind)
        if kind != "str":
            self._error(node, path, f"the tag {node.tag} has no meaning here")
        elif not _is_text(text):
            self._error(node, path, "the text holds half of a surrogate pair")
        return text

    def _number(self, node: yaml.Node, path: KeyPath, kind: str) -> int | float | None:
        text = node.value
        try:
            value = int(text) if kind == "int" else float(text.replace(".inf", "inf").lower())
        except ValueError:
            value = math.nan
        if not -MAX_NUMBER <= value <= MAX_NUMBER:
            shown = text if len(text) <= 30 else text[:30] + "…"
            self._error(
                node, path, f"{shown} is no finite number of at most {MAX_NUMBER / 1e18:.1f}e18"
            )
            return None
        return value

    def _check_tag(self, node: yaml.Node, path: KeyPath, kind: str) -> None:
        if node.tag != _CORE + kind:
            self._error(node, path, f"the tag {node.tag} has no meaning here")

    def _place(self, node: yaml.Node) -> str:
        return self.fixed_place or f"{self.document.file}:{node.start_mark.line + 1}"

    def _error(self, node: yaml.Node, path: KeyPath, sentence: str) -> None:
        key = f"{dotted(path)}: " if path else ""
        self.errors.append(f"{self._place(node)}: {key}{sentence}")


def _describe(value: object) -> str:
    return f"is a list of {len(value)}" if isinstance(value, list) else f"is only {value!r}"


def _is_text(text: str) -> bool:
    """Whether the text can be written to a file: no lone surrogates."""
    return not any("\ud800" <= c <= "\udfff" for c in text)
