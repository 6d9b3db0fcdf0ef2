"""The schemas of plug-in tables: which keys their entries may have, and which they must."""

from __future__ import annotations

import inspect
from collections.abc import Mapping

from sim.config.classes import Table
from sim.config.plugin_keys import MAX_TOKENS_RULES
from sim.config.plugins import nested_lists, nested_tables, parameter_model, split_key
from sim.config.schema.common import said_of
from sim.config.schema.keys import keys_of
from sim.config.schema.terms import NULL, Schema, any_of, ref
from sim.hardware.types import MAX_MODEL_LEN
from workloads import installed


def plugin_schemas(tables: Mapping[str, Table]) -> dict[str, Schema]:
    """The schemas of tables of plug-ins by name, those of their entries as name.kind.

    A table that entries of another one name must stand before it.
    """
    definitions = Definitions()
    for name, table in tables.items():
        definitions.add_table(name, table)
    return definitions.schemas


class Definitions:
    """The $defs: a table as `name`, its entries as `name.kind`, and `name complete`.

    The first two say which keys and values there may be, the last which keys there must be.
    """

    def __init__(self) -> None:
        self.schemas: dict[str, Schema] = {}
        self._names: dict[int, str] = {}

    def add_table(
        self, name: str, table: Table, base: type | None = None, default: str | None = None
    ) -> str:
        """Define a table of plug-ins, unless it is known; return its name.

        A table may have entries with parameters that it names itself.
        """
        if known := self._names.get(id(table)):
            return known
        if name in self._names.values():
            name = f"{name}-{len(self._names)}"
        self._names[id(table)] = name
        entries = []
        whole = {**table, **_brought(table, base)}
        for kind, entry in whole.items():
            schema = self.schemas[f"{name}.{kind}"] = self._entry(kind, entry)
            entries.append(ref(f"{name}.{kind}"))
            if name == "workload":
                schema["properties"]["max_tokens"] = _max_tokens()
            if key := getattr(entry, "shorthand", None):
                entries.append(schema["properties"][key])
        if base is not None:
            elsewhere = {"type": "string", "pattern": ":", "description": "module:Class"}
            one = {"type": "object", "properties": {"kind": elsewhere}, "required": ["kind"]}
            entries.append(one)
        self.schemas[name] = any_of(*entries)
        complete: Schema = {"allOf": [self._case(*item) for item in whole.items()]}
        if default is None:
            complete["required"] = ["kind"]
        self.schemas[f"{name} complete"] = complete
        return name

    def _entry(self, kind: str, entry: type) -> Schema:
        """The keys that an entry may have."""
        schema = keys_of(parameter_model(entry), self.schemas, entry)
        schema.pop("required", None)  # a sweep may set them
        properties = schema["properties"]
        for key, value in properties.items():
            if value["description"] == schema["description"] and (said := said_of(key, entry)):
                value["description"] = said
        for key, table in nested_tables(entry).items():
            about = {"description": properties[key]["description"]}
            one = ref(self.add_table(key, table))
            is_optional = inspect.signature(entry).parameters[key].default is None
            properties[key] = (any_of(one, NULL) if is_optional else one) | about
        for key, table in nested_lists(entry).items():
            properties[key]["items"] = ref(self.add_table(key, table))
        for key, names in getattr(entry, "item_keys", {}).items():
            items = properties[key]["items"]
            cell = items["additionalProperties"]
            items |= {"properties": dict.fromkeys(names, cell), "additionalProperties": False}
        for key, value in properties.items():
            for member in value.get("anyOf", [value]):
                if member.get("type") in {"integer", "number"}:
                    member.update(_lower_bound(entry, key, member["type"] == "integer"))
        about_kind = {"const": kind, "description": schema["description"]}
        schema["properties"] = {"kind": about_kind, **properties}
        return schema

    def _case(self, kind: str, entry: type) -> Schema:
        """The keys that an entry of this kind must have, also in what is nested."""
        rules = {
            key: ref(f"{self._names[id(table)]} complete")
            for key, table in nested_tables(entry).items()
        }
        rules |= {
            key: {"items": ref(f"{self._names[id(table)]} complete")}
            for key, table in nested_lists(entry).items()
        }
        return {
            "if": {"properties": {"kind": {"const": kind}}, "required": ["kind"]},
            "then": {
                "required": parameter_model(entry).model_json_schema().get("required", []),
                "properties": rules,
            },
        }


def _brought(table: Table, base: type | None) -> dict[str, type]:
    """The plug-ins that installed packages add to a table: those that can be used by name."""
    found = installed.load_each(base) if base is not None else {}
    return {
        name: entry
        for name, entry in found.items()
        if isinstance(entry, type) and name not in table and _has_parameters(entry)
    }


def _has_parameters(entry: type) -> bool:
    """Whether the parameters of a class can be read."""
    try:
        parameter_model(entry)
    except ValueError:
        return False
    return True


def _max_tokens() -> Schema:
    count = {"type": "integer", "minimum": 1, "maximum": MAX_MODEL_LEN}
    about = "What the scheduler knows of the output: a rule, or a number of tokens."
    return any_of({"enum": list(MAX_TOKENS_RULES)}, count, NULL) | {"description": about}


def _lower_bound(cls: type, key: str, is_whole: bool) -> Schema:
    """What a constructor says of -1 and 0: a refusal begins with the key."""
    schema = parameter_model(cls).model_json_schema()
    others = {
        name: 1 if schema["properties"][name].get("type") in {"integer", "number"} else "x"
        for name in schema.get("required", [])
    }

    def refuses(value: float) -> bool:
        try:
            cls(**{**others, key: value})
        except ValueError as error:
            return split_key(str(error))[0] == (key,)
        except Exception:  # about the others, or two that do not go together
            return False
        return False

    if refuses(0):
        takes_more = not all(refuses(value) for value in ([1] if is_whole else [0.5, 1.0]))
        bound = {"minimum": 1} if is_whole else {"exclusiveMinimum": 0}
        return bound if takes_more else {}
    return {"minimum": 0} if refuses(-1) else {}
