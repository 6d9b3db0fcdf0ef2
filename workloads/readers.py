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
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq

from workloads.files import blocks, lines, open_binary
from workloads.rows import Column, Reading, Rows, shown
from workloads.trace import TraceError

Reader = Callable[[str, Sequence[Column], str], Rows]
PARQUET_BATCH_ROWS = 1 << 18


def read_csv(path: str, columns: Sequence[Column], on_bad_row: str) -> Rows:
    """Comma-separated text with a header. Columns are found by name; one row is one line."""
    reading = Reading(path, columns, on_bad_row)
    names: list[str] = []
    for first, block in blocks(path):
        number, rest = first, block
        if not names:
            names, number, rest = _header(path, first, block)
            if not names:
                continue
            positions = reading.header(names)
        arrays = _plain_arrays(rest, len(names), positions)
        if arrays is not None and reading.add_arrays(number, arrays):
            continue
        for line_number, line in lines(number, rest):
            _add_line(reading, line_number, line, len(names), positions)
    return reading.rows()


def _header(path: str, first: int, block: bytes) -> tuple[list[str], int, bytes]:
    """The names in a block's first line that is not blank, and what follows it."""
    for number, line in lines(first, block):
        try:
            names = [name.strip() for name in next(csv.reader([line.decode()], strict=True))]
        except (UnicodeDecodeError, csv.Error):
            raise TraceError(f"{path}: line {number} is not CSV text") from None
        rest = block.split(b"\n", number - first + 1)[number - first + 1 :]
        return names, number + 1, rest[0] if rest else b""
    return [], first, b""


def _plain_arrays(block: bytes, width: int, positions: Sequence[int]) -> list[Any] | None:
    """The wanted columns as arrays of text, or None where a line is not plainly one row."""
    block = block.rstrip(b"\r\n")
    if not block or b'"' in block:
        return None
    names = [str(position) for position in range(width)]
    wanted = [names[position] for position in positions]
    try:
        table = pa_csv.read_csv(
            pa.BufferReader(block),
            read_options=pa_csv.ReadOptions(column_names=names),
            parse_options=pa_csv.ParseOptions(quote_char=False),
            convert_options=pa_csv.ConvertOptions(
                include_columns=wanted, column_types=dict.fromkeys(names, pa.string())
            ),
        )
    except (pa.ArrowException, UnicodeDecodeError):
        return None
    if table.num_rows != block.count(b"\n") + 1:
        return None
    return [table.column(name) for name in wanted]


def _add_line(
    reading: Reading, number: int, line: bytes, width: int, positions: Sequence[int]
) -> None:
    try:
        cells = next(csv.reader([line.decode()], strict=True))
    except (UnicodeDecodeError, csv.Error, StopIteration):
        reading.bad_row(number, "is not CSV text", "not CSV text")
        return
    if len(cells) != width:
        sentence = f"has {len(cells)} cells; accepted: {width}, as in the header"
        reading.bad_row(number, sentence, "wrong number of cells")
        return
    reading.add_row(number, [cells[position] for position in positions])


def read_jsonl(path: str, columns: Sequence[Column], on_bad_row: str) -> Rows:
    """One JSON object a line. The first object says which optional columns there are."""
    reading = Reading(path, columns, on_bad_row)
    known: set[str] = set()
    for first, block in blocks(path):
        for number, line in lines(first, block):
            try:
                row = json.loads(line, object_pairs_hook=_unique)
            except (ValueError, RecursionError):
                row = None
            if not isinstance(row, dict):
                reading.bad_row(number, "is not a JSON object", "not a JSON object")
                continue
            if not known:
                reading.header(list(row))
                known = set(row)
                absent = [c.name for c in columns if c.name not in known]
            _add_object(reading, number, row, absent)
            if not row.keys() <= known:
                reading.notes["ignored: keys that the first object has not"] += 1
    return reading.rows()


def _add_object(reading: Reading, number: int, row: dict[str, Any], absent: Sequence[str]) -> None:
    try:
        cells = [row[column.name] for column in reading.columns]
    except KeyError as error:
        name = error.args[0]
        reading.bad_row(number, f"has no {name}; the first object has", f"no {name}")
        return
    for name in absent:
        if name in row:
            sentence = f"has {name}; the first object has none"
            reading.bad_row(number, sentence, f"{name} in some rows only")
            return
    reading.add_row(number, cells)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object, unless a key stands twice: then nobody knows which value was meant."""
    row = dict(pairs)
    if len(row) < len(pairs):
        raise ValueError
    return row


def read_parquet(path: str, columns: Sequence[Column], on_bad_row: str) -> Rows:
    """A Parquet table. Rows count from 1."""
    reading = Reading(path, columns, on_bad_row, place="row")
    with open_binary(path) as file:
        try:
            table = pq.ParquetFile(file)
            reading.header(table.schema_arrow.names)
            wanted = [column.name for column in reading.columns]
            number = 1
            for batch in table.iter_batches(PARQUET_BATCH_ROWS, columns=wanted):
                arrays = [batch.column(name) for name in wanted]
                if not reading.add_arrays(number, arrays):
                    _add_batch(reading, number, arrays)
                number += batch.num_rows
        except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
            detail = shown(str(error).split("\n", maxsplit=1)[0])
            raise TraceError(f"{path}: is not a readable Parquet file: {detail}") from None
    return reading.rows()


def _add_batch(reading: Reading, number: int, arrays: Sequence[Any]) -> None:
    cells = [values.to_pylist() for values in arrays]
    for offset, row in enumerate(zip(*cells, strict=True)):
        reading.add_row(number + offset, row)


READERS: dict[str, Reader] = {"csv": read_csv, "jsonl": read_jsonl, "parquet": read_parquet}
