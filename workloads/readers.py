"""Delimited text, JSON lines and Parquet: from a file to rows, whatever its columns mean.

Text is read a block at a time. A block whose cells are all plainly good goes through Arrow; any
other is read again line by line with the rules themselves, which find and name what is wrong.
So the two ways accept the same files, and the first bad line is always known.

All three raise TraceError for a file that cannot be read, and for the first bad row unless
on_bad_row is "drop". Blank lines are skipped, wherever they stand.
"""

from __future__ import annotations

import csv
import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.json as pa_json
import pyarrow.parquet as pq

from workloads.files import LINE_ENDS, NEWLINE, Block, blocks, lines, open_binary
from workloads.intake import Reading, shown
from workloads.rows import Column, Rows
from workloads.trace import TraceError

Reader = Callable[[str, Sequence[Column], str], Rows]
PARQUET_BATCH_ROWS = 1 << 18
TAIL_BYTES = 1024  # blank lines at the end of a block, within which a quick look is enough


def read_csv(path: str, columns: Sequence[Column], on_bad_row: str, delimiter: str = ",") -> Rows:
    """Separated text with a header. Columns are found by name; one row is one line."""
    reading = Reading(path, columns, on_bad_row)
    names: list[str] = []
    for block in blocks(path):
        rest = block
        if not names:
            names, rest = _split_header(path, block, delimiter)
            if not names:
                continue
            positions = reading.header(names)
        arrays = _plain_arrays(rest, len(names), positions, delimiter)
        if arrays is None or not reading.add_arrays(rest.first_line, arrays):
            for number, line in lines(rest):
                _add_line(reading, number, line, len(names), positions, delimiter)
    return reading.rows()


def _split_header(path: str, block: Block, delimiter: str) -> tuple[list[str], Block]:
    """The names in the first line that is not blank, if there is one, and what follows it."""
    start, skipped, line = 0, 0, b""
    while not line and start < len(block.data):
        end = block.data.find(NEWLINE, start) + 1 or len(block.data)
        line = block.data[start:end].strip()
        start, skipped = end, skipped + 1
    number = block.first_line + skipped
    rest = Block(number, block.num_lines - skipped, block.data[start:])
    if not line:
        return [], rest
    try:
        text = line.decode()
        cells = csv.reader([text], delimiter=delimiter, strict=True, skipinitialspace=True)
        return [name.strip() for name in next(cells)], rest
    except (UnicodeDecodeError, csv.Error):
        accepted = f"{LINE_ENDS}" if b"\r" in line else "a header in UTF-8"
        raise TraceError(
            f"{path}: line {number - 1} is not CSV text; accepted: {accepted}"
        ) from None


def _plain_arrays(
    block: Block, width: int, positions: Sequence[int], delimiter: str
) -> list[Any] | None:
    """The wanted columns as arrays of text, or None where a line is not plainly one row."""
    if not block.data or b'"' in block.data:
        return None
    names = [str(position) for position in range(width)]
    wanted = [names[position] for position in positions]
    try:
        table = pa_csv.read_csv(
            pa.BufferReader(block.data),
            read_options=pa_csv.ReadOptions(column_names=names),
            parse_options=pa_csv.ParseOptions(
                delimiter=delimiter, quote_char=False, ignore_empty_lines=False
            ),
            convert_options=pa_csv.ConvertOptions(
                include_columns=wanted, column_types=dict.fromkeys(names, pa.string())
            ),
        )
    except pa.ArrowException:
        return None
    # a difference: lines that are blank, or that end in another way
    if table.num_rows != block.num_lines - _num_blank_lines_at_end(block.data):
        return None
    return [table.column(name) for name in wanted]


def _num_blank_lines_at_end(data: bytes) -> int:
    tail = data[-TAIL_BYTES:]
    tail = tail[len(tail.rstrip(b"\r\n")) :]
    return max(0, tail.count(NEWLINE) - 1)


def _cells(line: str, delimiter: str) -> list[str]:
    return next(csv.reader([line], delimiter=delimiter, strict=True))


def _add_line(
    reading: Reading,
    number: int,
    line: bytes,
    width: int,
    positions: Sequence[int],
    delimiter: str,
) -> None:
    try:
        # as for Arrow, text of any encoding may stand in columns that are ignored
        cells = _cells(line.decode(errors="replace"), delimiter)
    except (csv.Error, StopIteration):
        sentence = "is not CSV text; accepted: one row a line, quotes in pairs"
        reading.bad_row(number, sentence, "not CSV text")
        return
    if len(cells) != width:
        sentence = f"has {len(cells)} cells; accepted: {width}, as in the header"
        reading.bad_row(number, sentence, "wrong number of cells")
        return
    reading.add_row(number, [cells[position] for position in positions])


def read_jsonl(path: str, columns: Sequence[Column], on_bad_row: str) -> Rows:
    """One JSON object a line. The first object says which optional columns there are."""
    reading = Reading(path, columns, on_bad_row)
    names: list[str] = []
    for block in blocks(path):
        if not names:
            names = list(_object(next(lines(block), (0, b""))[1]) or {})
            if names:
                reading.header(names)
        arrays = _plain_objects(block, names, [column.name for column in reading.columns])
        if arrays is not None and reading.add_arrays(block.first_line, arrays):
            continue
        for number, line in lines(block):
            row = _object(line)
            if row is None:
                reading.bad_row(number, _no_object(line), "not a JSON object")
                continue
            if not names:
                names = list(row)
                reading.header(names)
            _add_object(reading, number, row, {c.name for c in columns}.difference(names))
            if not row.keys() <= set(names):
                reading.notes["ignored: keys that the first object has not"] += 1
    return reading.rows()


def read_objects(reading: Reading) -> Iterator[tuple[int, dict[str, Any]]]:
    """The JSON objects of a file with one a line, and their line numbers, for formats with lists.

    Reading must have been given columns by name; what is no object is a bad row. Keys that no
    column names are not counted as ignored: the format knows them.
    """
    for block in blocks(reading.source):
        for number, line in lines(block):
            row = _object(line)
            if row is None:
                reading.bad_row(number, _no_object(line), "not a JSON object")
            else:
                yield number, row


def add_object(reading: Reading, number: int, row: Mapping[str, Any]) -> bool:
    """Take the cells of an object by name; a key that it has not is a bad row."""
    for column in reading.columns:
        if column.name not in row:
            reading.bad_row(number, f"has no {column.name}", f"no {column.name}")
            return False
    return reading.add_row(number, [row[column.name] for column in reading.columns])


def _plain_objects(block: Block, names: Sequence[str], wanted: Sequence[str]) -> list[Any] | None:
    """The wanted keys as arrays, or None where a line is not plainly one object like the first."""
    data = block.data
    # one brace a line, at its start: so no object spans lines or shares one, and none is nested
    count = data.count(b"{")
    if count != data.count(b"\n{") + 1 or not data.startswith(b"{") or not _is_text(data):
        return None
    if count != block.num_lines - _num_blank_lines_at_end(data):
        return None
    try:
        table = pa_json.read_json(pa.BufferReader(data))
    except pa.ArrowException:
        return None
    if not names or table.column_names != list(names):
        return None
    return [table.column(name) for name in wanted]


def _is_text(data: bytes) -> bool:
    """Whether it is UTF-8; Arrow does not look."""
    try:
        return data.isascii() or bool(data.decode())
    except UnicodeDecodeError:
        return False


def _object(line: bytes) -> dict[str, Any] | None:
    """The JSON object of a line, None if it holds none or one with a key that stands twice."""
    try:
        row = DECODER.decode(line.decode())
    except (ValueError, RecursionError):
        return None
    return row if isinstance(row, dict) else None


def _no_object(line: bytes) -> str:
    """Why a line holds no JSON object."""
    if b"\r" in line:
        return f"holds a carriage return; accepted: {LINE_ENDS}"
    try:
        DECODER.decode(line.decode())
    except KeyTwiceError as error:
        return f"is not a JSON object: {error}; accepted: each key once"
    except (ValueError, RecursionError):
        pass
    return "is not a JSON object; accepted: one object a line, each key once"


def _add_object(reading: Reading, number: int, row: dict[str, Any], absent: set[str]) -> None:
    try:
        cells = [row[column.name] for column in reading.columns]
    except KeyError as error:
        name = error.args[0]
        reading.bad_row(number, f"has no {name}; the first object has", f"no {name}")
        return
    for name in absent.intersection(row):
        sentence = f"has {name}; the first object has none"
        reading.bad_row(number, sentence, f"{name} in some rows only")
        return
    reading.add_row(number, cells)


class KeyTwiceError(ValueError):
    """A key stands twice in an object: nobody knows which value was meant."""

    def __init__(self, key: str) -> None:
        super().__init__(f"the key {shown(key)} stands twice in an object")


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object, unless a key stands twice."""
    row = dict(pairs)
    if len(row) < len(pairs):
        raise KeyTwiceError(Counter(key for key, _ in pairs).most_common(1)[0][0])
    return row


DECODER = json.JSONDecoder(object_pairs_hook=_unique)


def read_parquet(path: str, columns: Sequence[Column], on_bad_row: str) -> Rows:
    """A Parquet table. Rows count from 1."""
    reading = Reading(path, columns, on_bad_row, place="row")
    with open_binary(path) as file:
        try:
            # its end comes first, which a zstd stream cannot jump to
            seekable = file if file.seekable() else pa.BufferReader(file.read())
            table = pq.ParquetFile(seekable, page_checksum_verification=True)
            reading.header(table.schema_arrow.names)
            wanted = [column.name for column in reading.columns]
            number = 1
            for batch in table.iter_batches(PARQUET_BATCH_ROWS, columns=wanted):
                arrays = [batch.column(name) for name in wanted]
                if not reading.add_arrays(number, arrays):
                    _add_batch(reading, number, arrays)
                number += batch.num_rows
        except (pa.ArrowException, OSError, UnicodeDecodeError, OverflowError) as error:
            detail = shown(str(error).split("\n", maxsplit=1)[0])
            raise TraceError(f"{path}: is not a readable Parquet file: {detail}") from None
    return reading.rows()


def _add_batch(reading: Reading, number: int, arrays: Sequence[Any]) -> None:
    cells = [values.to_pylist() for values in arrays]
    for offset, row in enumerate(zip(*cells, strict=True)):
        reading.add_row(number + offset, row)


READERS: dict[str, Reader] = {"csv": read_csv, "jsonl": read_jsonl, "parquet": read_parquet}
