"""Which class a name means: built in, of an installed package, or of somebody else's module."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Iterator, Mapping
from importlib.machinery import PathFinder
from pathlib import Path
from types import CodeType
from weakref import WeakKeyDictionary

from workloads import installed
from workloads.checks import did_you_mean

Table = Mapping[str, type]


def find_class(kind: str, table: Table, base: type | None) -> type:
    """The class a kind names: built in, of an installed package, or "module:Class".

    A name that is built in always means that. Without a base, the table is all there is. Raises
    ValueError with a sentence if there is none.
    """
    if kind in table:
        return table[kind]
    if base is not None and ":" in kind:
        return _as_it_is_now(installed.import_class(kind, base), kind)
    sentence = installed.clash(kind, base, table)
    if sentence is not None:
        raise ValueError(sentence)
    for plug_in in installed.plug_ins(kind, base):
        assert base is not None  # without one there are none
        try:
            return _as_it_is_now(installed.import_class(plug_in.place, base), plug_in.place)
        except ValueError as error:
            raise ValueError(f"{kind}, a plug-in of {plug_in.package}: {error}") from None
    names = all_kinds(table, base)
    near = did_you_mean(kind, names)
    accepted = f"{', '.join(names) or 'none'}{or_module(base)}"
    raise ValueError(f"unknown kind {kind!r}{near}; accepted: {accepted}")


_SEEN: WeakKeyDictionary[type, str] = WeakKeyDictionary()  # the code of each class when first used


def _as_it_is_now(cls: type, place: str) -> type:
    """A class whose file is what was imported: what has run is what a result's key says.

    Raises ValueError with a sentence if the file has changed since, or another one is meant now.
    """
    top = cls.__module__.partition(".")[0]
    loaded = getattr(sys.modules.get(top), "__file__", None)
    spec = PathFinder.find_spec(top) if loaded is not None else None
    if spec is not None and spec.has_location and spec.origin is not None:
        is_same = Path(spec.origin).resolve() == Path(str(loaded)).resolve()
        if not is_same:
            accepted = "accepted: files of different names, or a new session"
            raise ValueError(f"{place} is loaded from {loaded}, not {spec.origin}; {accepted}")
    now = code_digest_of(cls)
    if _SEEN.setdefault(cls, now) != now:
        accepted = f"accepted: importlib.reload({cls.__module__}), or a new session"
        raise ValueError(f"{place} has changed in its file since it was imported; {accepted}")
    return cls


def all_kinds(table: Table, base: type | None) -> list[str]:
    """The names that a table has, and installed packages add."""
    return [*table, *(name for name in installed.names(base) if name not in table)]


def or_module(base: type | None) -> str:
    """The end of a list of what is accepted."""
    return ", or module:Class" if base is not None else ""


def code_digest_of(cls: type) -> str:
    """A hash of the code that a class of somebody else's consists of: hex, 32 characters.

    That is, for it and each class that it derives from: all Python files of the package, the
    file of a module that is in none, or what was typed into a notebook. Ours is not looked at.
    """
    state = hashlib.blake2b(digest_size=16)
    for one in cls.__mro__:
        top = one.__module__.partition(".")[0]
        if top in {"sim", "workloads"} or top in sys.stdlib_module_names - {"__main__"}:
            continue
        state.update(f"{one.__module__}:{one.__qualname__}".encode())
        for part in _code(one):
            state.update(part)
    return state.hexdigest()


def _code(cls: type) -> Iterator[bytes]:
    """The code around a class, in an order of its own."""
    module = sys.modules.get(cls.__module__)
    file = getattr(module, "__file__", None)
    if file is None or not Path(file).is_file():
        functions = [getattr(value, "__code__", None) for value in vars(cls).values()]
        for code in functions:
            yield from _instructions(code) if isinstance(code, CodeType) else ()
        return
    folder = _package_folder(cls.__module__)
    for path in sorted(folder.rglob("*.py")) if folder else [Path(file)]:
        yield path.name.encode()
        yield path.read_bytes()


def _package_folder(module_name: str) -> Path | None:
    """The folder of the outermost package around a module that is no mere namespace."""
    parts = module_name.split(".")
    for end in range(1, len(parts) + 1):
        module = sys.modules.get(".".join(parts[:end]))
        file = getattr(module, "__file__", None)
        if file is not None:
            return Path(file).parent if hasattr(module, "__path__") else None
    return None


def _instructions(code: CodeType) -> Iterator[bytes]:
    """What a function does, wherever it was written."""
    yield code.co_code
    yield repr(code.co_names).encode()
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _instructions(constant)
        else:
            yield repr(constant).encode()
