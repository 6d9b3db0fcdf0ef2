"""Compilation of the per-token bookkeeping: plain loops over arrays, under numba.

Compiled code is cached on disk under a name that contains a hash of every file of this
package: numba looks only at the file of the function it caches, so a change to a function that
another file's compiled code calls would otherwise go unseen.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar, cast

import numba
import numpy as np

F = TypeVar("F", bound=Callable[..., object])


def source_digest(*folders: Path) -> str:
    """A hash of every Python file below the folders: hex, 16 characters."""
    state = hashlib.blake2b(digest_size=8)
    for folder in folders:
        for path in sorted(folder.rglob("*.py")):
            state.update(path.relative_to(folder).as_posix().encode())
            state.update(path.read_bytes())
    return state.hexdigest()


def _cache_folder() -> Path:
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    folder = base / "kvsim" / f"compiled-{source_digest(Path(__file__).parent)}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError:
        folder = Path(tempfile.gettempdir()) / f"kvsim-{os.getuid()}-{folder.name}"
        folder.mkdir(parents=True, exist_ok=True)
    return folder


if "NUMBA_CACHE_DIR" not in os.environ:
    numba.config.CACHE_DIR = str(_cache_folder())  # type: ignore[attr-defined]


def compiled(function: F) -> F:
    """Compile a function on first use, and cache it on disk.

    The function must also run, with the same results, as plain Python (NUMBA_DISABLE_JIT=1). It
    must not create arrays: without numba's reference counts (_nrt) a call costs a third less.
    """
    options: dict[str, Any] = {"cache": True, "error_model": "numpy", "_nrt": False}
    return cast(F, numba.njit(**options)(function))


def direct(function: F, *examples: object) -> F:
    """A compiled function for arguments of the examples' types, called without numba's dispatch.

    Dispatch looks at the type of every argument at every call, which costs as much as the call
    itself. The result must be called with the types it was made for; STRIDED stands for int64
    vectors of any layout, which a caller outside of this package may pass.
    """
    compile_for = getattr(function, "compile", None)
    if compile_for is None:  # NUMBA_DISABLE_JIT=1
        return function
    return cast(F, compile_for(tuple(numba.typeof(example) for example in examples)))  # type: ignore[no-untyped-call]


STRIDED = np.zeros(4, np.int64)[::2]  # a vector of one element would be contiguous
