"""The keys of a mapping, described by the docstring of the class that takes them."""

from __future__ import annotations

import inspect
import re

from sim.config.plugins import Strict
from sim.config.schema.terms import Schema


def keys_of(model: type[Strict], schemas: dict[str, Schema], about: type | None = None) -> Schema:
    """The schema of a model's keys, with their descriptions from the docstrings of a class.

    The class is the model unless it is about another. Models within it are added to schemas.
    """
    docs = [doc for cls in (about or model).__mro__ if (doc := vars(cls).get("__doc__"))]
    schema: Schema = model.model_json_schema()
    for name, inner in schema.pop("$defs", {}).items():
        _describe(inner, [inner["description"]])
        schemas[name] = inner
    _describe(schema, docs)
    return schema


def _describe(schema: Schema, docs: list[str]) -> None:
    """Give a mapping and its keys descriptions from docstrings, instead of titles."""
    schema.pop("title", None)
    schema["description"] = _summary(docs[0])
    for key, value in schema["properties"].items():
        value.pop("title", None)
        value["description"] = _about(key, docs)


def _about(key: str, docs: list[str]) -> str:
    """The sentences about a key in the first docstring that has any; failing that, its summary."""
    for doc in docs:
        sentences = re.split(r"(?<=\.)\s+", " ".join(doc.split()))
        found = [sentence for sentence in sentences if re.search(rf"\b{key}\b", sentence)]
        first = [sentence for sentence in found if sentence.startswith(f"{key} ")]
        if found:
            return " ".join(first or found)
    return _summary(docs[0])


def _summary(doc: str) -> str:
    """The first paragraph of a docstring."""
    return " ".join(inspect.cleandoc(doc).partition("\n\n")[0].split())
