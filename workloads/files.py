"""Files as blocks of whole lines, plain, gzip or zstd, with every failure as one sentence."""

from __future__ import annotations

import gzip
import io
import os
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, cast

import pyarrow as pa

from workloads.trace import TraceError

BLOCK_BYTES = 1 << 22  # large enough that a block costs nothing beside its rows
MAX_LINE_BYTES = 1 << 24  # bounds memory on a file without line ends
GZIP_MAGIC = b"\x1f\x8b"
ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
BYTE_ORDER_MARK = b"\xef\xbb\xbf"
UTF16_MARKS = (b"\xff\xfe", b"\xfe\xff")
NEWLINE = b"\n"
LINE_ENDS = "lines that end in a line feed, with a carriage return before it or without"
LFS_POINTER = b"version https://git-lfs.github.com/spec/"


@contextmanager
def open_binary(path: str) -> Iterator[BinaryIO]:
    """Open a file for reading, unpacked if its first bytes say it is gzip or zstd.

    Raises TraceError for whatever goes wrong with the file, while opening or later.
    """
    if "\0" in path or not _is_encodable(path):
        raise TraceError(f"{path!r}: is no file name; accepted: text without zero characters")
    try:
        with Path(path).open("rb") as file:
            start = file.read(len(ZSTD_MAGIC))
            file.seek(0)
            if start.startswith(GZIP_MAGIC):
                with gzip.open(file) as unpacked:
                    yield cast(BinaryIO, unpacked)
            elif start == ZSTD_MAGIC:
                with io.BufferedReader(_Zstd(file)) as unpacked:
                    yield cast(BinaryIO, unpacked)
            else:
                yield file
    except FileNotFoundError:
        raise TraceError(f"{path}: no such file") from None
    except IsADirectoryError:
        raise TraceError(f"{path}: is a directory; accepted: a file") from None
    except (EOFError, gzip.BadGzipFile, zlib.error):
        raise TraceError(f"{path}: the gzip data is damaged or cut short") from None
    except _ZstdError:
        raise TraceError(f"{path}: the zstd data is damaged or cut short") from None
    except OSError as error:
        raise TraceError(f"{path}: cannot be read: {error.strerror or error}") from None


class _ZstdError(OSError):
    pass


class _Zstd(io.RawIOBase):
    """What a zstd file unpacks to, through Arrow's codec."""

    def __init__(self, file: BinaryIO) -> None:
        self._unpacked = pa.CompressedInputStream(pa.PythonFile(file, "r"), "zstd")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        try:
            data = self._unpacked.read(len(buffer))
        except (OSError, pa.ArrowException) as error:
            raise _ZstdError from error
        buffer[: len(data)] = data
        return len(data)


def _is_encodable(path: str) -> bool:
    """Half of a surrogate pair, which YAML lets through, is no text."""
    try:
        os.fsencode(path)
    except UnicodeEncodeError:
        return False
    return True


def first_bytes(path: str, count: int = 4096) -> bytes:
    """The start of a file, unpacked and without a byte order mark.

    Raises TraceError if the file cannot be read or is a Git LFS pointer.
    """
    with open_binary(path) as file:
        start = file.read(count).removeprefix(BYTE_ORDER_MARK)
        refuse_other_content(path, start)
        return start


def refuse_other_content(path: str, start: bytes) -> None:
    """Raise TraceError if a file starts like none: a pointer, packed once more, or UTF-16."""
    if start.startswith((GZIP_MAGIC, ZSTD_MAGIC)):
        raise TraceError(f"{path}: is packed twice; accepted: gzip or zstd, once")
    zeros = start[1:4:2] == b"\0\0" or start[0:3:2] == b"\0\0"
    if zeros or (start.startswith(UTF16_MARKS) and b"\0" in start[2:4]):
        raise TraceError(f"{path}: is UTF-16 text; accepted: UTF-8")
    if start.startswith(LFS_POINTER):
        raise TraceError(f"{path}: is a Git LFS pointer; fetch the file with git lfs")


class Block(NamedTuple):
    """Whole lines of a file; first_line is the number of the first one, counted from 1."""

    first_line: int
    num_lines: int
    data: bytes


def blocks(path: str) -> Iterator[Block]:
    """A file a few megabytes at a time, without its byte order mark.

    Raises TraceError if the file cannot be read, is none of text in UTF-8, or has a line of more
    than MAX_LINE_BYTES.
    """
    first_line = 1
    with open_binary(path) as file:
        while data := file.read(BLOCK_BYTES):
            if first_line == 1:
                data = data.removeprefix(BYTE_ORDER_MARK)
                refuse_other_content(path, data)
            if not data.endswith(NEWLINE):
                data += file.readline(MAX_LINE_BYTES)
            num_lines = data.count(NEWLINE)
            if not data.endswith(NEWLINE):
                num_lines += 1
                if file.read(1):
                    raise TraceError(
                        f"{path}: line {first_line + num_lines - 1} is longer than "
                        f"{MAX_LINE_BYTES} bytes; accepted: one request a line"
                    )
            yield Block(first_line, num_lines, data)
            first_line += num_lines


def lines(block: Block) -> Iterator[tuple[int, bytes]]:
    """The lines of a block that are not blank, without their ends, each with its number."""
    for number, line in enumerate(block.data.split(NEWLINE), block.first_line):
        stripped = line.strip()
        if stripped:
            yield number, stripped
