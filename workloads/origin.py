"""Where a workload's file is: at a path, or a public trace's copy by its name."""

from __future__ import annotations

from workloads import publictraces
from workloads.tracefile import check_path


def check_origin(path: object, name: object) -> None:
    """Refuse both or neither, and what is no path or no name. Raises ValueError."""
    if (path is None) == (name is None):
        raise ValueError("path: one of path and name is needed, and only one")
    if path is not None:
        check_path(path)
    else:
        publictraces.named(name)


def locate(path: str | None, name: str | None) -> str:
    """The path. Raises AbsentTraceError if a named trace is not on this machine."""
    return path or str(publictraces.find(str(name)))
