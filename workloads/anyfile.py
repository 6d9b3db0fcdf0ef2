"""Trace files of any format: by path, or a public trace by its name.

The format is recognized from the content; what it was taken for stands in the trace's notes.
"""

# annotations stay objects here, as in workloads.tracefile
from dataclasses import dataclass, fields, replace
from typing import ClassVar

from workloads import publictraces
from workloads.formats import open_file
from workloads.trace import Trace
from workloads.tracefile import FileOptions, check_path


@dataclass(frozen=True)
class AnyFile(FileOptions):
    """A trace file of any known format: path to the file."""

    path: str

    kind: ClassVar[str] = "file"

    def __post_init__(self) -> None:
        check_path(self.path)
        super().__post_init__()

    def load(self, seed: int) -> Trace:
        """The requests of the file; the seed plays no part."""
        return load_any(self.path, self)


@dataclass(frozen=True)
class NamedTrace(FileOptions):
    """A public trace: name, one of those that kvsim trace fetch lists.

    It is read from the cache of kvsim trace fetch, or from $KVSIM_SHARED/traces.
    """

    name: str

    kind: ClassVar[str] = "trace"

    def __post_init__(self) -> None:
        super().__post_init__()
        publictraces.check_name(self.name, self.kind)

    def load(self, seed: int) -> Trace:
        """The requests of the trace; the seed plays no part.

        Raises AbsentTraceError if it is not on this machine.
        """
        return load_any(str(publictraces.find(self.name)), self)


def load_any(path: str, options: FileOptions) -> Trace:
    """The requests of a file of any format; the first note says which it is.

    Options at their defaults are as the format has them: some sort unless told otherwise.
    """
    given = {option.name: getattr(options, option.name) for option in fields(FileOptions)}
    chosen = {o.name: given[o.name] for o in fields(FileOptions) if given[o.name] != o.default}
    file = replace(open_file(path), **chosen)
    trace = file.load(0)
    return replace(trace, notes={f"taken for {file.kind}": len(trace), **trace.notes})
