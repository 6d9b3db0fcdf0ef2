"""What schemas are written with."""

from __future__ import annotations

from typing import Any

Schema = dict[str, Any]

NULL: Schema = {"type": "null"}


def any_of(*schemas: Schema) -> Schema:
    """Whatever one of the schemas takes."""
    return {"anyOf": list(schemas)}


def ref(name: str) -> Schema:
    """The schema of that name among the definitions."""
    return {"$ref": f"#/$defs/{name.replace(' ', '%20')}"}
