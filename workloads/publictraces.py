"""Public traces by name: what there is, and where a copy of one stands on this machine.

data/public_traces.yaml names them. A copy is looked for in the cache of `kvsim trace fetch`,
then below $KVSIM_SHARED/traces. The cache is $KVSIM_CACHE, or kvsim/traces in the folder that
$XDG_CACHE_HOME names (~/.cache).
"""

from __future__ import annotations

import os
import sys
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path, PurePosixPath
from typing import Any

import yaml

from workloads import checks
from workloads.trace import TraceError

DATA = Path(__file__).parent / "data" / "public_traces.yaml"


class AbsentTraceError(TraceError):
    """A public trace that is not on this machine. The message says how to get it."""


@dataclass(frozen=True)
class Source:
    """A file as it is published: its path in the repository, its size, and its hash in hex.

    Size and hash are None for a file that nobody here has seen: then the commit alone says which
    one it is.
    """

    path: str
    num_bytes: int | None = None
    sha256: str | None = None

    @property
    def file_name(self) -> str:
        """What it is called."""
        return PurePosixPath(self.path).name


@dataclass(frozen=True)
class PublicTrace:
    """A public trace: files pinned in a repository at a commit, or why it cannot be fetched.

    shared is its place below $KVSIM_SHARED/traces, read_by the kind of workload that reads it,
    server where its files are if not at GITHUB.
    """

    name: str
    about: str
    licence: str
    shared: str
    repository: str | None = None
    commit: str | None = None
    not_fetched: str | None = None
    read_by: str = "trace"
    server: str | None = None
    sources: tuple[Source, ...] = field(default=())

    @property
    def num_bytes(self) -> int:
        """The size of all files, as they are published; 0 for those whose size is not known."""
        return sum(source.num_bytes or 0 for source in self.sources)

    def folder(self) -> Path:
        """Its place in the cache."""
        return cache_folder() / self.name

    def place(self) -> Path:
        """Where a fetched copy is read: its one file, or the folder of its files."""
        one = len(self.sources) == 1
        return self.folder() / self.sources[0].file_name if one else self.folder()

    def is_fetched(self) -> bool:
        """Whether all files are in the cache, with their sizes."""
        return bool(self.sources) and all(
            _size(self.folder() / source.file_name) in _sizes(source) for source in self.sources
        )


@cache
def public_traces() -> Mapping[str, PublicTrace]:
    """All of them by name."""
    entries = yaml.safe_load(DATA.read_text(encoding="utf-8"))
    return {name: _entry(name, **keys) for name, keys in entries.items()}


def _entry(
    name: str, files: Mapping[str, Mapping[str, Any]] | None = None, **keys: str
) -> PublicTrace:
    sources = tuple(
        Source(path, cell.get("bytes"), cell.get("sha256")) for path, cell in (files or {}).items()
    )
    return PublicTrace(name, sources=sources, **keys)


def named(name: object) -> PublicTrace:
    """The trace of this name. Raises ValueError "name: …" if there is none."""
    checks.one_of("name", name, public_traces())
    return public_traces()[str(name)]


def check_name(name: object, kind: str) -> None:
    """Refuse a name that is unknown, or that another kind of workload reads."""
    if named(name).read_by != kind:
        raise ValueError(f"name: {name} is read by 'kind: {named(name).read_by}', not by {kind}")


def find(name: str) -> Path:
    """Where the copy of a named trace stands.

    Raises AbsentTraceError if there is none.
    """
    trace = named(name)
    if trace.is_fetched():
        return trace.place()
    shared = os.environ.get("KVSIM_SHARED")
    copy = Path(shared or "", "traces", trace.shared)
    if shared and copy.exists():
        return copy
    looked = [f"nor at {copy}"] if shared else ["and KVSIM_SHARED is not set"]
    if trace.not_fetched is None:
        how = f"get it with: kvsim trace fetch {name}"
    else:
        how = f"it cannot be fetched: {trace.not_fetched}"
    raise AbsentTraceError(
        f"trace {name}: is not in the cache {trace.folder()}, {looked[0]}; {how}"
    )


def path_of(file: str) -> str:
    """The path that is meant: the file if there is one, else the copy of the trace so called.

    Raises TraceError if the trace is not on this machine, or is no trace file.
    """
    if file not in public_traces() or os.path.lexists(file):
        return file
    try:
        check_name(file, "trace")
    except ValueError as error:
        raise TraceError(str(error).removeprefix("name: ")) from None
    return str(find(file))


def cache_folder() -> Path:
    """Where fetched traces are kept."""
    if own := os.environ.get("KVSIM_CACHE"):
        return Path(own)
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "kvsim" / "traces"


def _sizes(source: Source) -> Collection[int]:
    """The sizes that a whole copy may have."""
    return range(1, sys.maxsize) if source.num_bytes is None else (source.num_bytes,)


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return -1
