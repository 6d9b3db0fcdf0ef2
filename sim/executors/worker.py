"""What a worker of a cluster does: it makes one run, and gives back its row and its files.

It needs no folder in common with who asks: the trace comes with the run, and files go back as
bytes. What a cost profile or a plug-in reads must be there, below the same path.
"""

from __future__ import annotations

import socket
import tempfile
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import NamedTuple

from sim.executors.base import ExecutorError
from sim.runs.runner import Due, Row, Spec, Work, code_digest, failed, look_up, make, run_folder
from workloads.trace import Trace

own_code = cache(code_digest)


class Made(NamedTuple):
    """A run that was made: its row, and its files by name; None if it failed before it had any."""

    row: Row
    files: dict[str, bytes] | None = None


class Order(NamedTuple):
    """A run that is to be made elsewhere: the key is what it has where it was ordered."""

    spec: Spec
    key: str
    work: Work


def carry_out(order: Order, trace: Trace) -> Made:
    """Make a run in a temporary folder.

    Raises ExecutorError if the code here is not that of who asks, ResultsError if the folder cannot
    be written.
    """
    spec, key, work = order
    if own_code() != work.code:
        raise ExecutorError(
            f"the worker on {socket.gethostname()} has kvsim code {own_code()}, this machine "
            f"{work.code}; install the same version on both"
        )
    with tempfile.TemporaryDirectory(prefix="kvsim-") as folder:
        here = replace(work, folder=Path(folder))
        due = look_up(spec, here, trace)
        if not isinstance(due, Due):
            return Made(due)
        if due.key != key:
            return Made(failed(spec, _OTHER_FILES.format(socket.gethostname())))
        row = make(due, here)
        return Made(row, _files_in(run_folder(spec, here)))


_OTHER_FILES = "the plug-ins or the cost profile on worker {} are not those of this machine"


def _files_in(folder: Path) -> dict[str, bytes] | None:
    if not folder.exists():
        return None
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}
