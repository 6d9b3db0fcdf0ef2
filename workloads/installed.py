"""Plug-ins that installed packages bring: their names, without importing what is not named.

A package lists its classes as entry points, in its pyproject.toml:

    [project.entry-points."kvsim.allocators"]
    worst_fit = "my_package:WorstFit"

and experiments name them like built-in ones. Which package an environment has is read once a
process, from its metadata; the class behind a name is imported when somebody names it.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Collection
from dataclasses import dataclass
from functools import lru_cache
from importlib.metadata import EntryPoint, entry_points

# the groups of entry points, by the class that a plug-in derives from
GROUPS = {
    "Allocator": "kvsim.allocators",
    "CostModel": "kvsim.costs",
    "Router": "kvsim.routers",
    "Scheduler": "kvsim.schedulers",
    "Workload": "kvsim.workloads",
}


@dataclass(frozen=True)
class PlugIn:
    """One entry point: its name, "module:Class" and the package that brings it."""

    name: str
    place: str
    package: str


@lru_cache(maxsize=len(GROUPS))
def installed(group: str) -> tuple[PlugIn, ...]:
    """The plug-ins of a group, in order of name and package. Imports none of them."""
    found = [
        PlugIn(point.name, point.value, _package(point)) for point in entry_points(group=group)
    ]
    return tuple(sorted(found, key=lambda plug_in: (plug_in.name, plug_in.package)))


def _package(point: EntryPoint) -> str:
    """The package that an entry point comes from, and its version."""
    if point.dist is None:
        return "an unknown package"
    return f"{point.dist.metadata['Name']} {point.dist.version}"


def names(base: type | None) -> list[str]:
    """The names of the plug-ins that derive from base."""
    group = GROUPS.get(base.__name__) if base is not None else None
    return list(dict.fromkeys(plug_in.name for plug_in in installed(group))) if group else []


def plug_ins(name: str, base: type | None) -> list[PlugIn]:
    """The plug-ins of this name that derive from base, one a package."""
    group = GROUPS.get(base.__name__) if base is not None else None
    return [plug_in for plug_in in installed(group) if plug_in.name == name] if group else []


def clash(name: str, base: type | None, built_in: Collection[str]) -> str | None:
    """Why a name means two things, in a sentence; None if it does not."""
    found = plug_ins(name, base)
    packages = [plug_in.package for plug_in in found]
    instead = " or ".join(plug_in.place for plug_in in found)
    if found and name in built_in:
        whose = " and ".join(packages)
        return f"{name} is the built-in one, not the plug-in of {whose}: that is {instead}"
    if len(found) > 1:
        return f"{name} is a plug-in of {' and of '.join(packages)}; write {instead}"
    return None


def import_class(place: str, base: type) -> type:
    """The class at "module:Class". Raises ValueError with a sentence if it cannot be used."""
    module_name, _, class_name = place.partition(":")
    try:
        found = getattr(importlib.import_module(module_name), class_name)
    except (Exception, SystemExit) as error:  # somebody else's module may do anything
        reason = f"{type(error).__name__}: {error}".replace("\n", " ")
        if isinstance(error, ModuleNotFoundError) and error.name == module_name.partition(".")[0]:
            reason += "; accepted: a module of the current folder, of PYTHONPATH or installed"
        raise ValueError(f"{place} cannot be imported: {reason}") from None
    if not (isinstance(found, type) and issubclass(found, base)):
        raise ValueError(f"{place} is no {base.__name__}; accepted: a subclass of it")
    if inspect.isabstract(found):
        missing = ", ".join(sorted(getattr(found, "__abstractmethods__", ())))
        raise ValueError(f"{place} cannot be used: it does not define {missing}")
    return found


def load_each(base: type) -> dict[str, type | str]:
    """The plug-ins that derive from base, by name: the class of each, or why there is none.

    A name that two packages bring has no class.
    """
    found: dict[str, type | str] = {}
    for name in names(base):
        sentence = clash(name, base, ())
        try:
            found[name] = sentence or import_class(plug_ins(name, base)[0].place, base)
        except ValueError as error:
            found[name] = str(error)
    return found
