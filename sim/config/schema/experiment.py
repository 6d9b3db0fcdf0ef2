"""The schema of experiment files: keys, sweeps, and what must be there."""

from __future__ import annotations

import re
from collections.abc import Iterable

from sim.config.axes import ALL, LIST, SWEEPABLE, ZIP
from sim.config.engine_presets import ENGINES, PARTS
from sim.config.experiment import MAX_SEED, MAX_SEEDS
from sim.config.figure_keys import FIGURE_NAMES
from sim.config.keys import RecordKeys, ReplayedTrace, ReplayKeys, TopKeys
from sim.config.plugin_keys import DEFAULT_ROUTER, DEFAULTS, PLUGINS, TABLES
from sim.config.point import NAME
from sim.config.replays import FIGURES as REPLAY_FIGURES
from sim.config.sampling import SAMPLERS, RangeKeys, SampleKeys
from sim.config.schema.definitions import Definitions
from sim.config.schema.keys import keys_of
from sim.config.schema.terms import NULL, Schema, any_of, ref
from sim.hardware.by_name import GPU_ALIASES, GPUS, MODEL_ALIASES, MODELS
from sim.hardware.keys import ConfigKeys, DeviceKeys, ModelKeys
from sim.policies import POLICIES

DIALECT = "https://json-schema.org/draft/2020-12/schema"
ENGINE_PATH: Schema = {"type": "string", "pattern": r"^[.$/]|\.ya?ml$"}
PATH_LIKE: Schema = {"type": "string", "pattern": r"^[.$]|/|\.json$"}


def experiment_schema() -> Schema:
    """The schema of an experiment file."""
    definitions = Definitions()
    top = keys_of(TopKeys, definitions.schemas)
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


def _replay_keys(definitions: Definitions) -> Schema:
    """The schema of experiments that replay policies; what they share with the others aside."""
    replay = keys_of(ReplayKeys, definitions.schemas)
    keys = replay["properties"]
    names = {"items": {"enum": list(POLICIES)}, "minItems": 1, "uniqueItems": True}
    keys["policies"] |= names
    trace = keys_of(ReplayedTrace, definitions.schemas)
    about = trace["properties"]["workload"]["description"]
    whole = {"allOf": [ref("workload"), ref("workload complete")], "type": ["object"]}
    trace["properties"]["workload"] = whole | {"description": about}
    definitions.schemas["replayed-trace"] = trace
    pattern = {"pattern": f"^(?:{NAME.pattern})$"}
    one = {"additionalProperties": ref("replayed-trace"), "propertyNames": pattern}
    keys["traces"] |= one | {"type": "object", "minProperties": 1}
    return replay


def _figures(names: Iterable[str]) -> Schema:
    items = {"enum": list(names)}
    return any_of({"type": "array", "items": items, "uniqueItems": True}, NULL)


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
            key: ref(f"{key} complete") | {"items": ref(f"{key} complete")} for key in keys
        },
        "required": [key for key in keys if key not in DEFAULTS],
    }


def _open_keys(definitions: Definitions) -> dict[str, Schema]:
    """The keys whose annotation says nothing, because they are looked into separately."""
    for key, (table, base) in PLUGINS.items():
        definitions.add_table(key, table, base, DEFAULTS.get(key))
    definitions.add_table("router", *TABLES["router"], DEFAULT_ROUTER)
    replicas = definitions.schemas["ReplicasKeys"]
    about = {"description": replicas["properties"]["router"]["description"]}
    replicas["properties"]["router"] = any_of(ref("router"), NULL) | about
    one = any_of(ref("allocator"), NULL)  # null is what the engine sets
    seed = {"type": "integer", "minimum": 0, "maximum": MAX_SEED}
    seeds = {"type": "array", "items": seed, "minItems": 1, "maxItems": MAX_SEEDS}
    numbers = {"type": "integer", "minimum": 1, "maximum": MAX_SEEDS}
    models = [keys_of(keys, definitions.schemas) for keys in (ModelKeys, ConfigKeys)]
    return {
        "model": any_of(*_names(MODELS, MODEL_ALIASES), PATH_LIKE, *models, NULL),
        "device": any_of(
            *_names(GPUS, GPU_ALIASES), keys_of(DeviceKeys, definitions.schemas), NULL
        ),
        "workload": ref("workload"),
        "engine": any_of({"enum": ENGINES}, ENGINE_PATH, NULL),
        "allocator": any_of(ref("allocator"), {"type": "array", "items": one, "minItems": 1}, NULL),
        "scheduler": any_of(ref("scheduler"), NULL),
        "cost": any_of(ref("cost"), NULL),
        "seeds": any_of(numbers, {**seeds, "uniqueItems": True}, NULL),
        "sweep": any_of(_sweep(definitions), NULL),
        "figures": _figures([*FIGURE_NAMES, *REPLAY_FIGURES]),
        "record": any_of({"const": "blocks"}, keys_of(RecordKeys, definitions.schemas), NULL),
    }


def _sweep(definitions: Definitions) -> Schema:
    """The schema of a sweep: a grid, and forms whose values go together."""
    swept = {
        "pattern": rf"^({'|'.join(SWEEPABLE)})(\.|$)",
        "not": {"enum": ["allocator", "allocator.kind"]},
    }
    values: Schema = {"type": "array", "minItems": 1}
    keys: Schema = {"type": "object", "propertyNames": swept, "minProperties": 1}
    spec = any_of(values, keys_of(RangeKeys, definitions.schemas))
    forms: Schema = {
        ZIP: {**keys, "additionalProperties": values, "description": "Values taken together."},
        LIST: {**values, "items": keys, "description": "Points written out."},
    }
    for form in SAMPLERS:
        forms[form] = keys_of(SampleKeys, definitions.schemas)
        forms[form]["properties"]["keys"] |= {**keys, "additionalProperties": spec}
    return {
        "type": "object",
        "propertyNames": any_of(swept, {"enum": list(forms)}),
        "properties": {"engine": any_of(values, {"const": ALL}), **forms},
        "additionalProperties": values,
    }


def _names(presets: Iterable[str], aliases: Iterable[str]) -> list[Schema]:
    """Presets as they are offered, and every name in upper or lower case as it is taken."""
    letters = "|".join(
        "".join(f"[{c}{c.upper()}]" if c.isalpha() else re.escape(c) for c in name)
        for name in [*presets, *aliases]
    )
    return [{"enum": list(presets)}, {"type": "string", "pattern": f"^({letters})$"}]
