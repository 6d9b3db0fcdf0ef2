"""A JSON Schema of experiment files, for editors: `kvsim check --schema`.

Made from what validates: the pydantic models of the keys, the plug-in tables, the annotations of
constructors and, for lower bounds, the constructors themselves, which are asked whether they
take -1 and 0. Descriptions are the sentences of docstrings that name a key.

The schema knows less than `kvsim check`: what depends on two keys, on a file, or on an upper
bound that only a constructor knows, passes. What it refuses, check refuses too, but for two
things: a value that a sweep replaces is looked at as it stands, and a model that is a folder
must be written like a path. With a sweep, keys that it may set are not required.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable, Mapping
from typing import Any

from sim.axes import ALL, LIST, SWEEPABLE, ZIP
from sim.classes import Table
from sim.config import DEFAULT_ROUTER, DEFAULTS, MAX_TOKENS_RULES, NAME, PLUGINS, TABLES
from sim.engine_presets import ENGINES, PARTS
from sim.experiment import MAX_SEED, MAX_SEEDS
from sim.figure_keys import FIGURE_NAMES
from sim.hardware import GPU_ALIASES, GPUS, MODEL_ALIASES, MODELS
from sim.hardware_keys import ConfigKeys, DeviceKeys, ModelKeys
from sim.hardware_types import MAX_MODEL_LEN
from sim.keys import RecordKeys, ReplayedTrace, ReplayKeys, TopKeys
from sim.plugins import (
    Strict,
    nested_lists,
    nested_tables,
    parameter_model,
    split_key,
)
from sim.policies import POLICIES
from sim.replays import FIGURES as REPLAY_FIGURES
from sim.sampling import SAMPLERS, RangeKeys, SampleKeys
from workloads import installed

Schema = dict[str, Any]

DIALECT = "https://json-schema.org/draft/2020-12/schema"
NULL: Schema = {"type": "null"}
ENGINE_PATH: Schema = {"type": "string", "pattern": r"^[.$/]|\.ya?ml$"}
PATH_LIKE: Schema = {"type": "string", "pattern": r"^[.$]|/|\.json$"}


def experiment_schema() -> Schema:
    """The schema of an experiment file."""
    definitions = _Definitions()
    top = _keys(TopKeys, definitions)
    for key, schema in _open_keys(definitions).items():
        schema["description"] = top["properties"][key]["description"]
        top["properties"][key] = schema
    replay = _replay_keys(definitions)
    of_engines, of_replays = set(top["properties"]), set(replay["properties"])
    top["properties"] |= {k: v for k, v in replay["properties"].items() if k not in of_engines}
    top["properties"]["name"]["pattern"] = f"^(?:{NAME.pattern})$"
    whole = [
        _unless(["engine"], {"required": ["allocator"]}, or_swept="engine"),
        _unless(["sweep"], _complete([key for key in PLUGINS if key not in PARTS])),
        _unless(["sweep", "engine"], _complete(PARTS)),
    ]
    return {
        "$schema": DIALECT,
        "title": "kvsim experiment",
        **top,
        "required": ["name"],
        "if": {"required": ["policies"]},
        "then": {
            "propertyNames": {"enum": sorted(of_replays)},
            "properties": {"figures": _figures(REPLAY_FIGURES)},
            "required": ["traces"],
        },
        "else": {
            "propertyNames": {"enum": sorted(of_engines)},
            "properties": {"figures": _figures(FIGURE_NAMES)},
            "allOf": whole,
        },
        "$defs": definitions.schemas,
    }


def plugin_schemas(tables: Mapping[str, Table]) -> dict[str, Schema]:
    """The schemas of tables of plug-ins by name, those of their entries as name.kind.

    A table that entries of another one name must stand before it.
    """
    definitions = _Definitions()
    for name, table in tables.items():
        definitions.add_table(name, table)
    return definitions.schemas


def _replay_keys(definitions: _Definitions) -> Schema:
    """The schema of experiments that replay policies; what they share with the others aside."""
    replay = _keys(ReplayKeys, definitions)
    keys = replay["properties"]
    names = {"items": {"enum": list(POLICIES)}, "minItems": 1, "uniqueItems": True}
    keys["policies"] |= names
    trace = _keys(ReplayedTrace, definitions)
    about = trace["properties"]["workload"]["description"]
    whole = {"allOf": [_ref("workload"), _ref("workload complete")], "type": ["object"]}
    trace["properties"]["workload"] = whole | {"description": about}
    definitions.schemas["replayed-trace"] = trace
    pattern = {"pattern": f"^(?:{NAME.pattern})$"}
    one = {"additionalProperties": _ref("replayed-trace"), "propertyNames": pattern}
    keys["traces"] |= one | {"type": "object", "minProperties": 1}
    return replay


def _figures(names: Iterable[str]) -> Schema:
    items = {"enum": list(names)}
    return _any_of({"type": "array", "items": items, "uniqueItems": True}, NULL)


def _unless(keys: Iterable[str], then: Schema, or_swept: str | None = None) -> Schema:
    """What must hold of an experiment that has none of these keys, nor sweeps or_swept."""
    has_any: list[Schema] = [{"required": [key]} for key in keys]
    if or_swept is not None:
        has_any.append({"required": ["sweep"], "properties": {"sweep": _sweeps(or_swept)}})
    return {"if": {"not": {"anyOf": has_any}}, "then": then}


def _sweeps(key: str) -> Schema:
    """A sweep that has a key, in whichever form."""
    has: Schema = {"required": [key]}
    inner: list[Schema] = [has, {"required": [ZIP], "properties": {ZIP: has}}]
    inner.append({"required": [LIST], "properties": {LIST: {"items": has}}})
    inner += [
        {"required": [form], "properties": {form: {"properties": {"keys": has}}}}
        for form in SAMPLERS
    ]
    return {"anyOf": inner}


def _complete(keys: Iterable[str]) -> Schema:
    """Each of these plug-ins, or of a list of them, has the keys that it must have."""
    return {
        "properties": {
            key: _ref(f"{key} complete") | {"items": _ref(f"{key} complete")} for key in keys
        },
        "required": [key for key in keys if key not in DEFAULTS],
    }


def _open_keys(definitions: _Definitions) -> dict[str, Schema]:
    """The keys whose annotation says nothing, because they are looked into separately."""
    for key, (table, base) in PLUGINS.items():
        definitions.add_table(key, table, base, DEFAULTS.get(key))
    definitions.add_table("router", *TABLES["router"], DEFAULT_ROUTER)
    replicas = definitions.schemas["ReplicasKeys"]
    about = {"description": replicas["properties"]["router"]["description"]}
    replicas["properties"]["router"] = _any_of(_ref("router"), NULL) | about
    one = _any_of(_ref("allocator"), NULL)  # null is what the engine sets
    seed = {"type": "integer", "minimum": 0, "maximum": MAX_SEED}
    seeds = {"type": "array", "items": seed, "minItems": 1, "maxItems": MAX_SEEDS}
    numbers = {"type": "integer", "minimum": 1, "maximum": MAX_SEEDS}
    models = [_keys(keys, definitions) for keys in (ModelKeys, ConfigKeys)]
    return {
        "model": _any_of(*_names(MODELS, MODEL_ALIASES), PATH_LIKE, *models, NULL),
        "device": _any_of(*_names(GPUS, GPU_ALIASES), _keys(DeviceKeys, definitions), NULL),
        "workload": _ref("workload"),
        "engine": _any_of({"enum": ENGINES}, ENGINE_PATH, NULL),
        "allocator": _any_of(
            _ref("allocator"), {"type": "array", "items": one, "minItems": 1}, NULL
        ),
        "scheduler": _any_of(_ref("scheduler"), NULL),
        "cost": _any_of(_ref("cost"), NULL),
        "seeds": _any_of(numbers, {**seeds, "uniqueItems": True}, NULL),
        "sweep": _any_of(_sweep(definitions), NULL),
        "figures": _figures([*FIGURE_NAMES, *REPLAY_FIGURES]),
        "record": _any_of({"const": "blocks"}, _keys(RecordKeys, definitions), NULL),
    }


def _sweep(definitions: _Definitions) -> Schema:
    """The schema of a sweep: a grid, and forms whose values go together."""
    swept = {
        "pattern": rf"^({'|'.join(SWEEPABLE)})(\.|$)",
        "not": {"enum": ["allocator", "allocator.kind"]},
    }
    values: Schema = {"type": "array", "minItems": 1}
    keys: Schema = {"type": "object", "propertyNames": swept, "minProperties": 1}
    spec = _any_of(values, _keys(RangeKeys, definitions))
    forms: Schema = {
        ZIP: {**keys, "additionalProperties": values, "description": "Values taken together."},
        LIST: {**values, "items": keys, "description": "Points written out."},
    }
    for form in SAMPLERS:
        forms[form] = _keys(SampleKeys, definitions)
        forms[form]["properties"]["keys"] |= {**keys, "additionalProperties": spec}
    return {
        "type": "object",
        "propertyNames": _any_of(swept, {"enum": list(forms)}),
        "properties": {"engine": _any_of(values, {"const": ALL}), **forms},
        "additionalProperties": values,
    }


class _Definitions:
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
            entries.append(_ref(f"{name}.{kind}"))
            if name == "workload":
                schema["properties"]["max_tokens"] = _max_tokens()
            if key := getattr(entry, "shorthand", None):
                entries.append(schema["properties"][key])
        if base is not None:
            elsewhere = {"type": "string", "pattern": ":", "description": "module:Class"}
            one = {"type": "object", "properties": {"kind": elsewhere}, "required": ["kind"]}
            entries.append(one)
        self.schemas[name] = _any_of(*entries)
        complete: Schema = {"allOf": [self._case(*item) for item in whole.items()]}
        if default is None:
            complete["required"] = ["kind"]
        self.schemas[f"{name} complete"] = complete
        return name

    def _entry(self, kind: str, entry: type) -> Schema:
        """The keys that an entry may have."""
        schema = _keys(parameter_model(entry), self, entry)
        schema.pop("required", None)  # a sweep may set them
        properties = schema["properties"]
        for key, table in nested_tables(entry).items():
            about = {"description": properties[key]["description"]}
            one = _ref(self.add_table(key, table))
            is_optional = inspect.signature(entry).parameters[key].default is None
            properties[key] = (_any_of(one, NULL) if is_optional else one) | about
        for key, table in nested_lists(entry).items():
            properties[key]["items"] = _ref(self.add_table(key, table))
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
            key: _ref(f"{self._names[id(table)]} complete")
            for key, table in nested_tables(entry).items()
        }
        rules |= {
            key: {"items": _ref(f"{self._names[id(table)]} complete")}
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
    return _any_of({"enum": list(MAX_TOKENS_RULES)}, count, NULL) | {"description": about}


def _keys(model: type[Strict], definitions: _Definitions, about: type | None = None) -> Schema:
    """The schema of a model's keys, with their descriptions from the docstrings of a class."""
    docs = [doc for cls in (about or model).__mro__ if (doc := vars(cls).get("__doc__"))]
    schema: Schema = model.model_json_schema()
    for name, inner in schema.pop("$defs", {}).items():
        _describe(inner, [inner["description"]])
        definitions.schemas[name] = inner
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


def _names(presets: Iterable[str], aliases: Iterable[str]) -> list[Schema]:
    """Presets as they are offered, and every name in upper or lower case as it is taken."""
    letters = "|".join(
        "".join(f"[{c}{c.upper()}]" if c.isalpha() else re.escape(c) for c in name)
        for name in [*presets, *aliases]
    )
    return [{"enum": list(presets)}, {"type": "string", "pattern": f"^({letters})$"}]


def _any_of(*schemas: Schema) -> Schema:
    return {"anyOf": list(schemas)}


def _ref(name: str) -> Schema:
    return {"$ref": f"#/$defs/{name.replace(' ', '%20')}"}
