"""The page of plug-ins: every entry of every table, with its parameters and where it is from."""

from __future__ import annotations

from collections.abc import Mapping

from sim.allocators import ALLOCATORS
from sim.config.schema import plugin_schemas
from sim.costs import COST_MODELS
from sim.policies import POLICIES
from sim.reference.keys import keys_table
from sim.reference.markdown import code, module_doc, prose, source, table, text
from sim.routers import ROUTERS
from sim.schedulers import SCHEDULERS
from workloads import ARRIVALS, DURATIONS, LENGTH_DISTRIBUTIONS, PREFIXES, TURNS, WORKLOADS
from workloads.formats import FORMATS

Table = Mapping[str, type]

# heading: key or keys that take an entry, and the table; those that others name come first
LEAVES: dict[str, tuple[str, Table]] = {
    "durations": ("`think_s`, `tool_s`", DURATIONS),
    "lengths": ("`prompt_tokens`, `output_tokens` and other lengths", LENGTH_DISTRIBUTIONS),
    "arrivals": ("`arrivals` of a workload", ARRIVALS),
    "turns": ("`turns` of a workload", TURNS),
    "prefixes": ("`prefix` of a workload", PREFIXES),
}
TABLES: dict[str, tuple[str, Table]] = {
    "allocators": ("`allocator`", ALLOCATORS),
    "schedulers": ("`scheduler`", SCHEDULERS),
    "costs": ("`cost`", COST_MODELS),
    "routers": ("`replicas.router`", ROUTERS),
    "workloads": ("`workload`", WORKLOADS),
}
SAYS_WHAT_IT_MODELS = ("allocators", "schedulers", "costs", "routers")  # docstring of the file


def plugins_page() -> str:
    """All tables of plug-ins."""
    tables = LEAVES | TABLES
    schemas = plugin_schemas({name: entries for name, (_, entries) in tables.items()})
    parts = [
        "# Plug-ins\n",
        'What a key that takes `{kind: …}` accepts. `"module:Class"` is a class of your own. '
        "Trace files have [a page of their own](traces.md), engines [another](engines.md).\n",
    ]
    for name in (*TABLES, *LEAVES):
        key, entries = tables[name]
        parts += [f"## {name}\n", f"Entries of {key}.\n"]
        own = {kind: entry for kind, entry in entries.items() if kind not in FORMATS}
        for kind, entry in own.items():
            parts.append(_entry(kind, entry, schemas[f"{name}.{kind}"], name))
    parts += ["## policies\n", _policies()]
    return "\n".join(parts)


def _entry(kind: str, entry: type, schema: Mapping[str, object], name: str) -> str:
    """One entry: what it models, what it is, its parameters."""
    about = str(schema["description"])
    models = prose(module_doc(entry), 0, 2) if name in SAYS_WHAT_IT_MODELS else ""
    properties = schema["properties"]
    assert isinstance(properties, dict)
    parts = [f"### {kind}", models, prose(entry.__doc__), keys_table(properties, about)]
    return "\n\n".join(part.rstrip() for part in parts if part) + f"\n\nIn {source(entry)}.\n"


def _policies() -> str:
    rows = [(code(name), text(policy.about)) for name, policy in POLICIES.items()]
    about = "Eviction policies that `kvsim trace policies` and experiments with `policies` replay."
    return f"{about}\n\n{table(['policy', 'what it evicts'], rows)}"
