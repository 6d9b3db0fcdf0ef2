"""The page of trace formats, and of the public traces that have a name."""

from __future__ import annotations

from collections.abc import Mapping

from sim.config.schema import plugin_schemas
from sim.reference.keys import keys_table
from sim.reference.markdown import code, module_doc, prose, source, table, text
from workloads.formats import FORMATS
from workloads.publictraces import public_traces
from workloads.targets import TARGETS
from workloads.tracefile import FileOptions


def traces_page() -> str:
    """Every format: what a file of it looks like, and what reading it takes."""
    schemas = plugin_schemas({"workloads": FORMATS})
    shared = FileOptions.__dataclass_fields__
    table_keys = schemas["workloads.table"]["properties"]
    options = {key: table_keys[key] for key in shared}
    parts = [
        "# Trace formats\n",
        "`workload: {kind: FORMAT, path: FILE}` reads a file of a format, `kind: file` one of any, "
        "`kvsim trace info FILE` says which it is. Files may be gzip or zstd.\n",
        "## Keys of every format\n",
        prose(FileOptions.__doc__) + "\n",
        keys_table(options),
    ]
    for kind, entry in FORMATS.items():
        own = schemas[f"workloads.{kind}"]["properties"]
        rest: Mapping[str, Mapping[str, object]]
        rest = {key: value for key, value in own.items() if key not in shared}
        about = str(schemas[f"workloads.{kind}"]["description"])
        parts += [f"## {kind}\n", prose(module_doc(entry)) + "\n", keys_table(rest, about)]
        parts.append(f"In {source(entry)}.\n")
    parts += ["## What kvsim trace convert writes\n", _targets(), "## Public traces\n", _public()]
    return "\n".join(parts)


def _targets() -> str:
    return ", ".join(map(code, TARGETS)) + ".\n"


def _public() -> str:
    """Names for `kind: trace` and `kvsim trace fetch`."""
    rows = []
    for name, trace in public_traces().items():
        size = f"{trace.num_bytes / 1e6:,.2f} MB" if trace.num_bytes else "not pinned"
        about = text(trace.about)
        if trace.not_fetched is not None:
            size, about = "", f"{about}; cannot be fetched: {text(trace.not_fetched)}"
        rows.append((code(name), size, text(trace.licence), about))
    about = (
        "`workload: {kind: trace, name: NAME}`; `kvsim trace fetch NAME` downloads and verifies."
    )
    return f"{about}\n\n{table(['name', 'size', 'licence', 'what it is'], rows)}"
