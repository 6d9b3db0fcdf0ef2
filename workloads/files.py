"""Trace files as bytes: plain or gzip, a block of whole lines at a time, failures as sentences."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, cast

from workloads.trace import TraceError

BLOCK_BYTES = 1 << 24
START_BYTES = 4096
GZIP_MAGIC = b"\x1f\x8b"
BOM = b"\xef\xbb\xbf"


@contextmanager
def open_binary(path: str) -> Iterator[BinaryIO]:
    """The contents of a file, unpacked if it is gzip.

    Raises TraceError if it is missing, a directory, unreadable or damaged, here or while it is
    read in the block.
    """
    file = Path(path)
    try:
        if file.is_dir():
            raise TraceError(f"{path}: is a directory; accepted: a file")
        with file.open("rb") as plain:
            is_packed = plain.read(len(GZIP_MAGIC)) == GZIP_MAGIC
            plain.seek(0)
            if is_packed:
                with gzip.open(plain) as unpacked:
                    yield cast(BinaryIO, unpacked)
            else:
                yield plain
    except FileNotFoundError:
        raise TraceError(f"{path}: there is no such file") from None
    except (OSError, EOFError, zlib.error) as error:
        reason = str(getattr(error, "strerror", None) or error).split("\n", maxsplit=1)[0]
        raise TraceError(f"{path}: cannot be read: {reason}") from None


def first_bytes(path: str) -> bytes:
    """The start of a file, at most START_BYTES of it, without a byte order mark.

    Raises TraceError if it cannot be read.
    """
    with open_binary(path) as file:
        return file.read(START_BYTES).removeprefix(BOM)


def blocks(path: str) -> Iterator[tuple[int, bytes]]:
    """Blocks of whole lines, each with the number of its first line, counted from 1.

    Raises TraceError if the file cannot be read, or holds nothing.
    """
    number = 1
    with open_binary(path) as file:
        block = file.read(BLOCK_BYTES).removeprefix(BOM)
        if not block:
            raise TraceError(f"{path}: the file is empty; accepted: a header or keys, and requests")
        while block:
            block += file.readline()
            yield number, block
            number += block.count(b"\n")
            block = file.read(BLOCK_BYTES)


def lines(first: int, block: bytes) -> Iterator[tuple[int, bytes]]:
    """The lines of a block that are not blank, numbered from first, without their ends."""
    for number, line in enumerate(block.split(b"\n"), first):
        if line.strip():
            yield number, line.removesuffix(b"\r")
