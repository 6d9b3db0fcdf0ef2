"""Keys of a JSON schema as a table: type, default, range, and what they are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sim.reference.markdown import code, table, text

TYPES = {"integer": "whole number", "number": "number", "boolean": "true or false"}
TYPES |= {"string": "text", "array": "list", "object": "mapping", "null": "null"}
BOUNDS = {"minimum": "≥", "exclusiveMinimum": ">", "maximum": "≤", "exclusiveMaximum": "<"}
MAX_SHOWN = 1 << 62  # a larger limit is that of 64 bits
MAX_NAMES = 9  # a longer enumeration has a page or a table of its own

# headings of the page of plug-ins, and of that of experiments, by their names in the schema
HEADINGS = {"workload": "workloads", "allocator": "allocators", "scheduler": "schedulers"}
HEADINGS |= {"cost": "costs", "router": "routers", "prefixes": "prefixes", "turns": "turns"}
HEADINGS |= {name: name for name in ("workloads", "arrivals", "lengths", "durations")}
OWN_HEADINGS = {"KvCacheKeys": "kv_cache", "SloKeys": "slo", "ReplicasKeys": "replicas"}
OWN_HEADINGS |= {"replayed-trace": "experiments-without-an-engine"}

Schema = Mapping[str, Any]


def keys_table(properties: Schema, about: str = "") -> str:
    """A table of keys. A description that is only the whole's, about, is left out."""
    rows = []
    for key, schema in properties.items():
        if key == "kind":
            continue
        said = schema.get("description", "")
        rows.append(
            (code(key), type_of(schema), _default(schema), text(said) if said != about else "")
        )
    return table(["key", "type", "default", "what it is"], rows) if rows else ""


def type_of(schema: Schema) -> str:
    """A type with its bounds, in words."""
    if "$ref" in schema:
        return _link(schema["$ref"].rsplit("/", maxsplit=1)[-1])
    if "allOf" in schema:
        return type_of(schema["allOf"][0])
    if "anyOf" in schema:
        shown = [type_of(member) for member in schema["anyOf"] if "pattern" not in member]
        words = [word for part in shown if part for word in part.split(" or ")]
        return " or ".join(dict.fromkeys(words))
    if "enum" in schema:
        names = schema["enum"]
        return ", ".join(map(code, names)) if len(names) <= MAX_NAMES else "a name"
    if "const" in schema:
        return code(schema["const"])
    name = TYPES.get(schema.get("type", ""), "")
    if schema.get("type") == "array" and isinstance(items := schema.get("items"), dict):
        inner = type_of(items)
        name = f"list of {inner}" if inner else name
    limits = {key: schema[key] for key in BOUNDS if schema.get(key, MAX_SHOWN) < MAX_SHOWN}
    bounds = [f"{BOUNDS[key]} {limit:,}" for key, limit in limits.items()]
    return f"{name} {', '.join(bounds)}".strip()


def _default(schema: Schema) -> str:
    if "default" not in schema:
        return ""
    value = schema["default"]
    named = {None: "null", True: "true", False: "false"}
    shown = named[value] if value is None or isinstance(value, bool) else value
    return code(shown if shown != "" else '""')


def _link(name: str) -> str:
    """A definition of the schema by name: a heading of a page, or of this one."""
    if name in HEADINGS:
        return f"[{name}](plugins.md#{HEADINGS[name]})"
    if name in OWN_HEADINGS:
        return f"[mapping](#{OWN_HEADINGS[name]})"
    return name
