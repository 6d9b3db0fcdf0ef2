"""Values set in a document from outside of its text: `--set`, and what the library is given."""

from __future__ import annotations

from typing import Any

from sim.config.yaml_nodes import Builder, ConfigError, Document, KeyPath, compose, dotted


def apply_override(document: Document, override: str) -> None:
    """Set a value as `--set a.b=c` says, where c is YAML. Raises ConfigError.

    Mappings on the way are made; an entry of a list is named by its number from 0.
    """
    place = f"--set {override}"
    key, equals, text = override.partition("=")
    parts = key.strip().split(".")
    if not equals or not all(parts):
        raise ConfigError([f"{place}: must have the form a.b=value"])
    try:
        node = compose(text, "")
    except ConfigError as error:
        problem = error.lines[0].split(": ", maxsplit=1)[1]
        raise ConfigError([f"{place}: {problem}"]) from None
    target, path = _make_way(document, parts, place)
    errors: list[str] = []
    value = None
    if node is not None:
        value = Builder(document, errors, place).build(node, path, node)
    if errors:
        raise ConfigError(errors)
    document.places[path] = place
    target[path[-1]] = value


def set_value(document: Document, key: str, value: Any, place: str) -> None:
    """Set plain data at a dotted key, as an override does; place stands in messages about it.

    Raises ConfigError.
    """
    parts = key.strip().split(".")
    if not all(parts):
        raise ConfigError([f"{place}: must be a key like a.b"])
    target, path = _make_way(document, parts, place)
    document.places[path] = place
    target[path[-1]] = value


def _make_way(document: Document, parts: list[str], place: str) -> tuple[Any, KeyPath]:
    """The container that a value is set in, and its whole path. Raises ConfigError.

    Where the old value was written is forgotten.
    """
    target, path = _descend(document, parts, place)
    for known in [known for known in document.places if known[: len(path)] == path]:
        del document.places[known]
    return target, path


def _descend(document: Document, parts: list[str], place: str) -> tuple[Any, KeyPath]:
    """The container that an override changes, and the whole path. Raises ConfigError."""
    target = document.data
    path: KeyPath = ()
    for i, part in enumerate(parts):
        if isinstance(target, list):
            if not part.isascii() or not part.isdigit() or int(part) >= len(target):
                raise ConfigError(
                    [
                        f"{place}: {dotted(path)} is a list of {len(target)}; accepted: "
                        f"{dotted(path)}.0 to {dotted(path)}.{len(target) - 1} and what is below"
                    ]
                )
            step: str | int = int(part)
        else:
            step = part
        path = (*path, step)
        if i == len(parts) - 1:
            return target, path
        if isinstance(target, dict) and target.get(part) is None:
            target[part] = {}
            document.places[path] = place
        target = target[step]
        if not isinstance(target, dict | list):
            raise ConfigError([f"{place}: {dotted(path)} is {target!r} and has no keys"])
    raise AssertionError("a key has at least one part")
