"""What `kvsim list` shows: the plug-in tables and presets."""

from __future__ import annotations

import inspect
from collections.abc import Mapping

from sim.allocators import ALLOCATORS, Allocator
from sim.config.engine_presets import ENGINES, ENGINES_FOLDER, read_engine
from sim.costs import COST_MODELS, CostModel
from sim.costs.paging import PRESETS
from sim.costs.profile import load_profile, shipped
from sim.hardware.by_name import GPUS, MODELS
from sim.metrics.docs import METRICS
from sim.policies import POLICIES
from sim.routers import ROUTERS, Router
from sim.schedulers import SCHEDULERS, Scheduler
from workloads import (
    ARRIVALS,
    DURATIONS,
    LENGTH_DISTRIBUTIONS,
    PREFIXES,
    TURNS,
    WORKLOADS,
    Workload,
    installed,
)
from workloads.publictraces import public_traces

# the tables that installed packages may add to, and what their classes derive from
BASES: dict[str, type] = {
    "allocators": Allocator,
    "schedulers": Scheduler,
    "costs": CostModel,
    "routers": Router,
    "workloads": Workload,
}


def tables() -> dict[str, dict[str, str]]:
    """Every table that a file or a command can name entries of: name, and what each is."""
    classes: dict[str, Mapping[str, type]] = {
        "allocators": ALLOCATORS,
        "schedulers": SCHEDULERS,
        "costs": COST_MODELS,
        "routers": ROUTERS,
        "workloads": WORKLOADS,
        "arrivals": ARRIVALS,
        "lengths": LENGTH_DISTRIBUTIONS,
        "prefixes": PREFIXES,
        "turns": TURNS,
        "durations": DURATIONS,
    }
    listing = {
        table: {name: _describe(entry) for name, entry in entries.items()}
        for table, entries in classes.items()
    }
    for table, base in BASES.items():
        listing[table] |= _installed(base, classes[table])
    listing["policies"] = {name: policy.about for name, policy in POLICIES.items()}
    engines = {name: read_engine(name, ENGINES_FOLDER) for name in ENGINES}
    listing["engines"] = {name: preset.about() for name, preset in engines.items()}
    listing["profiles"] = {name: about_profile(name) for name in shipped()}
    listing["metrics"] = {name: str(metric) for name, metric in METRICS.items()}
    listing["paging"] = {name: preset.source for name, preset in PRESETS.items()}
    listing["models"] = {name: str(model) for name, model in MODELS.items()}
    listing["devices"] = {name: str(device) for name, device in GPUS.items()}
    return listing


def _installed(base: type, built_in: Mapping[str, type]) -> dict[str, str]:
    """The plug-ins of installed packages: whose each is, and what, or why it cannot be used."""
    found = {}
    for name, entry in installed.load_each(base).items():
        packages = " and ".join(p.package for p in installed.plug_ins(name, base))
        sentence = installed.clash(name, base, built_in)
        title = f"{name} ({packages})" if name in built_in else name
        if sentence or isinstance(entry, str):
            found[title] = f"[{packages}] cannot be used by this name: {sentence or entry}"
        else:
            found[title] = f"[{packages}] {_describe(entry)}"
    return found


def about_profile(name: str) -> str:
    """A cost profile in one line: how known, error of its default kernels, range, source."""
    profile = load_profile(name)
    kernel = profile.defaults["kernel"]
    parts = [f"{profile.gpu}, {profile.kind}; paging {profile.defaults['paging']}"]
    for family in ("decode", "prefill", "linear"):
        own = {n: v for n, v in profile.kernels[family].items() if n.split()[0] == kernel}
        if not own:
            continue
        name, variant = min(own.items(), key=lambda item: _is_unusual(item[0]))
        errors = [cell["mape"] for cell in variant.errors.values() if isinstance(cell, dict)]
        known = f"{max(errors):.1f} % off rows kept out" if errors else "no rows kept out"
        limits = [
            f"{axis} {variant.valid[axis][0]:g} to {variant.valid[axis][1]:,.0f}"
            for axis in ("batch", "kv_len", "queries", "m")
            if axis in variant.valid
        ]
        parts.append(f"{family} {name}: {known}" + (f" ({', '.join(limits)})" if limits else ""))
    others = [engine for engine in profile.engines() if engine != kernel]
    if others:
        parts.append(f"also kernel {', '.join(others)}")
    return ". ".join([*parts, f"Source: {profile.source}"])


def _is_unusual(kernel: str) -> tuple[bool, bool]:
    """How far a kernel is from 16 bits and 128 values a head."""
    return "fp8" in kernel, "hd" in kernel and "hd128" not in kernel


def _describe(entry: type) -> str:
    """The first line of a class's docstring, and its parameters with their defaults."""
    line = (inspect.getdoc(entry) or "").split("\n", maxsplit=1)[0]
    parameters = [
        name if p.default is p.empty else f"{name}={p.default}"
        for name, p in inspect.signature(entry).parameters.items()
    ]
    return f"{line} ({', '.join(parameters)})" if parameters else line


def public_trace_lines() -> list[str]:
    """The public traces: name, size, licence, and what each is or why it cannot be fetched."""
    lines = []
    for name, trace in public_traces().items():
        if trace.not_fetched is None:
            size = f"{trace.num_bytes / 1e6:,.2f} MB" if trace.num_bytes else "not pinned"
            rest = trace.about + (" (fetched)" if trace.is_fetched() else "")
        else:
            size, rest = "-", f"{trace.about}; cannot be fetched: {trace.not_fetched}"
        lines.append(f"{name:<22} {size:>10}  {trace.licence:<19} {rest}")
    return lines
