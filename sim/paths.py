"""Paths in an experiment file: they start at its folder, and may name $KVSIM_SHARED."""

from __future__ import annotations

import os
import re
from pathlib import Path

_SHARED = re.compile(r"\$(?:KVSIM_SHARED\b|\{KVSIM_SHARED\})")


def find_path(path: str, folder: Path) -> Path:
    """Where a path of an experiment leads. Raises ValueError, with a sentence, if nowhere."""
    if _SHARED.search(path):
        shared = os.environ.get("KVSIM_SHARED")
        if not shared:
            raise ValueError("needs the environment variable KVSIM_SHARED, which is not set")
        path = _SHARED.sub(lambda match: shared, path)
    found = folder / path
    try:
        found.stat()
    except (OSError, ValueError) as error:  # ValueError: a zero byte in the name
        reason = getattr(error, "strerror", None) or str(error)
        raise ValueError(f"{found}: {reason}") from None
    return found
