"""The page of experiment keys, from the JSON schema that editors use."""

from __future__ import annotations

from typing import Any

from sim.config.plugin_keys import DEFAULT_ROUTER, DEFAULTS, PLUGINS
from sim.config.schema import experiment_schema
from sim.reference.keys import keys_table
from sim.reference.markdown import code, text

# keys whose values have keys of their own: heading, and what it is about
NESTED = {
    "KvCacheKeys": ("kv_cache", "the size of the pool"),
    "SloKeys": ("slo", "limits that a request must keep to count in goodput_req_s"),
    "ReplicasKeys": ("replicas", "several engines behind a router"),
}
FORMS = {
    "zip": "values that go together: keys to lists of one length",
    "list": "points written out: a list of keys and values",
    "random": "points drawn at random",
    "latin_hypercube": "points drawn so that each key's range is covered evenly",
}


def experiments_page() -> str:
    """The keys of an experiment file: types, defaults, ranges."""
    schema = experiment_schema()
    keys = schema["properties"]
    replay = ("policies", "traces", "capacity_tokens")
    parts = [
        "# Experiment keys\n",
        "An experiment is one YAML file. Unknown keys, wrong types and impossible values are "
        "errors with file, line and key before anything runs. `kvsim check FILE` validates, "
        "`kvsim check --schema` prints this page's source for editors.\n",
        "A file needs `name`, `workload` and an `allocator` or an `engine`; "
        f"`scheduler` is {_default('scheduler')}, `cost` {_default('cost')} and the router "
        f"{code(DEFAULT_ROUTER)} if nothing is said. What a plug-in accepts is on the page "
        "[Plug-ins](plugins.md).\n",
        keys_table({k: v for k, v in keys.items() if k not in replay}),
    ]
    for name, (key, about) in NESTED.items():
        own = schema["$defs"][name]
        parts += [f"## {key}\n", f"{text(about).capitalize()}.\n", keys_table(own["properties"])]
    parts += _model_and_device(keys)
    parts += _sweep(keys["sweep"])
    parts += [
        "## Experiments without an engine\n",
        "A file with `policies` replays eviction policies on traces and has these keys beside "
        "`name`, `description` and `figures`.\n",
        keys_table({key: keys[key] for key in replay}),
        "Each of `traces` is\n",
        keys_table(schema["$defs"]["replayed-trace"]["properties"]),
    ]
    return "\n".join(parts)


def _default(key: str) -> str:
    assert key in PLUGINS
    return code(DEFAULTS[key])


def _model_and_device(keys: dict[str, Any]) -> list[str]:
    """Numbers in place of presets."""
    parts = []
    for key in ("model", "device"):
        members = keys[key]["anyOf"]
        names = next(member["enum"] for member in members if "enum" in member)
        parts += [f"## {key}\n", f"Presets: {', '.join(map(code, names))}. Or numbers:\n"]
        for member in members:
            if "properties" in member:
                parts += [f"{text(member['description'])}\n", keys_table(member["properties"])]
    return parts


def _sweep(schema: dict[str, Any]) -> list[str]:
    """A sweep's forms."""
    grid = next(member for member in schema["anyOf"] if "properties" in member)
    rows = [f"- {code(form)}: {about}" for form, about in FORMS.items()]
    assert set(FORMS) | {"engine"} == set(grid["properties"])
    drawn = grid["properties"]["random"]
    return [
        "## sweep\n",
        "Dotted keys to lists of values: one run for each combination. Of `engine`, `all` is every "
        "preset. Beside them\n",
        "\n".join(rows) + "\n",
        "What is drawn has\n",
        keys_table(drawn["properties"]),
    ]
